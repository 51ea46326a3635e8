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

// verify checks that map, list, hand and sizes of a cache belong together.
func verify[V any](t *testing.T, c *Cache[V]) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var bytes int64
	var older *entry[V]
	n, hand := 0, c.mu.hand == nil
	for e := c.mu.oldest; e != nil; older, e = e, e.newer {
		n++
		bytes += e.size
		hand = hand || e == c.mu.hand
		if e.older != older || c.mu.entries[e.key] != e {
			t.Fatalf("entry %s is not where the list and the map have it", e.key)
		}
	}
	if c.mu.newest != older || n != len(c.mu.entries) || !hand {
		t.Fatalf("%d entries in the list and %d in the map; the hand is in the list: %t", n, len(c.mu.entries), hand)
	}
	if bytes != c.mu.bytes || bytes > c.budget {
		t.Fatalf("entries have %d bytes, counted %d, budget %d", bytes, c.mu.bytes, c.budget)
	}
}
