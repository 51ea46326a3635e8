package fifo

import (
	"k8s.io/client-go/tools/cache"
)

// Replacement collects one list of the whole collection while it arrives, in
// pages or as a stream. Nothing of it is visible before Commit; dropping it
// instead leaves no trace. It is not safe for concurrent use.
type Replacement struct {
	queue  *Queue
	deltas []Delta
	// listed finds the delta of a key.
	listed map[string]int
}

// NewReplacement begins a list.
func (q *Queue) NewReplacement() *Replacement {
	return &Replacement{queue: q, listed: map[string]int{}}
}

// Add adds an object to the list after transforming it. An object added before
// under the same key is replaced: a streamed list may contain updates. Errors
// are those of Queue.Add and leave the list as it was.
func (r *Replacement) Add(obj any) error {
	d, err := r.queue.newDelta(cache.Replaced, obj)
	if err != nil {
		return err
	}
	if i, ok := r.listed[d.Key]; ok {
		r.deltas[i] = d
		return nil
	}
	r.listed[d.Key] = len(r.deltas)
	r.deltas = append(r.deltas, d)
	return nil
}

// Remove takes an object out of the list again, because a streamed list reported
// its deletion. The transform is called, because it may have changed the name.
func (r *Replacement) Remove(obj any) error {
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

// Len returns the number of objects in the list.
func (r *Replacement) Len() int { return len(r.listed) }

// Commit queues the list as the state at resourceVersion rv. It ends the
// discarding that a failure began. The Replacement must not be used afterwards.
func (r *Replacement) Commit(rv string) {
	q := r.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.failed = false
	select {
	case <-q.failures: //nolint:errcheck // taken back
	default:
	}
	// What is queued for an object before the list is not what a later delta
	// repeats.
	clear(q.mu.last)
	q.appendLocked(item{expansion: &listExpansion{deltas: r.deltas, listed: r.listed, rv: rv}})
}
