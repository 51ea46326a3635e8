package apitest

import (
	"encoding/json"
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// record is one version of one object, immutable and in encoded form, as etcd
// would hold it: a large collection then costs its bytes and no pointers for the
// garbage collector to follow, and protobuf replies are copies.
type record struct {
	res *resource
	key string
	rv  uint64
	// written is how many times the object has been written at rv.
	written int
	labels  labels.Set
	fields  fields.Set
	// body is protobuf, or JSON without apiVersion and kind for a custom
	// resource.
	body []byte
	// payloads caches the other forms, made when first asked for.
	payloads [formCount]atomic.Pointer[[]byte]
}

// form is how an object appears on the wire.
type form struct {
	protobuf bool
	metadata bool // as PartialObjectMetadata
}

const formCount = 4

func (f form) index() int {
	i := 0
	if f.protobuf {
		i |= 1
	}
	if f.metadata {
		i |= 2
	}
	return i
}

// newRecord encodes obj, whose metadata must be final except for the
// resourceVersion, which is set to what rv is in the resource. obj is changed
// accordingly and not kept.
func newRecord(res *resource, obj runtime.Object, rv uint64, written int) (*record, error) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	accessor.SetResourceVersion(res.aggregated.Objects.format(rv, written))
	body, err := marshalBody(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", res.gvr.Resource, accessor.GetName(), err)
	}
	return &record{
		res:     res,
		key:     res.key(accessor.GetNamespace(), accessor.GetName()),
		rv:      rv,
		written: written,
		labels:  accessor.GetLabels(),
		fields:  selectableFields(obj, accessor),
		body:    body,
	}, nil
}

func marshalBody(obj runtime.Object) ([]byte, error) {
	switch o := obj.(type) {
	case *unstructured.Unstructured:
		content := make(map[string]any, len(o.Object))
		for name, value := range o.Object {
			if name != "kind" && name != "apiVersion" {
				content[name] = value
			}
		}
		return json.Marshal(content)
	case interface{ Marshal() ([]byte, error) }:
		return o.Marshal()
	}
	return nil, fmt.Errorf("%T has no protobuf encoding", obj)
}

// decode returns the object as a client would: typed without kind and
// apiVersion, or unstructured with them. The caller owns it.
func (r *record) decode() (runtime.Object, error) {
	obj, err := r.res.newObject()
	if err != nil {
		return nil, err
	}
	switch o := obj.(type) {
	case *unstructured.Unstructured:
		content := map[string]any{}
		if err := utiljson.Unmarshal(r.body, &content); err != nil {
			return nil, err
		}
		o.SetUnstructuredContent(content)
		o.SetGroupVersionKind(r.res.gvk)
		return o, nil
	case interface{ Unmarshal([]byte) error }:
		return obj, o.Unmarshal(r.body)
	}
	return nil, fmt.Errorf("%T has no protobuf encoding", obj)
}

// payload is the object in form f without its kind and apiVersion. It is made
// once per record and shared: callers must not change it.
func (r *record) payload(f form) ([]byte, error) {
	slot := &r.payloads[f.index()]
	if p := slot.Load(); p != nil {
		return *p, nil
	}
	b, err := r.makePayload(f)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", r.res.gvr.Resource, r.key, err)
	}
	slot.Store(&b)
	return b, nil
}

func (r *record) makePayload(f form) ([]byte, error) {
	if f.metadata {
		partial, err := r.partial()
		if err != nil {
			return nil, err
		}
		return marshalPayload(partial, f)
	}
	if f.protobuf != r.res.custom {
		return r.body, nil
	}
	obj, err := r.decode()
	if err != nil {
		return nil, err
	}
	return marshalPayload(obj, f)
}

func marshalPayload(obj runtime.Object, f form) ([]byte, error) {
	if f.protobuf {
		return marshalBody(obj)
	}
	return json.Marshal(obj)
}

// partial reads the metadata alone. The protobuf form of every built-in kind
// begins as PartialObjectMetadata does (metadata is field 1), so the rest is
// skipped instead of decoded.
func (r *record) partial() (*metav1.PartialObjectMetadata, error) {
	partial := &metav1.PartialObjectMetadata{}
	if r.res.custom {
		return partial, json.Unmarshal(r.body, partial)
	}
	return partial, partial.Unmarshal(r.body)
}

// withRV returns the record as it would be with another resourceVersion: the
// last state of an object, at the version of its deletion.
func (r *record) withRV(rv uint64) (*record, error) {
	obj, err := r.decode()
	if err != nil {
		return nil, err
	}
	return newRecord(r.res, obj, rv, r.written+1)
}
