package objectcache

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the randomised tests; 0 takes a new one")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seeded returns a generator, and says how to repeat what it decides.
func seeded(t *testing.T) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with: go test ./internal/objectcache -run '^%s$' -seed %d", t.Name(), seed)
	return rand.New(rand.NewPCG(seed, seed))
}

func keyOf(n int) string { return fmt.Sprintf("ns/%02d", n) }

// verify checks that map, queues, ghosts and sizes of a cache belong together.
func verify[V any](t *testing.T, c *Cache[V]) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	q := &c.mu.queues
	for _, q := range []*queue[V]{&q.small, &q.main} {
		verifyQueue(t, c.mu.entries, q)
	}
	if n := q.small.entries + q.main.entries; n != len(c.mu.entries) || len(q.ghosts.order) > n {
		t.Fatalf("%d entries in the queues and %d in the map, %d ghosts", n, len(c.mu.entries), len(q.ghosts.order))
	}
	if q.bytes() > c.budget {
		t.Fatalf("%d bytes, budget %d", q.bytes(), c.budget)
	}
	for _, hash := range q.ghosts.order {
		if _, known := q.ghosts.known[hash]; !known || len(q.ghosts.known) != len(q.ghosts.order) {
			t.Fatalf("ghosts %v, known %v", q.ghosts.order, q.ghosts.known)
		}
	}
}

func verifyQueue[V any](t *testing.T, entries map[string]*entry[V], q *queue[V]) {
	t.Helper()
	var bytes int64
	var older *entry[V]
	n := 0
	for e := q.oldest; e != nil; older, e = e, e.newer {
		n++
		bytes += e.size
		if e.older != older || e.queue != q || entries[e.key] != e {
			t.Fatalf("entry %s is not where its queue and the map have it", e.key)
		}
		if hits := e.hits.Load(); hits > mostHits {
			t.Fatalf("entry %s has %d hits", e.key, hits)
		}
	}
	if q.newest != older || n != q.entries || bytes != q.bytes {
		t.Fatalf("a queue of %d entries with %d bytes, counted %d with %d", n, bytes, q.entries, q.bytes)
	}
}
