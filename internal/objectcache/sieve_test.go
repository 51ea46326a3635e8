package objectcache

import (
	"slices"
	"testing"
)

// sieve is the policy in its plainest form: all values have the same size.
type sieve struct {
	limit   int
	order   []string // from the oldest to the newest
	visited map[string]bool
	hand    int
}

func (s *sieve) get(key string) bool {
	if slices.Contains(s.order, key) {
		s.visited[key] = true
		return true
	}
	return false
}

func (s *sieve) add(key string) (evicted string) {
	if len(s.order) == s.limit {
		evicted = s.evict()
	}
	s.order = append(s.order, key)
	return evicted
}

func (s *sieve) evict() string {
	for {
		if s.hand >= len(s.order) {
			s.hand = 0
		}
		key := s.order[s.hand]
		if !s.visited[key] {
			s.remove(key)
			return key
		}
		s.visited[key] = false
		s.hand++
	}
}

func (s *sieve) remove(key string) {
	i := slices.Index(s.order, key)
	if i < 0 {
		return
	}
	s.order = slices.Delete(s.order, i, i+1)
	delete(s.visited, key)
	if i < s.hand {
		s.hand--
	} else if s.hand == len(s.order) {
		s.hand = 0
	}
}

// TestCache_EvictsAsSieve compares what is kept, after every step, with the policy.
func TestCache_EvictsAsSieve(t *testing.T) {
	const limit, keys, size = 8, 20, 100
	random := seeded(t)
	c := New[int](limit * (size + int64(len(keyOf(0))) + entryOverhead))
	want := &sieve{limit: limit, visited: map[string]bool{}}
	for step := range 20_000 {
		key := keyOf(random.IntN(keys))
		if random.IntN(10) == 0 {
			c.Begin([]string{key})
			c.End([]string{key}, []Written[int]{{Key: key, Gone: true}}, 1)
			want.remove(key)
		} else if _, ok := c.Get(key); ok != want.get(key) {
			t.Fatalf("step %d: %s is kept: %t", step, key, ok)
		} else if !ok {
			c.Fill(c.Ticket(), key, step, size, 1)
			want.add(key)
		}
		for n := range keys {
			if key := keyOf(n); c.Contains(key) != slices.Contains(want.order, key) {
				t.Fatalf("step %d: %s is kept: %t, the policy keeps %v", step, key, c.Contains(key), want.order)
			}
		}
	}
	verify(t, c)
	if c.Stats().Evictions == 0 {
		t.Error("nothing was evicted")
	}
}

// A scan of many keys, each read once, does not push out what is read again and again.
func TestCache_ScanLeavesFirst(t *testing.T) {
	const wanted, size = 10, 100
	c := New[int](2 * wanted * charge(keyOf(0), size))
	fill := func(n int) { c.Fill(c.Ticket(), keyOf(n), n, size, 0) }
	for n := range wanted {
		fill(n)
		c.Get(keyOf(n))
	}
	for n := wanted; n < 90; n++ {
		fill(n)
		c.Get(keyOf(n % wanted))
	}
	for n := range wanted {
		if !c.Contains(keyOf(n)) {
			t.Errorf("%s, which is read all the time, is gone", keyOf(n))
		}
	}
}
