package objectcache

import (
	"runtime"
	"slices"
	"testing"
)

// s3fifo is the policy in its plainest form.
type s3fifo struct {
	budget      int64
	sizes       map[string]int64
	hits        map[string]int
	small, main []string // from the oldest to the newest
	ghosts      []string
}

func (s *s3fifo) kept(key string) bool {
	return slices.Contains(s.small, key) || slices.Contains(s.main, key)
}

func (s *s3fifo) get(key string) bool {
	s.hits[key] = min(s.hits[key]+1, 3)
	return s.kept(key)
}

func (s *s3fifo) bytes(keys []string) (sum int64) {
	for _, key := range keys {
		sum += s.sizes[key]
	}
	return sum
}

func (s *s3fifo) add(key string, size int64) {
	s.makeRoom(size)
	s.sizes[key], s.hits[key] = size, 0
	if slices.Contains(s.ghosts, key) {
		s.main = append(s.main, key)
	} else {
		s.small = append(s.small, key)
	}
}

func (s *s3fifo) replace(key string, size int64) {
	if s.kept(key) {
		s.sizes[key] = size
		s.makeRoom(0)
	}
}

func (s *s3fifo) makeRoom(size int64) {
	for s.bytes(s.small)+s.bytes(s.main)+size > s.budget {
		if s.bytes(s.small) > s.budget/10 || len(s.main) == 0 {
			s.evictSmall()
		} else {
			s.evictMain()
		}
	}
}

func (s *s3fifo) evictSmall() {
	key := s.small[0]
	if s.hits[key] > 0 {
		s.hits[key] = 0
		s.small, s.main = s.small[1:], append(s.main, key)
		return
	}
	s.ghosts = append(s.ghosts, key)
	s.remove(key)
}

func (s *s3fifo) evictMain() {
	key := s.main[0]
	if s.hits[key] == 0 {
		s.remove(key)
		return
	}
	s.hits[key]--
	s.main = append(s.main[1:], key)
}

func (s *s3fifo) remove(key string) {
	if !s.kept(key) {
		return
	}
	is := func(other string) bool { return other == key }
	s.small, s.main = slices.DeleteFunc(s.small, is), slices.DeleteFunc(s.main, is)
	s.ghosts = s.ghosts[max(0, len(s.ghosts)-len(s.small)-len(s.main)):]
}

// TestCache_EvictsAsS3FIFO compares what is kept, after every step, with the policy.
func TestCache_EvictsAsS3FIFO(t *testing.T) {
	const keys, most = 60, 400
	random := seeded(t)
	budget := 20 * charge(keyOf(0), most/2)
	c := New[int](budget)
	want := &s3fifo{budget: budget, sizes: map[string]int64{}, hits: map[string]int{}}
	for step := range 20_000 {
		key, size := keyOf(random.IntN(1+random.IntN(keys))), random.Int64N(most)
		switch random.IntN(20) {
		case 0:
			write(c, Written[int]{Key: key, Gone: true})
			want.remove(key)
		case 1:
			write(c, Written[int]{Key: key, Value: step, Size: size})
			want.replace(key, charge(key, size))
		default:
			_, ok := c.Get(key)
			if ok != want.get(key) {
				t.Fatalf("step %d: %s is kept: %t", step, key, ok)
			}
			if !ok {
				c.Fill(c.Ticket(), key, step, size, 1)
				want.add(key, charge(key, size))
			}
		}
		for n := range keys {
			if key := keyOf(n); c.Contains(key) != want.kept(key) {
				t.Fatalf("step %d: %s is kept: %t, the policy keeps %v and %v", step, key, c.Contains(key), want.small, want.main)
			}
		}
	}
	verify(t, c)
	if c.Stats().Evictions == 0 || len(want.main) == 0 || len(want.ghosts) == 0 {
		t.Errorf("the policy does nothing: %+v, %+v", c.Stats(), want)
	}
}

func write(c *Cache[int], w Written[int]) {
	c.Begin([]string{w.Key})
	c.End([]string{w.Key}, []Written[int]{w}, 1)
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

// What leaves without a hit and is back soon is kept longer than what is new.
func TestCache_GhostsComeBackForLonger(t *testing.T) {
	const room, size = 20, 100
	c := New[int](room * charge(keyOf(0), size))
	fill := func(n int) { c.Fill(c.Ticket(), keyOf(n), n, size, 0) }
	for n := range room + 1 { // evicts the first
		fill(n)
	}
	wantNone(t, c, keyOf(0))
	fill(0)
	for n := room + 1; n < 90; n++ {
		fill(n)
	}
	wantGet(t, c, keyOf(0), 0)
	wantNone(t, c, keyOf(room))
	verify(t, c)
}

// What a cache takes, with as many ghosts as there may be, is charged.
func TestCache_OverheadIsCharged(t *testing.T) {
	before := heap()
	c := New[any](4 << 20)
	var value any = t
	for n := 0; c.Stats().Evictions < 3*int64(len(c.mu.entries))+1; n++ {
		c.Fill(c.Ticket(), keyOf(n), value, 0, 0)
	}
	if got := heap() - before; got > c.Stats().Bytes {
		t.Errorf("%d bytes for %d entries and %d ghosts, charged %d",
			got, len(c.mu.entries), len(c.mu.queues.ghosts.order), c.Stats().Bytes)
	}
	verify(t, c)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
