package indexer

import (
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// weigher estimates how much memory decoded objects take. To weigh one exactly means
// to follow all its pointers, which costs a good part of decoding it. The size of its
// record is known for nothing, and the ratio of the two hardly differs within a type:
// so the first objects are weighed, then one in a while, and all large ones, of which a
// few matter.
type weigher struct {
	mu sync.Mutex
	// seen counts objects.
	seen int
	// memory and records are the sizes of those that were weighed, and of their
	// records. Large objects count for as much as they take.
	memory, records float64
}

const (
	// weighFirst objects are weighed, and then every weighEvery-th.
	weighFirst, weighEvery = 16, 64
	// weighAlways is the size of a record whose object is weighed in any case.
	weighAlways = 64 << 10
	// weighMemory is how many bytes of records the ratio is taken over, at least: with
	// twice as many, what was weighed before counts half.
	weighMemory = 4 << 20
)

// size estimates the memory of obj, in bytes, which has a record of the given length.
func (w *weigher) size(obj runtime.Object, record int) int64 {
	w.mu.Lock()
	w.seen++
	exact := w.seen <= weighFirst || w.seen%weighEvery == 0 || record >= weighAlways
	estimate := w.memory / max(w.records, 1) * float64(record)
	w.mu.Unlock()
	if !exact {
		return int64(estimate)
	}
	size := sizeOf(obj)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.memory += float64(size)
	w.records += float64(record)
	if w.records > 2*weighMemory {
		w.memory, w.records = w.memory/2, w.records/2
	}
	return size
}

// protobuf are the objects that were generated with a protobuf encoding.
type protobuf interface {
	Size() int
	MarshalToSizedBuffer(data []byte) (int, error)
}

// SizeOf estimates how much memory obj takes, in bytes: cheaply for types that have a
// protobuf encoding, where it returns the length of that, which is about half.
func SizeOf(obj any) int64 {
	switch o := obj.(type) {
	case protobuf:
		return int64(o.Size())
	case cache.DeletedFinalStateUnknown:
		return SizeOf(o.Obj)
	}
	return sizeOf(obj)
}

// Overheads in bytes, as Go 1.24 and later allocate: a map has a header and, once there
// is something in it, groups of 8 slots with a control word. If there are several they
// are seven eighths full at most.
const (
	mapHeader      = 48
	mapSlotControl = 1
	// allocRounding is what rounding up to a size class costs on average.
	allocRounding = 1.125
)

// sizeOf returns about how much memory obj and everything that it points to takes.
// What is shared within it counts each time.
func sizeOf(obj any) int64 {
	v := reflect.ValueOf(obj)
	if !v.IsValid() {
		return 0
	}
	return int64(allocRounding * float64(int64(v.Type().Size())+pointedTo(v)))
}

var locationType = reflect.TypeFor[*time.Location]()

// pointedTo returns the memory behind v, without v itself.
func pointedTo(v reflect.Value) int64 {
	switch v.Kind() {
	case reflect.String:
		return int64(v.Len())
	case reflect.Pointer:
		if v.IsNil() || v.Type() == locationType {
			return 0
		}
		return int64(v.Elem().Type().Size()) + pointedTo(v.Elem())
	case reflect.Interface:
		if v.IsNil() {
			return 0
		}
		return int64(v.Elem().Type().Size()) + pointedTo(v.Elem())
	case reflect.Slice:
		return int64(v.Cap())*int64(v.Type().Elem().Size()) + elements(v)
	case reflect.Array:
		return elements(v)
	case reflect.Struct:
		var size int64
		for i := range v.NumField() {
			size += pointedTo(v.Field(i))
		}
		return size
	case reflect.Map:
		return mapSize(v)
	}
	return 0
}

func elements(v reflect.Value) int64 {
	if isFlat(v.Type().Elem().Kind()) {
		return 0
	}
	var size int64
	for i := range v.Len() {
		size += pointedTo(v.Index(i))
	}
	return size
}

// isFlat says whether a value of this kind points to nothing.
func isFlat(k reflect.Kind) bool { return k >= reflect.Bool && k <= reflect.Complex128 }

func mapSize(v reflect.Value) int64 {
	switch {
	case v.IsNil():
		return 0
	case v.Len() == 0:
		return mapHeader
	}
	slot := int64(v.Type().Key().Size()+v.Type().Elem().Size()) + mapSlotControl
	slots := int64(8)
	for v.Len() > 8 && slots*7 < int64(v.Len())*8 {
		slots *= 2
	}
	size := mapHeader + slots*slot
	for it := v.MapRange(); it.Next(); {
		size += pointedTo(it.Key()) + pointedTo(it.Value())
	}
	return size
}
