package objectcache

import "hash/maphash"

// mostHits is where the count of an entry's hits ends.
const mostHits = 3

// smallShare is the part of the budget that the small queue has: one in so many.
const smallShare = 10

// queues say what is evicted, as S3-FIFO does (Yang et al., SOSP 2023). Their sizes are
// in bytes:
//
//   - What is new enters the small queue; what has left that lately without a hit, and
//     is back, enters main.
//   - While the small queue has more than its share, it gives up its oldest entry: to
//     main if there was a hit, or else that is evicted, and leaves its ghost.
//   - Otherwise the oldest entry of main begins anew at the price of one hit, and is
//     evicted if it has none.
//
// A hit changes nothing but the count of its entry. As long as there is room, all is
// in the small queue. There are never more ghosts than entries, which pay for them
// (entryOverhead). Everything but the counts is guarded by the lock of the cache.
type queues[V any] struct {
	small, main queue[V]
	ghosts      ghosts
	// smallBytes is the share of the small queue.
	smallBytes int64
}

func newQueues[V any](budget int64) queues[V] {
	return queues[V]{smallBytes: budget / smallShare, ghosts: newGhosts()}
}

func (q *queues[V]) bytes() int64 { return q.small.bytes + q.main.bytes }

// add adds an entry that is in no queue.
func (q *queues[V]) add(e *entry[V]) {
	if q.ghosts.has(e.key) {
		q.main.push(e)
	} else {
		q.small.push(e)
	}
}

// remove takes e out, and what its place allowed of ghosts.
func (q *queues[V]) remove(e *entry[V]) {
	e.queue.remove(e)
	q.ghosts.trim(q.small.entries + q.main.entries)
}

// victim returns what is to be removed next for want of room. There has to be an
// entry.
func (q *queues[V]) victim() *entry[V] {
	for {
		var e *entry[V]
		if q.small.bytes > q.smallBytes || q.main.oldest == nil {
			e = q.ofSmall()
		} else {
			e = q.ofMain()
		}
		if e != nil {
			return e
		}
	}
}

// ofSmall returns the oldest entry of the small queue, or nil if that was wanted and
// is in main now.
func (q *queues[V]) ofSmall() *entry[V] {
	e := q.small.oldest
	if e.hits.Load() == 0 {
		q.ghosts.add(e.key)
		return e
	}
	e.hits.Store(0)
	q.small.remove(e)
	q.main.push(e)
	return nil
}

// ofMain returns the oldest entry of main, or nil if that was wanted and is the newest
// now.
func (q *queues[V]) ofMain() *entry[V] {
	e := q.main.oldest
	hits := e.hits.Load()
	if hits == 0 {
		return e
	}
	e.hits.Store(hits - 1)
	q.main.remove(e)
	q.main.push(e)
	return nil
}

// queue is first in, first out, but that any entry can be removed.
type queue[V any] struct {
	newest, oldest *entry[V]
	entries        int
	bytes          int64
}

func (q *queue[V]) push(e *entry[V]) {
	e.queue, e.older, e.newer = q, q.newest, nil
	if q.newest != nil {
		q.newest.newer = e
	} else {
		q.oldest = e
	}
	q.newest = e
	q.entries++
	q.bytes += e.size
}

func (q *queue[V]) remove(e *entry[V]) {
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		q.oldest = e.newer
	}
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		q.newest = e.older
	}
	q.entries--
	q.bytes -= e.size
}

// resize changes the size of e, which keeps its place.
func (q *queue[V]) resize(e *entry[V], size int64) {
	q.bytes += size - e.size
	e.size = size
}

// ghosts are hashes of the keys that were evicted from the small queue last. None is
// added twice: while there is a ghost of a key, that enters main only. Keys that share a
// hash cost no more than a value in the wrong queue.
type ghosts struct {
	seed maphash.Seed
	// order has the hashes, the oldest first, and known the same.
	order []uint64
	known map[uint64]struct{}
}

func newGhosts() ghosts { return ghosts{seed: maphash.MakeSeed(), known: map[uint64]struct{}{}} }

func (g *ghosts) has(key string) bool {
	_, found := g.known[maphash.String(g.seed, key)]
	return found
}

func (g *ghosts) add(key string) {
	hash := maphash.String(g.seed, key)
	g.order = append(g.order, hash)
	g.known[hash] = struct{}{}
}

// trim forgets the oldest that are more than limit.
func (g *ghosts) trim(limit int) {
	for len(g.order) > limit {
		delete(g.known, g.order[0])
		g.order = g.order[1:]
	}
}
