package indexer

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/store/storetest"
)

// realisticPod is about 4 KB of protobuf, most of it managed fields, as pods are.
func realisticPod(i int, rv string) *corev1.Pod {
	p := pod(podName(i), rv, strconv.Itoa(i%100))
	p.Labels = map[string]string{"app": "web", "pod-template-hash": "5d8f7c9b6f"}
	p.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate,
		FieldsV1: &metav1.FieldsV1{Raw: make([]byte, 2500)},
	}}
	for c := range 2 {
		container := corev1.Container{
			Name: fmt.Sprint("c", c), Image: "registry.example.com/team/app:1.2.3",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
		}
		for e := range 15 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprint("VARIABLE_", e), Value: "a value of usual length"})
		}
		p.Spec.Containers = append(p.Spec.Containers, container)
	}
	return p
}

// stores returns client-go's indexer and ours with and without a file, holding n
// pods each.
func stores(b *testing.B, n int) map[string]cache.Indexer {
	indexers := cache.Indexers{"app": byApp, cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	stores := map[string]cache.Indexer{
		"client-go": cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, indexers),
		"memory":    New(Options{Indexers: indexers}),
		"file":      start(b, storetest.NewMemory(), startOptions{indexers: indexers}).Indexer,
	}
	var list []any
	for i := range n {
		list = append(list, realisticPod(i, "1"))
	}
	for _, s := range stores {
		if err := s.Replace(list, "1"); err != nil {
			b.Fatal(err)
		}
	}
	return stores
}

func benchmarkReads(b *testing.B, read func(cache.Indexer, int)) {
	for name, s := range stores(b, 10_000) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				read(s, i)
			}
		})
	}
}

func BenchmarkIndexer_GetByKey(b *testing.B) {
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = "ns/" + podName(i)
	}
	benchmarkReads(b, func(s cache.Indexer, i int) { _, _, _ = s.GetByKey(keys[i%len(keys)]) })
}

func BenchmarkIndexer_ByIndex(b *testing.B) {
	benchmarkReads(b, func(s cache.Indexer, i int) { _, _ = s.ByIndex("app", "7") })
}

func BenchmarkIndexer_Index(b *testing.B) {
	query := pod("query", "1", "7")
	benchmarkReads(b, func(s cache.Indexer, i int) { _, _ = s.Index("app", query) })
}

func BenchmarkIndexer_List(b *testing.B) {
	benchmarkReads(b, func(s cache.Indexer, i int) { s.List() })
}

// BenchmarkIndexer_Apply updates 1000 pods at a time.
func BenchmarkIndexer_Apply(b *testing.B) {
	for name, s := range stores(b, 10_000) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			changes := make([]Change, 1000)
			txns := make([]cache.Transaction, 1000)
			for i := range changes {
				p := realisticPod(i, "2")
				changes[i] = put(p)
				txns[i] = cache.Transaction{Type: cache.TransactionTypeUpdate, Object: p}
			}
			for b.Loop() {
				if x, ok := s.(*Indexer); ok {
					if _, err := x.Apply(Update{Changes: changes, RV: "2"}); err != nil {
						b.Fatal(err)
					}
					continue
				}
				if err := s.(cache.TransactionStore).Transaction(txns...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkKnown_Unchanged compares a list of 10,000 pods.
func BenchmarkKnown_Unchanged(b *testing.B) {
	for name, s := range stores(b, 10_000) {
		x, ok := s.(*Indexer)
		if !ok {
			continue
		}
		b.Run(name, func(b *testing.B) {
			var keys []string
			var objs []any
			for i := range 10_000 {
				p := realisticPod(i, "1")
				keys, objs = append(keys, "ns/"+p.Name), append(objs, p)
			}
			for b.Loop() {
				for i := 0; i < len(keys); i += 1000 {
					same, err := x.Known().Unchanged(keys[i:i+1000], objs[i:i+1000])
					if err != nil || !same[0] {
						b.Fatal(same[0], err)
					}
				}
			}
		})
	}
}

// BenchmarkIndexer_Load starts over a file with 10,000 pods.
func BenchmarkIndexer_Load(b *testing.B) {
	file := storetest.NewMemory()
	p := start(b, file, startOptions{})
	u := Update{RV: "1", Complete: true}
	for i := range 10_000 {
		u.Changes = append(u.Changes, put(realisticPod(i, "1")))
	}
	p.apply(u)
	for b.Loop() {
		b.StopTimer()
		p := attach(b, file, startOptions{})
		b.StartTimer()
		if err := p.Load(context.Background()); err != nil || p.Len() != 10_000 {
			b.Fatal(p.Len(), err)
		}
	}
}
