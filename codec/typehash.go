package codec

import (
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"reflect"
)

// typeID hashes the name of the type that typ points to. It tells apart the
// types whose records could be mixed up, whatever their structure, so that a
// record can be read by a later version of its type.
func typeID(typ reflect.Type) uint32 {
	h := fnv.New32a()
	h.Write([]byte(typeName(typ.Elem())))
	return h.Sum32()
}

// typeName is unique among the types of a program, but for those declared
// inside functions. reflect.Type.String has only the last part of the path.
func typeName(t reflect.Type) string { return t.PkgPath() + "." + t.Name() }

// hashType returns a hash of everything about typ that decides what its encoded
// form can carry: names, kinds, exported fields with their types and tags,
// embedding, and custom marshalling, down to basic types.
//
// It depends on the sources alone: no pointers, no map order. Unexported fields
// are left out, because no payload writes them; a change of, say, time.Time's
// inner fields is not a reason to list again.
func hashType(typ reflect.Type) string {
	h := sha256.New()
	describeType(h, typ)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// describeType writes the text that hashType hashes. Writing to out must not
// fail.
func describeType(out io.Writer, typ reflect.Type) {
	w := typeWriter{out: out, seen: map[reflect.Type]int{}}
	w.write(typ)
}

// typeWriter writes types as text. A named type is spelled out where it first
// appears and referred to by its number from then on, which ends recursion and
// does not depend on anything but the order of fields.
type typeWriter struct {
	out  io.Writer
	seen map[reflect.Type]int
}

// write writes t, or a reference to it.
func (w *typeWriter) write(t reflect.Type) {
	if t.Name() != "" && t.PkgPath() != "" {
		if n, ok := w.seen[t]; ok {
			fmt.Fprintf(w.out, "#%d;", n)
			return
		}
		w.seen[t] = len(w.seen)
		fmt.Fprintf(w.out, "type %q %s ", typeName(t), customMethods(t))
	}
	w.writeStructure(t)
}

// writeStructure writes what t is made of. Basic types, interfaces and what no
// payload can encode are told apart by their kind and name alone.
func (w *typeWriter) writeStructure(t reflect.Type) {
	fmt.Fprintf(w.out, "%v ", t.Kind())
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		w.write(t.Elem())
	case reflect.Array:
		fmt.Fprintf(w.out, "%d ", t.Len())
		w.write(t.Elem())
	case reflect.Map:
		w.write(t.Key())
		w.write(t.Elem())
	case reflect.Struct:
		w.writeFields(t)
	}
}

// writeFields includes embedded unexported structs: JSON promotes their fields.
func (w *typeWriter) writeFields(t reflect.Type) {
	fmt.Fprint(w.out, "{")
	for i := range t.NumField() {
		field := t.Field(i)
		if !field.IsExported() && !field.Anonymous {
			continue
		}
		fmt.Fprintf(w.out, "%s %v %q ", field.Name, field.Anonymous, field.Tag)
		w.write(field.Type)
	}
	fmt.Fprint(w.out, "}")
}

// marshalInterfaces are the ways in which payloads ask a type to encode itself.
var marshalInterfaces = []reflect.Type{
	reflect.TypeFor[json.Marshaler](),
	reflect.TypeFor[json.Unmarshaler](),
	reflect.TypeFor[encoding.TextMarshaler](),
	reflect.TypeFor[encoding.TextUnmarshaler](),
	reflect.TypeFor[protoMessage](),
}

// customMethods returns a letter for each of marshalInterfaces that t or its
// pointer implements: then the fields do not decide alone.
func customMethods(t reflect.Type) string {
	custom := ""
	for i, iface := range marshalInterfaces {
		if reflect.PointerTo(t).Implements(iface) {
			custom += string(rune('a' + i))
		}
	}
	return custom
}
