package codec

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/vmihailenco/msgpack/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// maxDepth is how deep values may nest: encoding/json, and so every client,
// reads no deeper.
const maxDepth = 10_000

// unstructuredPayload is msgpack, which keeps apart what JSON does not: int64(1)
// and float64(1).
//
// It writes the types that Unstructured may hold (runtime.DeepCopyJSON panics on
// others) and refuses the rest rather than giving back something else. A typed
// nil map or slice inside an interface, which no decoder makes, comes back as a
// plain nil.
type unstructuredPayload struct{}

func (unstructuredPayload) kind() PayloadKind { return PayloadUnstructured }

func (unstructuredPayload) encode(s *scratch, obj runtime.Object) ([]byte, error) {
	w := valueWriter{enc: s.enc}
	if err := w.writeMap(obj.(*unstructured.Unstructured).Object, 0); err != nil {
		return nil, err
	}
	return s.newRecord(0), nil
}

// valueWriter writes the values of an unstructured object.
type valueWriter struct {
	enc *msgpack.Encoder
	// keys is a stack: the sorted keys of every map that is being written.
	keys []string
}

func (w *valueWriter) write(value any, depth int) error {
	switch v := value.(type) {
	case nil:
		return w.enc.EncodeNil()
	case string:
		return w.enc.EncodeString(v)
	case bool:
		return w.enc.EncodeBool(v)
	case int64:
		return w.writeInt(v)
	case float64:
		return w.enc.EncodeFloat64(v)
	case map[string]any:
		return w.writeMap(v, depth)
	case []any:
		return w.writeSlice(v, depth)
	}
	return fmt.Errorf("unstructured objects cannot hold a %T", value)
}

// writeInt uses the shortest signed form. The encoder's own compact form uses
// unsigned codes, which decode to uint64.
func (w *valueWriter) writeInt(v int64) error {
	switch {
	case v >= -32 && v <= math.MaxInt8:
		return w.enc.EncodeInt(v)
	case v == int64(int16(v)):
		return w.enc.EncodeInt16(int16(v))
	case v == int64(int32(v)):
		return w.enc.EncodeInt32(int32(v))
	}
	return w.enc.EncodeInt64(v)
}

func (w *valueWriter) writeMap(m map[string]any, depth int) error {
	if m == nil {
		return w.enc.EncodeNil()
	}
	if depth >= maxDepth {
		return errTooDeep
	}
	if err := w.enc.EncodeMapLen(len(m)); err != nil {
		return err
	}
	first := len(w.keys)
	for key := range m {
		w.keys = append(w.keys, key)
	}
	slices.Sort(w.keys[first:])
	for i := first; i < first+len(m); i++ {
		key := w.keys[i] // the stack may move while values are written
		if err := w.enc.EncodeString(key); err != nil {
			return err
		}
		if err := w.write(m[key], depth+1); err != nil {
			return fmt.Errorf("%q: %w", key, err)
		}
	}
	w.keys = w.keys[:first]
	return nil
}

func (w *valueWriter) writeSlice(s []any, depth int) error {
	if s == nil {
		return w.enc.EncodeNil()
	}
	if depth >= maxDepth {
		return errTooDeep
	}
	if err := w.enc.EncodeArrayLen(len(s)); err != nil {
		return err
	}
	for i, value := range s {
		if err := w.write(value, depth+1); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return nil
}

func (unstructuredPayload) decode(data []byte, _ header, into runtime.Object) error {
	if err := checkMsgpack(data); err != nil {
		return err
	}
	dec := msgpack.GetDecoder()
	defer msgpack.PutDecoder(dec)
	dec.Reset(bytes.NewReader(data))
	dec.UseLooseInterfaceDecoding(true)
	object, err := dec.DecodeMap()
	into.(*unstructured.Unstructured).Object = object
	return err
}
