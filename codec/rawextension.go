package codec

import (
	"errors"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
)

// errRawObject keeps data from getting lost: the protobuf of a RawExtension is
// its Raw field alone. Clients deliver Raw; only code sets Object.
var errRawObject = errors.New("a RawExtension has Object set instead of Raw, which protobuf drops")

var rawExtensionType = reflect.TypeFor[runtime.RawExtension]()

// rawFinder looks for RawExtensions in the objects of one type. Few types hold
// any: for the others it is nil and costs nothing.
type rawFinder struct {
	// reach has every type, reachable from the root, that can hold one.
	reach map[reflect.Type]bool
}

// newRawFinder returns nil if obj's type cannot hold a RawExtension.
func newRawFinder(obj runtime.Object) *rawFinder {
	f := &rawFinder{reach: map[reflect.Type]bool{}}
	if !f.reaches(reflect.TypeOf(obj)) {
		return nil
	}
	return f
}

// reaches fills f.reach with t and the types below it. A recursive type counts
// as reaching: that costs a search, the opposite could miss one.
func (f *rawFinder) reaches(t reflect.Type) bool {
	if known, ok := f.reach[t]; ok {
		return known
	}
	f.reach[t] = true
	found := t == rawExtensionType
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		found = f.reaches(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if field := t.Field(i); field.IsExported() && f.reaches(field.Type) {
				found = true
			}
		}
	}
	f.reach[t] = found
	return found
}

// holdsObject reports whether a RawExtension in obj has Object without Raw.
func (f *rawFinder) holdsObject(obj runtime.Object) bool {
	return f != nil && f.search(reflect.ValueOf(obj))
}

// search is holdsObject for any value below the root. It follows only types
// that can lead to a RawExtension.
func (f *rawFinder) search(v reflect.Value) bool {
	if !f.reach[v.Type()] {
		return false
	}
	if raw, ok := v.Interface().(runtime.RawExtension); ok {
		return raw.Raw == nil && raw.Object != nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil() && f.search(v.Elem())
	case reflect.Slice, reflect.Array:
		return f.searchElements(v)
	case reflect.Map:
		return f.searchMap(v)
	case reflect.Struct:
		return f.searchFields(v)
	}
	return false
}

func (f *rawFinder) searchElements(v reflect.Value) bool {
	for i := range v.Len() {
		if f.search(v.Index(i)) {
			return true
		}
	}
	return false
}

func (f *rawFinder) searchMap(v reflect.Value) bool {
	for it := v.MapRange(); it.Next(); {
		if f.search(it.Value()) {
			return true
		}
	}
	return false
}

func (f *rawFinder) searchFields(v reflect.Value) bool {
	for i := range v.NumField() {
		if v.Type().Field(i).IsExported() && f.search(v.Field(i)) {
			return true
		}
	}
	return false
}
