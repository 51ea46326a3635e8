package codec

import (
	"encoding/binary"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/warmcache/warmcache/store"
)

// formatVersion is the version of the record layout. It changes whenever bytes
// of an older version could be misread.
//
//	1  first version
const formatVersion = 1

// envelopeFields is the length of the envelope's array. Later versions may
// append fields: readers ignore what they do not know.
const envelopeFields = 9

// Envelope is what a record says about its object without the payload being
// decoded.
type Envelope struct {
	// Payload says how the object is encoded.
	Payload PayloadKind
	// APIVersion and Kind are as in the Go object: usually empty for typed
	// objects, because clients drop them.
	APIVersion, Kind string
	// ResourceVersion, UID and Labels are empty for types without ObjectMeta.
	ResourceVersion string
	UID             types.UID
	// Labels is nil if there are none.
	Labels map[string]string
}

// ReadEnvelope returns the envelope of a sealed record, sharing no memory with
// it. It verifies the checksum and returns an error wrapping store.ErrCorrupt if
// that or the structure of the envelope does not hold. It does not panic,
// whatever the bytes are.
func ReadEnvelope(record []byte) (Envelope, error) {
	head, rest, _, err := openRecord(record)
	if err != nil {
		return Envelope{}, err
	}
	env := Envelope{
		Payload:         head.payload,
		APIVersion:      string(head.apiVersion),
		Kind:            string(head.kind),
		ResourceVersion: string(rest.bytes()),
		UID:             types.UID(rest.bytes()),
	}
	if n := rest.container(classMap); n > 0 {
		env.Labels = make(map[string]string, n)
		for range n {
			key := string(rest.bytes())
			env.Labels[key] = string(rest.bytes())
		}
	}
	if rest.err != nil {
		return Envelope{}, fmt.Errorf("%w: record envelope: %w", store.ErrCorrupt, rest.err)
	}
	return env, nil
}

// header is the front of the envelope: what Decode needs. The slices are in the
// record's memory.
type header struct {
	payload          PayloadKind
	typeID           uint32
	apiVersion, kind []byte
}

// openRecord verifies a record and takes it apart: the header, the remaining
// fields of the envelope, and the payload.
func openRecord(record []byte) (head header, rest reader, payload []byte, err error) {
	body, err := store.Unseal(record)
	if err != nil {
		return header{}, reader{}, nil, err
	}
	outer := reader{data: body}
	rest = reader{data: outer.bytes()}
	fields := rest.container(classArray)
	format, kind, flags := rest.small(), rest.small(), rest.small()
	id := rest.bytes()
	head.apiVersion, head.kind = rest.bytes(), rest.bytes()
	switch {
	case outer.err != nil || rest.err != nil || fields < envelopeFields || len(id) != 4:
		return header{}, reader{}, nil, fmt.Errorf("%w: record has no valid envelope", store.ErrCorrupt)
	case format != formatVersion || flags != 0:
		return header{}, reader{}, nil, fmt.Errorf("%w: record format %d with flags %#x, want %d without", store.ErrCorrupt, format, flags, formatVersion)
	}
	head.payload, head.typeID = PayloadKind(kind), binary.BigEndian.Uint32(id)
	return head, rest, outer.data, nil
}

// envelopeOf collects the envelope of obj, sharing its labels. Payload is left
// to the header.
func envelopeOf(obj runtime.Object) Envelope {
	var env Envelope
	env.APIVersion, env.Kind = typeMetaOf(obj)
	if m, err := meta.Accessor(obj); err == nil {
		env.ResourceVersion, env.UID, env.Labels = m.GetResourceVersion(), m.GetUID(), m.GetLabels()
	}
	return env
}

// typeMetaOf returns apiVersion and kind exactly as obj has them. A detour over
// GroupVersionKind would change strings that do not parse.
func typeMetaOf(obj runtime.Object) (apiVersion, kind string) {
	switch k := obj.GetObjectKind().(type) {
	case *metav1.TypeMeta:
		return k.APIVersion, k.Kind
	case runtime.Unstructured:
		content := k.UnstructuredContent()
		apiVersion, _ = content["apiVersion"].(string)
		kind, _ = content["kind"].(string)
		return apiVersion, kind
	default:
		return k.GroupVersionKind().ToAPIVersionAndKind()
	}
}
