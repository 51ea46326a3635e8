package codec

import (
	"bytes"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// metadataPayload is msgpack with the Go names of the fields, so that a newer
// binary still reads what an older one wrote. Nil and empty stay apart.
type metadataPayload struct{}

// storedMetadata is a PartialObjectMetadata with those parts moved out that
// reflection gets wrong.
type storedMetadata struct {
	// Object has no ManagedFields and only UTC times.
	Object        metav1.PartialObjectMetadata
	ManagedFields []storedManagedFields
}

// storedManagedFields is one entry of managedFields. FieldsV1 hides its content
// in an unexported field when built with the tag fieldsv1string, so Entry goes
// without it.
type storedManagedFields struct {
	Entry metav1.ManagedFieldsEntry
	// HasFields tells a FieldsV1 that is nil from one that is empty.
	HasFields bool
	Fields    []byte
}

func (metadataPayload) kind() PayloadKind { return PayloadMetadata }

func (metadataPayload) encode(s *scratch, obj runtime.Object) ([]byte, error) {
	stored := toStored(obj.(*metav1.PartialObjectMetadata))
	if err := s.enc.Encode(&stored); err != nil {
		return nil, err
	}
	return s.newRecord(0), nil
}

func (metadataPayload) decode(data []byte, _ header, into runtime.Object) error {
	// The library trusts the lengths it reads; the check makes them true.
	if err := checkMsgpack(data); err != nil {
		return err
	}
	dec := msgpack.GetDecoder()
	defer msgpack.PutDecoder(dec)
	dec.Reset(bytes.NewReader(data))
	var stored storedMetadata
	if err := dec.Decode(&stored); err != nil {
		return err
	}
	*into.(*metav1.PartialObjectMetadata) = stored.restore()
	return nil
}

// toStored copies what it changes and shares the rest with obj.
func toStored(obj *metav1.PartialObjectMetadata) storedMetadata {
	stored := storedMetadata{Object: *obj}
	m := &stored.Object.ObjectMeta
	m.CreationTimestamp = metav1.Time{Time: m.CreationTimestamp.UTC()}
	m.DeletionTimestamp = mapTime(m.DeletionTimestamp, time.Time.UTC)
	m.ManagedFields = nil
	if obj.ManagedFields != nil {
		stored.ManagedFields = make([]storedManagedFields, len(obj.ManagedFields))
	}
	for i, entry := range obj.ManagedFields {
		s := &stored.ManagedFields[i]
		s.HasFields, s.Fields = entry.FieldsV1 != nil, entry.FieldsV1.GetRawBytes()
		s.Entry = entry
		s.Entry.FieldsV1 = nil
		s.Entry.Time = mapTime(entry.Time, time.Time.UTC)
	}
	return stored
}

// restore is the inverse of toStored.
func (stored *storedMetadata) restore() metav1.PartialObjectMetadata {
	m := &stored.Object.ObjectMeta
	m.CreationTimestamp = *mapTime(&m.CreationTimestamp, time.Time.Local)
	m.DeletionTimestamp = mapTime(m.DeletionTimestamp, time.Time.Local)
	if stored.ManagedFields != nil {
		m.ManagedFields = make([]metav1.ManagedFieldsEntry, len(stored.ManagedFields))
	}
	for i, s := range stored.ManagedFields {
		entry := &m.ManagedFields[i]
		*entry = s.Entry
		entry.Time = mapTime(s.Entry.Time, time.Time.Local)
		entry.FieldsV1 = restoreFields(s.HasFields, s.Fields)
	}
	return stored.Object
}

// restoreFields keeps apart no FieldsV1, one without content, and an empty one.
func restoreFields(present bool, raw []byte) *metav1.FieldsV1 {
	if !present {
		return nil
	}
	fields := &metav1.FieldsV1{}
	if raw != nil {
		fields.SetRawBytes(raw)
	}
	return fields
}

// mapTime applies zone to a copy of t. The zero time has no zone: clients leave
// it as it is.
func mapTime(t *metav1.Time, zone func(time.Time) time.Time) *metav1.Time {
	if t == nil || t.IsZero() {
		return t
	}
	return &metav1.Time{Time: zone(t.Time)}
}
