package codec

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/warmcache/warmcache/store"
)

// Codec encodes and decodes the objects of one Go type. It is immutable and
// safe for concurrent use.
type Codec struct {
	typ         reflect.Type // pointer to the API struct
	id          uint32       // typeID(typ), found in every record
	payload     payload
	fingerprint string
}

// New returns the codec for objects of example's Go type; the value of example
// does not matter and may be a nil pointer. It returns an error wrapping
// ErrUnsupportedType for a nil interface and for a type that no payload can
// hold.
func New(example runtime.Object) (*Codec, error) {
	typ := reflect.TypeOf(example)
	if typ == nil {
		return nil, fmt.Errorf("%w: the example object is nil", ErrUnsupportedType)
	}
	if typ.Kind() != reflect.Pointer || typ.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("%w: %v is not a pointer to a struct", ErrUnsupportedType, typ)
	}
	c := &Codec{typ: typ, id: typeID(typ)}
	var err error
	if c.payload, err = payloadFor(c.newObject()); err != nil {
		return nil, err
	}
	c.fingerprint = fmt.Sprintf("%v/%d/%s", c.payload.kind(), formatVersion, hashType(typ))
	return c, nil
}

// Fingerprint identifies how records are written: payload kind, record format
// and a structural hash of the Go type (fields, types and tags, recursively).
// It is the same in every process built from the same sources. Records written
// under another fingerprint may lack fields and must not be served.
func (c *Codec) Fingerprint() string { return c.fingerprint }

// Encode returns the sealed record of obj, which it does not retain. Objects
// that are equal give equal bytes. It returns an error wrapping ErrWrongType if
// obj is nil or not of the codec's Go type, and ErrUnencodable if its payload
// cannot hold it; a panic in the type's own marshal code is such an error.
//
// Encode an object before other goroutines can see it. The content stays as it
// is, but the marshal code of a type may cache something in it:
// resource.Quantity does, for spellings that it has to normalise, like 0.5Gi.
func (c *Codec) Encode(obj runtime.Object) (record []byte, err error) {
	if typ := reflect.TypeOf(obj); typ != c.typ {
		return nil, fmt.Errorf("%w: got %v, this codec is for %v", ErrWrongType, typ, c.typ)
	}
	if reflect.ValueOf(obj).IsNil() {
		return nil, fmt.Errorf("%w: got a nil %v", ErrWrongType, c.typ)
	}
	s := getScratch()
	defer putScratch(s)
	defer func() {
		if p := recover(); p != nil {
			record, err = nil, fmt.Errorf("%w: marshalling %v panicked: %v", ErrUnencodable, c.typ, p)
		}
	}()
	if err := s.writeEnvelope(c.header(), envelopeOf(obj)); err != nil {
		return nil, fmt.Errorf("%w: envelope of %v: %w", ErrUnencodable, c.typ, err)
	}
	record, err = c.payload.encode(s, obj)
	if err != nil {
		return nil, fmt.Errorf("%w: %v as %v: %w", ErrUnencodable, c.typ, c.payload.kind(), err)
	}
	return store.Seal(record), nil
}

// Decode returns the object of a sealed record, in memory of its own. It
// returns an error wrapping store.ErrCorrupt for a record that is damaged or
// that was written for another payload kind or Go type. It does not panic,
// whatever the bytes are.
func (c *Codec) Decode(record []byte) (obj runtime.Object, err error) {
	head, _, payload, err := openRecord(record)
	if err != nil {
		return nil, err
	}
	if got, want := head.payload, c.payload.kind(); got != want || head.typeID != c.id {
		return nil, fmt.Errorf("%w: record (%v) was not written for a %v (%v)", store.ErrCorrupt, got, c.typ, want)
	}
	defer func() {
		if p := recover(); p != nil {
			obj, err = nil, fmt.Errorf("%w: unmarshalling %v panicked: %v", store.ErrCorrupt, c.typ, p)
		}
	}()
	into := c.newObject()
	if err := c.payload.decode(payload, head, into); err != nil {
		return nil, fmt.Errorf("%w: %v payload of %v: %w", store.ErrCorrupt, head.payload, c.typ, err)
	}
	return into, nil
}

// newObject returns a pointer to a zero value of the codec's type.
func (c *Codec) newObject() runtime.Object {
	return reflect.New(c.typ.Elem()).Interface().(runtime.Object)
}

// header is the part of the envelope that does not depend on the object.
func (c *Codec) header() header {
	return header{payload: c.payload.kind(), typeID: c.id}
}
