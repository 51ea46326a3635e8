package indexer

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

func TestSizeOf(t *testing.T) {
	const size = 100_000
	long := strings.Repeat("x", size)
	typed := &corev1.ConfigMap{Data: map[string]string{"a": long}}
	for name, obj := range map[string]any{
		"typed":        typed,
		"metadata":     &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": long}}},
		"unstructured": &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"a": []any{long}}}},
		"tombstone":    cache.DeletedFinalStateUnknown{Obj: typed},
	} {
		if got := SizeOf(obj); got < size || got > size*5/4 {
			t.Errorf("%s: %d bytes, has a string of %d", name, got, size)
		}
	}
	if got := SizeOf(cache.DeletedFinalStateUnknown{Key: "a"}); got != 0 {
		t.Errorf("nothing: %d bytes", got)
	}
}
