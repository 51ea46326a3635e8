package codec

import (
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// protoMessage is what generated Kubernetes protobuf code gives a type.
type protoMessage interface {
	runtime.Object
	runtime.ProtobufReverseMarshaller
	Unmarshal([]byte) error
}

// builtinScheme has the types of client-go and nothing else. The global
// scheme.Scheme will not do: programs add their own types to it, at any time,
// and types whose protobuf was never checked for exactness must not get there.
var builtinScheme = sync.OnceValues(func() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, scheme.AddToScheme(s)
})

// builtinKinds returns the TypeMeta of every kind that client-go's scheme knows
// obj's type by. It is empty for other types, and for the few whose TypeMeta
// could not be restored because they do not embed one.
func builtinKinds(obj runtime.Object) []metav1.TypeMeta {
	if _, ok := obj.GetObjectKind().(*metav1.TypeMeta); !ok {
		return nil
	}
	s, err := builtinScheme()
	if err != nil {
		return nil
	}
	gvks, _, err := s.ObjectKinds(obj)
	if err != nil {
		return nil
	}
	kinds := make([]metav1.TypeMeta, len(gvks))
	for i, gvk := range gvks {
		kinds[i].APIVersion, kinds[i].Kind = gvk.ToAPIVersionAndKind()
	}
	return kinds
}

// protobufPayload is the object's own protobuf. Generated code writes maps in
// key order, so it is deterministic.
type protobufPayload struct {
	known []metav1.TypeMeta
	// raw is set if the type can hold a RawExtension.
	raw *rawFinder
}

func newProtobufPayload(obj protoMessage, known []metav1.TypeMeta) protobufPayload {
	return protobufPayload{known: known, raw: newRawFinder(obj)}
}

func (protobufPayload) kind() PayloadKind { return PayloadProtobuf }

func (p protobufPayload) encode(s *scratch, obj runtime.Object) ([]byte, error) {
	if p.raw.holdsObject(obj) {
		return nil, errRawObject
	}
	msg := obj.(protoMessage)
	size := msg.Size()
	// The message writes itself into the record: nothing is copied.
	record := s.newRecord(size)
	n, err := msg.MarshalToSizedBuffer(record[len(record)-size:])
	if err != nil {
		return nil, err
	}
	if n != size {
		return nil, fmt.Errorf("wrote %d bytes of %d; was it changed meanwhile?", n, size)
	}
	return record, nil
}

func (p protobufPayload) decode(data []byte, head header, into runtime.Object) error {
	if err := into.(protoMessage).Unmarshal(data); err != nil {
		return err
	}
	*into.GetObjectKind().(*metav1.TypeMeta) = p.typeMeta(head)
	return nil
}

// typeMeta returns the TypeMeta in head, without allocating for the values that
// clients set.
func (p protobufPayload) typeMeta(head header) metav1.TypeMeta {
	for _, known := range p.known {
		if string(head.apiVersion) == known.APIVersion && string(head.kind) == known.Kind {
			return known
		}
	}
	return metav1.TypeMeta{APIVersion: string(head.apiVersion), Kind: string(head.kind)}
}
