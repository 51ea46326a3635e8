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
// so the first objects are weighed, and then one in a while.
type weigher struct {
	mu sync.Mutex
	// seen counts objects; ratio is that of memory to record.
	seen  int
	ratio float64
}

const (
	// weighFirst objects are weighed, and then every weighEvery-th.
	weighFirst, weighEvery = 16, 64
	// weighShare is how much one of these moves the ratio.
	weighShare = 1.0 / 8
)

// size estimates the memory of obj, in bytes, which has a record of the given length.
func (w *weigher) size(obj runtime.Object, record int) int64 {
	w.mu.Lock()
	w.seen++
	exact := w.seen <= weighFirst || w.seen%weighEvery == 0
	ratio := w.ratio
	w.mu.Unlock()
	if !exact || record == 0 {
		return int64(ratio * float64(record))
	}
	size := sizeOf(obj)
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := float64(size) / float64(record); w.ratio == 0 {
		w.ratio = r
	} else {
		w.ratio += (r - w.ratio) * weighShare
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

// Overheads in bytes, as Go 1.24 and later allocate: a map has groups of 8 slots
// with a control word, seven eighths full at most, and a header.
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
	if v.IsNil() {
		return 0
	}
	slot := int64(v.Type().Key().Size()+v.Type().Elem().Size()) + mapSlotControl
	slots := int64(8)
	for slots*7 < int64(v.Len())*8 {
		slots *= 2
	}
	size := mapHeader + slots*slot
	for it := v.MapRange(); it.Next(); {
		size += pointedTo(it.Key()) + pointedTo(it.Value())
	}
	return size
}
