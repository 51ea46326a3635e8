package objectcache

import (
	"sync"
	"sync/atomic"
	"testing"
)

// storeOfOne is a store whose snapshots are of one key.
type storeOfOne struct {
	sync.RWMutex
	values map[string]uint64
}

func (s *storeOfOne) read(key string) uint64 {
	s.RLock()
	defer s.RUnlock()
	return s.values[key]
}

func (s *storeOfOne) apply(keys []string, write uint64) {
	s.Lock()
	defer s.Unlock()
	for _, key := range keys {
		s.values[key] = write
	}
}

// TestCache_Concurrent has one writer, whose values only grow, and many readers, who
// fill in what they have read: nobody may see a value that is older than what he has
// seen before, or than what the writer had ended before the read began.
func TestCache_Concurrent(t *testing.T) {
	const readers, keys, size = 6, 30, 100
	rounds := 20_000
	if testing.Short() {
		rounds = 1_000
	}
	random := seeded(t)
	c := New[uint64](keys / 2 * charge(keyOf(0), size))
	s := &storeOfOne{values: map[string]uint64{}}
	var writes atomic.Uint64
	// ended is what was written last, per key, as soon as End has returned.
	var ended [keys]atomic.Uint64
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			var seen [keys]uint64
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				i := n % keys
				key, least := keyOf(i), max(seen[i], ended[i].Load())
				value, ok := c.Get(key)
				if !ok {
					ticket, write := c.Ticket(), writes.Load()
					value = s.read(key)
					if kept, ok := c.AsOf([]byte(key), write); ok && kept != value {
						t.Errorf("AsOf(%s, %d) is %d, the snapshot has %d", key, write, kept, value)
					}
					c.Fill(ticket, key, value, size, write)
				}
				if value < least {
					t.Errorf("%s is %d after it was %d", key, value, least)
					return
				}
				seen[i] = value
			}
		})
	}
	for write := uint64(1); write <= uint64(rounds) && !t.Failed(); write++ {
		changed := []string{keyOf(random.IntN(keys)), keyOf(random.IntN(keys))}
		written := make([]Written[uint64], len(changed))
		for i, key := range changed {
			written[i] = Written[uint64]{Key: key, Value: write, Size: size, Wanted: random.IntN(2) == 0}
		}
		c.Begin(changed)
		s.apply(changed, write)
		writes.Store(write)
		c.End(changed, written, write)
		for n := range keys {
			if key := keyOf(n); key == changed[0] || key == changed[1] {
				ended[n].Store(write)
			}
		}
	}
	close(done)
	wg.Wait()
	verify(t, c)
	if stats := c.Stats(); stats.Hits == 0 || stats.Misses == 0 || stats.Evictions == 0 {
		t.Errorf("%+v", stats)
	}
}
