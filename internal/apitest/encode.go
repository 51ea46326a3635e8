package apitest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// protobufEnvelope writes what every protobuf reply is wrapped in: a magic
// prefix and a runtime.Unknown that says what is inside.
var protobufEnvelope = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

// kind is how an object of res calls itself in this form.
func (f form) kind(res *resource) schema.GroupVersionKind {
	if f.metadata {
		return metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")
	}
	return res.gvk
}

func typeMeta(gvk schema.GroupVersionKind) runtime.TypeMeta {
	apiVersion, kind := gvk.ToAPIVersionAndKind()
	return runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

// envelope is the record as a complete object of the given kind.
func envelope(f form, gvk schema.GroupVersionKind, rec *record) ([]byte, error) {
	payload, err := rec.payload(f)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = wrap(&out, f, gvk, payload)
	return out.Bytes(), err
}

// wrap adds kind and apiVersion to the payload of an object.
func wrap(w io.Writer, f form, gvk schema.GroupVersionKind, payload []byte) error {
	if f.protobuf {
		return protobufEnvelope.Encode(&runtime.Unknown{TypeMeta: typeMeta(gvk), Raw: payload}, w)
	}
	_, err := w.Write(append(openJSON(gvk), payload[1:]...))
	return err
}

// openJSON begins an object with its kind and apiVersion. The fields of the
// payload follow; it has some, because every object has metadata.
func openJSON(gvk schema.GroupVersionKind) []byte {
	apiVersion, kind := gvk.ToAPIVersionAndKind()
	return fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,`, kind, apiVersion)
}

// encodeObject writes a single object that has no record, such as a Status or a
// bookmark.
func encodeObject(w io.Writer, f form, obj runtime.Object) error {
	if _, ok := obj.(*metav1.Status); ok {
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Status"})
	}
	if !f.protobuf {
		return json.NewEncoder(w).Encode(obj)
	}
	return protobufEnvelope.Encode(obj, w)
}

// encodeList streams a list. It is made of the payloads as they are, so that a
// list of many objects costs their bytes and no more.
func encodeList(w io.Writer, f form, res *resource, meta metav1.ListMeta, rows []*record) error {
	gvk := f.kind(res)
	gvk.Kind += "List"
	if f.protobuf {
		return encodeProtobufList(w, f, gvk, meta, rows)
	}
	return encodeJSONList(w, f, res, gvk, meta, rows)
}

func encodeJSONList(w io.Writer, f form, res *resource, gvk schema.GroupVersionKind, meta metav1.ListMeta, rows []*record) error {
	metadata, err := json.Marshal(meta)
	if err != nil {
		return err
	}
	if err := write(w, fmt.Appendf(openJSON(gvk), `"metadata":%s,"items":[`, metadata)); err != nil {
		return err
	}
	// Items of typed lists carry no kind, those of custom resources and of
	// metadata do.
	open, separator := []byte("{"), []byte(nil)
	if res.custom || f.metadata {
		open = openJSON(f.kind(res))
	}
	for _, row := range rows {
		payload, err := row.payload(f)
		if err != nil {
			return err
		}
		if err := write(w, separator, open, payload[1:]); err != nil {
			return err
		}
		separator = []byte(",")
	}
	return write(w, []byte("]}\n"))
}

func write(w io.Writer, parts ...[]byte) error {
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// Tags of length-delimited fields 1 and 2. Every Kubernetes list has its
// metadata in field 1 and its items in field 2; runtime.Unknown has the type in
// field 1 and the object in field 2.
const (
	tagField1 = 1<<3 | 2
	tagField2 = 2<<3 | 2
)

// encodeProtobufList needs the size of all items first, because the list is a
// field of the envelope.
func encodeProtobufList(w io.Writer, f form, gvk schema.GroupVersionKind, meta metav1.ListMeta, rows []*record) error {
	metadata, err := meta.Marshal()
	if err != nil {
		return err
	}
	body := appendField(nil, tagField1, metadata)
	size := len(body)
	for _, row := range rows {
		payload, err := row.payload(f)
		if err != nil {
			return err
		}
		size += len(appendLength(nil, tagField2, len(payload))) + len(payload)
	}
	unknownType := typeMeta(gvk)
	kind, err := unknownType.Marshal()
	if err != nil {
		return err
	}
	head := appendField([]byte("k8s\x00"), tagField1, kind)
	if err := write(w, appendLength(head, tagField2, size), body); err != nil {
		return err
	}
	for _, row := range rows {
		payload, err := row.payload(f)
		if err != nil {
			return err
		}
		if err := write(w, appendLength(nil, tagField2, len(payload)), payload); err != nil {
			return err
		}
	}
	return nil
}

func appendLength(b []byte, tag byte, n int) []byte {
	return binary.AppendUvarint(append(b, tag), uint64(n))
}

func appendField(b []byte, tag byte, value []byte) []byte {
	return append(appendLength(b, tag, len(value)), value...)
}
