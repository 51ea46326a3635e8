package codec

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// PayloadKind says how the object in a record is encoded. The numbers are part
// of the format: they are never reused.
type PayloadKind uint8

const (
	// PayloadProtobuf is Kubernetes protobuf without TypeMeta, which the
	// envelope has.
	PayloadProtobuf PayloadKind = 1
	// PayloadUnstructured is the msgpack of Unstructured.Object.
	PayloadUnstructured PayloadKind = 2
	// PayloadMetadata is the msgpack of a PartialObjectMetadata.
	PayloadMetadata PayloadKind = 3
	// PayloadJSON is the JSON that the Go type's own methods produce.
	PayloadJSON PayloadKind = 4
)

// String returns a short name, which is part of Codec.Fingerprint.
func (k PayloadKind) String() string {
	switch k {
	case PayloadProtobuf:
		return "protobuf"
	case PayloadUnstructured:
		return "unstructured"
	case PayloadMetadata:
		return "metadata"
	case PayloadJSON:
		return "json"
	}
	return fmt.Sprintf("payload(%d)", uint8(k))
}

// payload is one way to encode the objects of a Go type. Implementations are
// immutable. They may panic where the type's own code does; Codec recovers.
type payload interface {
	kind() PayloadKind

	// encode returns the envelope that s holds, followed by the payload of
	// obj, in a new slice with room for the checksum.
	encode(s *scratch, obj runtime.Object) ([]byte, error)

	// decode fills into, a new zero value, and shares no memory with data.
	decode(data []byte, head header, into runtime.Object) error
}

// payloadFor chooses the payload by the type of zero, a new zero value.
func payloadFor(zero runtime.Object) (payload, error) {
	switch t := zero.(type) {
	case *unstructured.Unstructured:
		return unstructuredPayload{}, nil
	case *metav1.PartialObjectMetadata:
		return metadataPayload{}, nil
	case runtime.Unstructured:
		// Lists and foreign implementations: their JSON loses the difference
		// between 1 and 1.0, and no informer holds them.
		return nil, fmt.Errorf("%w: %T (of the unstructured types only *unstructured.Unstructured)", ErrUnsupportedType, t)
	case protoMessage:
		if known := builtinKinds(t); len(known) > 0 {
			return newProtobufPayload(t, known), nil
		}
	}
	return jsonPayload{}, nil
}
