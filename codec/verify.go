package codec

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/warmcache/warmcache/store"
)

// Verify reports, as an error wrapping store.ErrCorrupt, whether a sealed record
// can be read: its checksum, its envelope and its payload, of whatever type. It
// is for those who have a file and no Codec. It does not panic, whatever the
// bytes are.
//
// A protobuf payload is decoded if this program's client-go has the type, and
// taken on trust otherwise. Of a JSON payload, whose Go type is not known here,
// the syntax is verified.
func Verify(record []byte) (err error) {
	if _, err := ReadEnvelope(record); err != nil {
		return err
	}
	head, _, payload, err := openRecord(record)
	if err != nil {
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: unmarshalling a %v payload panicked: %v", store.ErrCorrupt, head.payload, p)
		}
	}()
	if err := verifyPayload(head, payload); err != nil {
		return fmt.Errorf("%w: %v payload: %w", store.ErrCorrupt, head.payload, err)
	}
	return nil
}

func verifyPayload(head header, data []byte) error {
	switch head.payload {
	case PayloadProtobuf:
		typ := builtinTypes()[head.typeID]
		if typ == nil {
			return nil
		}
		return verifyAs(protobufPayload{}, head, data, reflect.New(typ).Interface().(runtime.Object))
	case PayloadUnstructured:
		return verifyAs(unstructuredPayload{}, head, data, &unstructured.Unstructured{})
	case PayloadMetadata:
		return verifyAs(metadataPayload{}, head, data, &metav1.PartialObjectMetadata{})
	case PayloadJSON:
		if !json.Valid(data) {
			return errors.New("not valid JSON")
		}
		return nil
	}
	return errors.New("unknown kind")
}

// verifyAs decodes data into an object of its type.
func verifyAs(p payload, head header, data []byte, into runtime.Object) error {
	if typeID(reflect.TypeOf(into)) != head.typeID {
		return fmt.Errorf("written for another type than %T", into)
	}
	return p.decode(data, head, into)
}

// builtinTypes are the types of client-go's scheme with protobuf, by their ids.
var builtinTypes = sync.OnceValue(func() map[uint32]reflect.Type {
	types := map[uint32]reflect.Type{}
	s, err := builtinScheme()
	if err != nil {
		return types
	}
	for _, typ := range s.AllKnownTypes() {
		pointer := reflect.PointerTo(typ)
		if pointer.Implements(reflect.TypeFor[protoMessage]()) {
			types[typeID(pointer)] = typ
		}
	}
	return types
})
