// Package objectcache holds decoded objects in front of a store of records, up to a
// number of bytes.
//
// It is coherent with the store if the writer says what it is about to change
// (Begin) and what has become of it (End), and readers say what they have read
// from the store with a Ticket that they took before: what may have changed
// meanwhile is not kept. Every value carries the number of the write that it is
// known to be valid from, so that it can be used within an older snapshot (AsOf).
//
// Eviction is S3-FIFO (Yang et al., SOSP 2023): values are kept in the order of their
// arrival in two queues, a small one, which what is read once (a scan) leaves soon, and
// a main one for what is read again. Compared with LRU, a hit changes no list, so that
// hits share a lock. docs/performance.md has the comparison.
package objectcache

import (
	"sync"
	"sync/atomic"
)

// entryOverhead is what an entry is charged beyond its value and key, in bytes:
// the entry itself, its place in the map, and a ghost.
const entryOverhead = 224

// Cache is safe for concurrent use; Begin and End are for one writer at a time.
type Cache[V any] struct {
	budget                  int64
	hits, misses, evictions atomic.Int64

	mu struct {
		sync.RWMutex
		entries map[string]*entry[V]
		// queues have the same entries, in the order of eviction.
		queues queues[V]
		// writes is odd from Begin to End.
		writes uint64
	}
}

type entry[V any] struct {
	key   string
	value V
	size  int64
	since uint64
	stale bool
	// hits goes up to mostHits; eviction takes them away.
	hits         atomic.Uint32
	queue        *queue[V]
	newer, older *entry[V]
}

// Stats describe a cache.
type Stats struct {
	// Hits and Misses count Get, Evictions what was dropped for want of room.
	Hits, Misses, Evictions int64
	// Objects is the number of values, Bytes their size, Budget its limit.
	Objects, Bytes, Budget int64
}

// New returns an empty cache for budget bytes.
func New[V any](budget int64) *Cache[V] {
	c := &Cache[V]{budget: budget}
	c.mu.entries = map[string]*entry[V]{}
	c.mu.queues = newQueues[V](budget)
	return c
}

// Get returns the current value of key.
func (c *Cache[V]) Get(key string) (value V, ok bool) {
	c.mu.RLock()
	e := c.mu.entries[key]
	if e == nil || e.stale {
		c.mu.RUnlock()
		c.misses.Add(1)
		return value, false
	}
	value = e.value
	c.mu.RUnlock()
	c.hits.Add(1)
	// No more writes once it is at its end, or all hits would share a cache line. Of two
	// at a time one may get lost.
	if hits := e.hits.Load(); hits < mostHits {
		e.hits.Store(hits + 1)
	}
	return value, true
}

// AsOf returns the value that key had after the given write, if it is still the
// current one. A caller that reads from a snapshot calls it while it has the
// snapshot, which has to be no older than the write. It counts as neither hit nor
// miss, and says nothing about how often the value is wanted.
func (c *Cache[V]) AsOf(key []byte, write uint64) (value V, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e := c.mu.entries[string(key)]
	if e == nil || e.stale || e.since > write {
		return value, false
	}
	return e.value, true
}

// Contains says whether the current value of key is kept.
func (c *Cache[V]) Contains(key string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e := c.mu.entries[key]
	return e != nil && !e.stale
}

// Ticket says when something was read from the store.
type Ticket uint64

// Ticket is to be taken before the store is read.
func (c *Cache[V]) Ticket() Ticket {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return Ticket(c.mu.writes)
}

// Fill keeps a value of the given size that was read from the store, unless
// something was written since the ticket was taken. It is valid from the write on
// that was the last when the ticket was taken.
func (c *Cache[V]) Fill(t Ticket, key string, value V, size int64, since uint64) {
	if t%2 == 1 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if Ticket(c.mu.writes) == t && c.mu.entries[key] == nil {
		c.insertLocked(key, value, size, since)
	}
}

// Begin says that these keys are about to change in the store. Until End, nothing
// is filled in and the values of these keys are not served.
func (c *Cache[V]) Begin(keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.writes++
	for _, key := range keys {
		if e := c.mu.entries[key]; e != nil {
			e.stale = true
		}
	}
}

// Written is what a write has made of one key.
type Written[V any] struct {
	Key string
	// Value of the given Size, in bytes, or none if the key is gone.
	Value V
	Size  int64
	Gone  bool
	// Wanted keeps the value although there was none of this key.
	Wanted bool
}

// End says what has become of the keys of Begin, with the number of the write. After
// BeginAll the keys are nil.
// Keys that are not named are as good as gone.
func (c *Cache[V]) End(keys []string, written []Written[V], write uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.writes++
	for i := range written {
		w := &written[i]
		e := c.mu.entries[w.Key]
		switch size := charge(w.Key, w.Size); {
		case w.Gone || size > c.budget:
			c.removeLocked(e)
		case e != nil:
			e.queue.resize(e, size)
			e.value, e.since, e.stale = w.Value, write, false
		case w.Wanted:
			c.insertLocked(w.Key, w.Value, w.Size, write)
		}
	}
	for _, key := range keys {
		if e := c.mu.entries[key]; e != nil && e.stale {
			c.removeLocked(e)
		}
	}
	c.makeRoomLocked(0)
}

func charge(key string, size int64) int64 { return size + int64(len(key)) + entryOverhead }

// BeginAll is Begin for all keys, whether they are known or not, and drops all values.
func (c *Cache[V]) BeginAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.writes++
	clear(c.mu.entries)
	c.mu.queues = newQueues[V](c.budget)
}

// Stats returns counters and sizes.
func (c *Cache[V]) Stats() Stats {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return Stats{
		Hits: c.hits.Load(), Misses: c.misses.Load(), Evictions: c.evictions.Load(),
		Objects: int64(len(c.mu.entries)), Bytes: c.mu.queues.bytes(), Budget: c.budget,
	}
}

// insertLocked adds a value that is not there. One that is larger than the budget
// is not kept.
func (c *Cache[V]) insertLocked(key string, value V, size int64, since uint64) {
	size = charge(key, size)
	if size > c.budget {
		return
	}
	c.makeRoomLocked(size)
	e := &entry[V]{key: key, value: value, size: size, since: since}
	c.mu.entries[key] = e
	c.mu.queues.add(e)
}

// makeRoomLocked evicts until there is room for size bytes, which the budget must
// allow.
func (c *Cache[V]) makeRoomLocked(size int64) {
	for c.mu.queues.bytes()+size > c.budget {
		c.removeLocked(c.mu.queues.victim())
		c.evictions.Add(1)
	}
}

// removeLocked takes e, which may be nil, out.
func (c *Cache[V]) removeLocked(e *entry[V]) {
	if e == nil {
		return
	}
	c.mu.queues.remove(e)
	delete(c.mu.entries, e.key)
}
