package operations

import (
	"fmt"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/bench/internal/cluster"
)

// read is one of a store that has everything in memory.
type read struct {
	name string
	from func(cache.Indexer) func(*testing.B)
}

func reads(pods int) []read {
	keys := make([]string, pods)
	for i := range keys {
		keys[i] = key(i)
	}
	query := pod(0)
	return []read{
		{"Get", func(x cache.Indexer) func(*testing.B) {
			return loop(func(b *testing.B, i int) { get(b, x, keys[i*stride%len(keys)]) })
		}},
		{fmt.Sprintf("ByIndex of %d", cluster.PodsPerNode), func(x cache.Indexer) func(*testing.B) {
			node := query.Spec.NodeName
			return loop(func(b *testing.B, _ int) { byIndex(b, x, node) })
		}},
		{fmt.Sprintf("Index of %d", cluster.PodsPerNode), func(x cache.Indexer) func(*testing.B) {
			return loop(func(b *testing.B, _ int) {
				if objs, err := x.Index(nodeIndex, query); err != nil || len(objs) != cluster.PodsPerNode {
					b.Fatal(len(objs), err)
				}
			})
		}},
		{fmt.Sprintf("List of %d", pods), func(x cache.Indexer) func(*testing.B) {
			return loop(func(b *testing.B, _ int) {
				if n := len(x.List()); n != pods {
					b.Fatal(n)
				}
			})
		}},
	}
}

func loop(do func(b *testing.B, i int)) func(*testing.B) {
	return func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			do(b, i)
		}
	}
}
