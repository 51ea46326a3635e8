package codec

import (
	"errors"
	"reflect"
	"testing"

	"github.com/warmcache/warmcache/store"
)

func TestVerify_EveryPayload(t *testing.T) {
	for kind, obj := range examples() {
		c := mustNew(t, obj)
		if err := Verify(mustEncode(t, c, obj)); err != nil {
			t.Errorf("%v: %v", kind, err)
		}
		// Sealed, with a sound envelope, and of the right type.
		for name, payload := range map[string]string{"garbage": "\xff\xff\xff", "cut": "{\"a\": "} {
			if err := Verify(underEnvelope(c, []byte(payload))); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%v of %s: got %v, want ErrCorrupt", kind, name, err)
			}
		}
	}
}

func TestVerify_Damaged(t *testing.T) {
	c := mustNew(t, testPod())
	record := mustEncode(t, c, testPod())
	for i := range record {
		record[i] ^= 1
		if err := Verify(record); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("byte %d: got %v, want ErrCorrupt", i, err)
		}
		record[i] ^= 1
	}
	for name, damaged := range map[string]*Codec{
		"unknown payload": {typ: c.typ, id: c.id, payload: otherPayload{jsonPayload{}}},
		"another type":    {typ: c.typ, id: c.id, payload: unstructuredPayload{}},
	} {
		if err := Verify(underEnvelope(damaged, []byte("\x80"))); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: got %v, want ErrCorrupt", name, err)
		}
	}
}

// otherPayload is of a kind that a later version may know.
type otherPayload struct{ payload }

func (otherPayload) kind() PayloadKind { return 99 }

// A type of a newer client-go cannot be decoded, and is not damage.
func TestVerify_UnknownProtobufType(t *testing.T) {
	c := mustNew(t, testPod())
	unknown := &Codec{typ: c.typ, id: c.id + 1, payload: c.payload}
	if builtinTypes()[unknown.id] != nil {
		t.Fatal("the id is that of a type")
	}
	if err := Verify(underEnvelope(unknown, []byte("\xff"))); err != nil {
		t.Error(err)
	}
}

func TestBuiltinTypes_HaveDifferentIDs(t *testing.T) {
	s, err := builtinScheme()
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range s.AllKnownTypes() {
		pointer := reflect.PointerTo(typ)
		if got := builtinTypes()[typeID(pointer)]; got != nil && got != typ {
			t.Errorf("%v and %v have the same id", got, typ)
		}
	}
	if len(builtinTypes()) < 100 {
		t.Errorf("only %d types", len(builtinTypes()))
	}
}
