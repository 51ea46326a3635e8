package fifo

import (
	"k8s.io/client-go/tools/cache"
)

// Replacement is one list of the whole collection while it arrives, in pages or
// as a stream. It is not safe for concurrent use, and a queue takes one at a time.
// It must end in Commit or Abort and not be used afterwards.
type Replacement interface {
	// Add adds an object to the list after transforming it. An object added
	// before under the same key is replaced: a streamed list may contain updates.
	// Errors of the object, which are those of Queue.Add, leave the list as it was.
	// If Options.Stream is set, Add may wait for room, and returns an error that
	// wraps ErrAbandoned or ErrClosed when the rest of the list is not wanted.
	Add(obj any) error
	// Remove takes an object out of the list again, because a streamed list
	// reported its deletion. The transform is called, because it may have changed
	// the name. Errors are those of Add.
	Remove(obj any) error
	// Keep adds the known object of a key to the list, as it is, without asking for
	// it. If that is not of the given UID and version when the consumer reaches it,
	// PopBatch fails. Errors are those of Add.
	Keep(key, uid, rv string) error
	// Commit queues the list, or the rest of it, as the state at resourceVersion
	// rv. It ends the discarding that a failure began, unless the consumer has
	// failed within this list. It never waits.
	Commit(rv string)
	// Abort gives up a list that did not arrive whole. What has been queued of it
	// stays, so that another list must follow. After Commit it does nothing.
	Abort()
}

// NewReplacement begins a list.
func (q *Queue) NewReplacement() Replacement {
	if q.stream {
		return &streamedList{queue: q, stream: &stream{}, positions: map[string]int{}}
	}
	return &collectedList{queue: q, listed: map[string]int{}}
}

// collectedList is a list that nothing is visible of before Commit.
type collectedList struct {
	queue  *Queue
	deltas []Delta
	// listed finds the delta of a key.
	listed map[string]int
}

// Add implements Replacement.
func (r *collectedList) Add(obj any) error {
	d, err := r.queue.newDelta(cache.Replaced, obj)
	if err != nil {
		return err
	}
	r.put(d)
	return nil
}

// Keep implements Replacement.
func (r *collectedList) Keep(key, uid, rv string) error {
	r.put(newKept(key, uid, rv))
	return nil
}

func (r *collectedList) put(d Delta) {
	if i, ok := r.listed[d.Key]; ok {
		r.deltas[i] = d
		return
	}
	r.listed[d.Key] = len(r.deltas)
	r.deltas = append(r.deltas, d)
}

// kept is the type of the delta of an object that a list has as it is known. It never
// leaves the queue.
const kept cache.DeltaType = "Kept"

// keptVersion is the object of such a delta.
type keptVersion struct{ uid, rv string }

func newKept(key, uid, rv string) Delta {
	return Delta{Type: kept, Key: key, Object: keptVersion{uid, rv}}
}

// Remove implements Replacement.
func (r *collectedList) Remove(obj any) error {
	d, err := r.queue.newDelta(cache.Deleted, obj)
	if err != nil {
		return err
	}
	if i, ok := r.listed[d.Key]; ok {
		r.deltas[i] = Delta{}
		delete(r.listed, d.Key)
	}
	return nil
}

// Commit implements Replacement.
func (r *collectedList) Commit(rv string) {
	q := r.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.listedLocked()
	q.appendLocked(item{expansion: &listExpansion{deltas: r.deltas, listed: r.listed, rv: rv}})
}

// Abort implements Replacement.
func (*collectedList) Abort() {}

// listedLocked is called when a list has arrived whole.
func (q *Queue) listedLocked() {
	q.mu.failed = false
	q.takeBackLocked()
	// What is queued for an object before the list is not what a later delta
	// repeats.
	clear(q.mu.last)
}
