package objectcache

import (
	"sync/atomic"
	"testing"
)

// full returns a cache with all of n keys, and the keys.
func full(n int) (*Cache[int], []string) {
	const size = 100
	c, keys := New[int](int64(n)*charge(keyOf(n), size)), make([]string, n)
	for i := range keys {
		keys[i] = keyOf(i)
		c.Fill(c.Ticket(), keys[i], i, size, 0)
	}
	return c, keys
}

func BenchmarkCache_Hit(b *testing.B) {
	c, keys := full(1000)
	n := 0
	for b.Loop() {
		if _, ok := c.Get(keys[n%len(keys)]); !ok {
			b.Fatal("no hit")
		}
		n++
	}
}

// Hits of several goroutines.
func BenchmarkCache_ParallelHits(b *testing.B) {
	c, keys := full(1000)
	var start atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		for n := int(start.Add(100)); pb.Next(); n++ {
			if _, ok := c.Get(keys[n%len(keys)]); !ok {
				b.Error("no hit")
			}
		}
	})
}

// Each read is a miss, fills in a value and evicts one.
func BenchmarkCache_Miss(b *testing.B) {
	const size = 100
	c, _ := full(1000)
	keys := make([]string, 100_000)
	for i := range keys {
		keys[i] = keyOf(1000 + i)
	}
	n := 0
	for b.Loop() {
		key := keys[n%len(keys)]
		if _, ok := c.Get(key); ok {
			b.Fatal("a hit")
		}
		c.Fill(c.Ticket(), key, n, size, 0)
		n++
	}
}
