// Package isnil finds nil pointers in interfaces: what a variable of a pointer type
// that was never set becomes when it is passed on, and what comparing with nil misses.
package isnil

import "reflect"

// Value reports whether x is nil or a nil pointer.
func Value(x any) bool {
	v := reflect.ValueOf(x)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
