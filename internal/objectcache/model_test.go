package objectcache

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// model is a store, a writer and some readers, with a cache in front. Each of their
// steps is one of the model, so that they meet in every order that two goroutines
// could. Values are numbers that are never used twice.
type model struct {
	*testing.T
	*rand.Rand
	cache *Cache[int]
	// stored is the store; a snapshot is a copy of it.
	stored map[string]int
	// writes is the number of the last write, noted after it.
	writes uint64
	next   int

	pending *pendingWrite
	readers []*snapshotReader
	// gets, hits and late count what has happened, so that a test that does nothing
	// is noticed.
	gets, hits, asOfHits, refused int64
}

type pendingWrite struct {
	keys    []string
	written []Written[int]
	applied bool
	clear   bool
}

type snapshotReader struct {
	ticket   Ticket
	write    uint64
	snapshot map[string]int
	// stale is set once a write begins after the ticket was taken, or was under way.
	stale bool
}

const modelKeys = 12

// TestCache_Model checks what a cache may serve against the store behind it: Get what
// was written last, AsOf what the snapshot has, and neither anything else, in whatever
// order readers and the writer take their steps.
func TestCache_Model(t *testing.T) {
	steps := 400_000
	if testing.Short() {
		steps = 40_000
	}
	random := seeded(t)
	for range 20 {
		m := &model{T: t, Rand: random, stored: map[string]int{}}
		m.cache = New[int](int64(random.IntN(modelKeys * 2 * (entryOverhead + 100))))
		for range steps / 20 {
			m.step()
			if m.IntN(50) == 0 {
				verify(t, m.cache)
			}
		}
		m.finish()
	}
}

func (m *model) key() string { return keyOf(m.IntN(modelKeys)) }

func (m *model) step() {
	switch m.IntN(8) {
	case 0, 1:
		m.get(m.key())
	case 2, 3:
		m.write()
	case 4:
		m.begin()
	default:
		m.read()
	}
}

func (m *model) finish() {
	for m.pending != nil {
		m.write()
	}
	for n := range modelKeys {
		m.get(keyOf(n))
	}
	verify(m.T, m.cache)
	stats := m.cache.Stats()
	if stats.Hits != m.hits || stats.Hits+stats.Misses != m.gets {
		m.Fatalf("%+v after %d hits in %d reads", stats, m.hits, m.gets)
	}
	if stats.Budget > 10*(entryOverhead+100) && (m.hits == 0 || m.asOfHits == 0 || m.refused == 0) {
		m.Fatalf("%d hits, %d as of a write, %d values refused: the model does nothing", m.hits, m.asOfHits, m.refused)
	}
}

func (m *model) get(key string) {
	m.gets++
	contains := m.cache.Contains(key)
	got, ok := m.cache.Get(key)
	if ok != contains {
		m.Fatalf("Contains(%s) is %t, Get has %t", key, contains, ok)
	}
	if !ok {
		return
	}
	m.hits++
	if want, exists := m.stored[key]; !exists || got != want {
		m.Fatalf("Get(%s) is %d, the store has %d, %t", key, got, want, exists)
	}
	if p := m.pending; p != nil && (p.clear || slices.Contains(p.keys, key)) {
		m.Fatalf("Get(%s) serves what is about to change", key)
	}
}

// write takes the next step of the writer.
func (m *model) write() {
	switch p := m.pending; {
	case p == nil:
		m.pending = m.newWrite()
		m.outdate()
		if m.pending.clear {
			m.cache.BeginAll()
		} else {
			m.cache.Begin(m.pending.keys)
		}
	case !p.applied && m.IntN(10) == 0: // the store refuses it
		m.cache.End(p.keys, nil, 0)
		m.pending = nil
	case !p.applied:
		p.applied = true
		m.apply(p)
	default:
		m.writes++
		m.cache.End(p.keys, p.written, m.writes)
		m.pending = nil
	}
}

func (m *model) newWrite() *pendingWrite {
	if m.IntN(100) == 0 {
		return &pendingWrite{clear: true}
	}
	p := &pendingWrite{}
	wanted := m.IntN(2) == 0
	for range 1 + m.IntN(4) {
		m.next++
		w := Written[int]{Key: m.key(), Value: m.next, Size: m.size(), Wanted: wanted, Gone: m.IntN(4) == 0}
		p.keys, p.written = append(p.keys, w.Key), append(p.written, w)
	}
	return p
}

// size is now and then more than the whole budget.
func (m *model) size() int64 {
	if m.IntN(10) == 0 {
		return m.cache.budget
	}
	return int64(m.IntN(200))
}

func (m *model) apply(p *pendingWrite) {
	if p.clear {
		clear(m.stored)
	}
	for _, w := range p.written {
		m.stored[w.Key] = w.Value
		if w.Gone {
			delete(m.stored, w.Key)
		}
	}
}

// outdate notes that a write begins.
func (m *model) outdate() {
	for _, r := range m.readers {
		r.stale = true
	}
}

// begin makes another reader, which takes its snapshot in a later step.
func (m *model) begin() {
	if len(m.readers) < 4 {
		m.readers = append(m.readers, &snapshotReader{ticket: m.cache.Ticket(), write: m.writes, stale: m.pending != nil})
	}
}

// read takes a step of one of the readers.
func (m *model) read() {
	if len(m.readers) == 0 {
		return
	}
	i := m.IntN(len(m.readers))
	r := m.readers[i]
	switch {
	case r.snapshot == nil:
		r.snapshot = maps.Clone(m.stored)
	case m.IntN(3) == 0:
		m.asOf(r, m.key())
	case m.IntN(3) > 0:
		m.fill(r, m.key())
	default:
		m.readers = slices.Delete(m.readers, i, i+1)
	}
}

func (m *model) asOf(r *snapshotReader, key string) {
	got, ok := m.cache.AsOf([]byte(key), r.write)
	if !ok {
		return
	}
	m.asOfHits++
	if want, exists := r.snapshot[key]; !exists || got != want {
		m.Fatalf("AsOf(%s, %d) is %d, the snapshot has %d, %t", key, r.write, got, want, exists)
	}
}

// fill offers what a reader has found. What a write may have overtaken must not be
// kept; that it was not is seen by get, but only if the value has changed.
func (m *model) fill(r *snapshotReader, key string) {
	value, exists := r.snapshot[key]
	if !exists {
		return
	}
	before := m.cache.Contains(key)
	m.cache.Fill(r.ticket, key, value, m.size(), r.write)
	if !before && r.stale {
		m.refused++
		if m.cache.Contains(key) {
			m.Fatalf("Fill(%s) has kept what may be overtaken", key)
		}
	}
}
