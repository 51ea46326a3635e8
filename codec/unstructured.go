package codec

import (
	"bytes"
	"fmt"
	"maps"
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
	if err := encodeMap(s.enc, obj.(*unstructured.Unstructured).Object, 0); err != nil {
		return nil, err
	}
	return s.newRecord(0), nil
}

func encodeValue(enc *msgpack.Encoder, value any, depth int) error {
	switch v := value.(type) {
	case nil:
		return enc.EncodeNil()
	case string:
		return enc.EncodeString(v)
	case bool:
		return enc.EncodeBool(v)
	case int64:
		return encodeInt(enc, v)
	case float64:
		return enc.EncodeFloat64(v)
	case map[string]any:
		return encodeMap(enc, v, depth)
	case []any:
		return encodeSlice(enc, v, depth)
	}
	return fmt.Errorf("unstructured objects cannot hold a %T", value)
}

// encodeInt writes the shortest signed form. The encoder's own compact form
// uses unsigned codes, which decode to uint64.
func encodeInt(enc *msgpack.Encoder, v int64) error {
	switch {
	case v >= -32 && v <= math.MaxInt8:
		return enc.EncodeInt(v)
	case v == int64(int16(v)):
		return enc.EncodeInt16(int16(v))
	case v == int64(int32(v)):
		return enc.EncodeInt32(int32(v))
	}
	return enc.EncodeInt64(v)
}

func encodeMap(enc *msgpack.Encoder, m map[string]any, depth int) error {
	if m == nil {
		return enc.EncodeNil()
	}
	if depth >= maxDepth {
		return errTooDeep
	}
	if err := enc.EncodeMapLen(len(m)); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if err := enc.EncodeString(key); err != nil {
			return err
		}
		if err := encodeValue(enc, m[key], depth+1); err != nil {
			return fmt.Errorf("%q: %w", key, err)
		}
	}
	return nil
}

func encodeSlice(enc *msgpack.Encoder, s []any, depth int) error {
	if s == nil {
		return enc.EncodeNil()
	}
	if depth >= maxDepth {
		return errTooDeep
	}
	if err := enc.EncodeArrayLen(len(s)); err != nil {
		return err
	}
	for i, value := range s {
		if err := encodeValue(enc, value, depth+1); err != nil {
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
