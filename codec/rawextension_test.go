package codec

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// rawHolder has RawExtensions behind everything that can hold one.
type rawHolder struct {
	metav1.TypeMeta
	Value   runtime.RawExtension
	Pointer *runtime.RawExtension
	Slice   []runtime.RawExtension
	Array   [2]*runtime.RawExtension
	Map     map[string]runtime.RawExtension
	Next    *rawHolder
	Plain   map[string]string
	hidden  []runtime.RawExtension //nolint:unused // must not be looked at
}

func (h *rawHolder) DeepCopyObject() runtime.Object { out := *h; return &out }

func TestRawFinder_FindsObjectEverywhere(t *testing.T) {
	lossy := runtime.RawExtension{Object: &rawHolder{}}
	exact := runtime.RawExtension{Raw: []byte("{}")}
	f := newRawFinder(&rawHolder{})
	for name, test := range map[string]struct {
		obj  *rawHolder
		want bool
	}{
		"nothing": {&rawHolder{Plain: map[string]string{"a": "b"}}, false},
		"raw": {&rawHolder{
			Value: exact, Pointer: &exact, Slice: []runtime.RawExtension{exact},
			Map: map[string]runtime.RawExtension{"a": exact}, Next: &rawHolder{Value: exact},
		}, false},
		"value":     {&rawHolder{Value: lossy}, true},
		"pointer":   {&rawHolder{Pointer: &lossy}, true},
		"slice":     {&rawHolder{Slice: []runtime.RawExtension{exact, lossy}}, true},
		"array":     {&rawHolder{Array: [2]*runtime.RawExtension{nil, &lossy}}, true},
		"map":       {&rawHolder{Map: map[string]runtime.RawExtension{"a": lossy}}, true},
		"recursive": {&rawHolder{Next: &rawHolder{Next: &rawHolder{Value: lossy}}}, true},
	} {
		if got := f.holdsObject(test.obj); got != test.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
	if newRawFinder(&metav1.PartialObjectMetadata{}) != nil {
		t.Error("a type without RawExtension is searched")
	}
}
