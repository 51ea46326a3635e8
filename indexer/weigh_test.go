package indexer

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/warmcache/warmcache/codec"
	"github.com/warmcache/warmcache/internal/apitest"
)

// records returns the records of n objects, and what decodes them.
func records(t *testing.T, n int, object func(i int) kruntime.Object) ([][]byte, Codec) {
	t.Helper()
	c, err := codec.New(object(0))
	if err != nil {
		t.Fatal(err)
	}
	records := make([][]byte, n)
	for i := range records {
		if records[i], err = c.Encode(object(i)); err != nil {
			t.Fatal(err)
		}
	}
	return records, c
}

func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalizers and pools have held
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

var weighed = map[string]func(i int) kruntime.Object{
	"pods": func(i int) kruntime.Object { return apitest.Pod("default", fmt.Sprint("pod-", i), i) },
	"unstructured pods": func(i int) kruntime.Object {
		content, err := kruntime.DefaultUnstructuredConverter.ToUnstructured(apitest.Pod("default", fmt.Sprint("pod-", i), i))
		if err != nil {
			panic(err)
		}
		return &unstructured.Unstructured{Object: content}
	},
	// One in fifty is 500 times as large as the others, as Helm releases are among
	// ConfigMaps.
	"configmaps": func(i int) kruntime.Object {
		size := 200
		if i%50 == 49 {
			size = 100_000
		}
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("cm-", i)},
			Data:       map[string]string{"data": strings.Repeat("x", size)},
		}
	},
}

// The budget of a cache means something only if objects take what they are said to.
func TestWeigher_KnowsWhatObjectsTake(t *testing.T) {
	for name, object := range weighed {
		t.Run(name, func(t *testing.T) {
			const n = 2000
			records, c := records(t, n, object)
			objs := make([]kruntime.Object, n)
			before := heap()
			for i, record := range records {
				var err error
				if objs[i], err = c.Decode(record); err != nil {
					t.Fatal(err)
				}
			}
			took := heap() - before
			var w weigher
			var said int64
			for i, obj := range objs {
				said += w.size(obj, len(records[i]))
			}
			ratio := float64(said) / float64(took)
			t.Logf("%d objects take %d bytes, said to be %d: %.2f", n, took, said, ratio)
			if ratio < 0.8 || ratio > 1.3 {
				t.Errorf("%d objects take %d bytes, the weigher says %d", n, took, said)
			}
			runtime.KeepAlive(objs)
		})
	}
}
