package codec

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/warmcache/warmcache/store"
)

func TestReadEnvelope_OfEachPayload(t *testing.T) {
	for kind, obj := range examples() {
		want := Envelope{
			Payload: kind, APIVersion: "example.com/v1", Kind: "Widget", ResourceVersion: "4711",
			UID: "0d9f", Labels: map[string]string{"app": "web", "tier": "front"},
		}
		switch kind {
		case PayloadProtobuf:
			want.APIVersion, want.Kind = "", ""
		case PayloadJSON:
			want.Kind = "Gadget"
		}
		record := mustEncode(t, mustNew(t, obj), obj)
		got, err := ReadEnvelope(record)
		for i := range record {
			record[i] = 'X' // nothing of it may be in the envelope
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v: got %+v, %v; want %+v", kind, got, err, want)
		}
	}
}

func TestReadEnvelope_WithoutMetadata(t *testing.T) {
	for _, obj := range []*unstructured.Unstructured{{}, {Object: map[string]any{"metadata": "odd", "apiVersion": int64(1)}}} {
		got, err := ReadEnvelope(mustEncode(t, mustNew(t, obj), obj))
		if want := (Envelope{Payload: PayloadUnstructured}); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	if got, err := ReadEnvelope(mustEncode(t, mustNew(t, list), list)); err != nil || got.Payload != PayloadProtobuf {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestRecord_AnyFlippedBitIsAnError(t *testing.T) {
	for kind, obj := range examples() {
		c := mustNew(t, obj)
		record := mustEncode(t, c, obj)
		for bit := range len(record) * 8 {
			record[bit/8] ^= 1 << (bit % 8)
			if _, err := c.Decode(record); !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("%v, bit %d: Decode: %v", kind, bit, err)
			}
			if _, err := ReadEnvelope(record); !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("%v, bit %d: ReadEnvelope: %v", kind, bit, err)
			}
			record[bit/8] ^= 1 << (bit % 8)
		}
	}
}

func TestRecord_AnyTruncationIsAnError(t *testing.T) {
	for kind, obj := range examples() {
		c := mustNew(t, obj)
		record := mustEncode(t, c, obj)
		body := record[:len(record)-checksumSize]
		for n := range body {
			if _, err := c.Decode(record[:n]); !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("%v, %d bytes: Decode: %v", kind, n, err)
			}
			// Sealed again, so that only the structure can tell. A shorter
			// protobuf may be valid; the envelope never is.
			_, err := c.Decode(store.Seal(bytes.Clone(body[:n])))
			if kind != PayloadProtobuf && !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("%v, %d bytes, sealed: Decode: %v", kind, n, err)
			}
		}
		if _, err := c.Decode(store.Seal(append(bytes.Clone(body), 0xc0))); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%v: a record with bytes behind its end was decoded", kind)
		}
	}
}

// sealedEnvelope returns a record with these values as its envelope.
func sealedEnvelope(t *testing.T, fields ...any) []byte {
	t.Helper()
	inner, err := msgpack.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	outer, err := msgpack.Marshal(inner)
	if err != nil {
		t.Fatal(err)
	}
	return store.Seal(outer)
}

func TestReadEnvelope_ChecksStructure(t *testing.T) {
	id := []byte{1, 2, 3, 4}
	labels := map[string]string{"a": "b"}
	valid := []any{int8(formatVersion), int8(1), int8(0), id, "v1", "Pod", "1", "uid", labels}
	change := func(i int, value any) []any {
		fields := append([]any(nil), valid...)
		fields[i] = value
		return fields
	}
	// The library writes int8 with a code of its own, so the fields go in as
	// the single bytes that they are in a record.
	for name, test := range map[string]struct {
		fields []any
		ok     bool
	}{
		"valid":             {valid, true},
		"more fields":       {append(valid[:len(valid):len(valid)], "new"), true},
		"fewer fields":      {valid[:8], false},
		"newer format":      {change(0, int8(formatVersion+1)), false},
		"unknown flags":     {change(2, int8(1)), false},
		"negative payload":  {change(1, int8(-1)), false},
		"short type id":     {change(3, id[:3]), false},
		"kind is a number":  {change(5, int8(7)), false},
		"labels are a list": {change(8, []string{"a"}), false},
		"label is a number": {change(8, map[string]any{"a": int8(1)}), false},
	} {
		record := sealedEnvelope(t, fixInts(test.fields)...)
		if _, err := ReadEnvelope(record); (err == nil) != test.ok || err != nil && !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Decode does not read the end of the envelope, so the count must tell.
func TestOpenRecord_CountsFields(t *testing.T) {
	record := sealedEnvelope(t, fixInts([]any{int8(formatVersion), int8(1), int8(0), []byte{1, 2, 3, 4}, "v1", "Pod"})...)
	if _, _, _, err := openRecord(record); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
}

// fixInts makes the library write small numbers in one byte.
func fixInts(fields []any) []any {
	out := append([]any(nil), fields...)
	for i, f := range out {
		if n, ok := f.(int8); ok {
			out[i] = msgpack.RawMessage{byte(n)}
		}
	}
	return out
}

func TestPayloadKind_String(t *testing.T) {
	for kind, want := range map[PayloadKind]string{
		PayloadProtobuf: "protobuf", PayloadUnstructured: "unstructured",
		PayloadMetadata: "metadata", PayloadJSON: "json", 9: "payload(9)",
	} {
		if got := kind.String(); got != want {
			t.Errorf("%d is %q, want %q", kind, got, want)
		}
	}
}
