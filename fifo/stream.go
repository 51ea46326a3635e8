package fifo

import (
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// stream is what the parts of a streamed list share.
type stream struct {
	// merge belongs to the consumer.
	merge merge
	// begun is set once the consumer has taken the first part, and err when no
	// other is wanted any more. Both are guarded by Queue.mu.
	begun bool
	err   error
}

// streamedList is a list that enters the queue in parts while it arrives.
type streamedList struct {
	queue  *Queue
	stream *stream
	// part is what has not been queued yet: what the list has of an object, or a
	// Deleted without an object. No key comes twice; positions finds it.
	part      []Delta
	positions map[string]int
	// bytes is the size of part. What was replaced in it counts, too.
	bytes int64
}

// Add implements Replacement.
func (r *streamedList) Add(obj any) error {
	d, err := r.queue.newDelta(cache.Replaced, obj)
	if err != nil {
		return err
	}
	return r.put(d)
}

// Keep implements Replacement.
func (r *streamedList) Keep(key, uid, rv string) error { return r.put(newKept(key, uid, rv)) }

// Remove implements Replacement.
func (r *streamedList) Remove(obj any) error {
	d, err := r.queue.newDelta(cache.Deleted, obj)
	if err != nil {
		return err
	}
	return r.put(Delta{Type: cache.Deleted, Key: d.Key})
}

func (r *streamedList) put(d Delta) error {
	size := r.queue.size(d)
	if i, ok := r.positions[d.Key]; ok {
		r.part[i] = d
		r.bytes += size
		return nil
	}
	if r.queue.fills(len(r.part), r.bytes) {
		if err := r.handOn(); err != nil {
			return err
		}
	}
	r.positions[d.Key] = len(r.part)
	r.part = append(r.part, d)
	r.bytes += size
	return nil
}

// handOn queues the part as soon as there is room for it.
func (r *streamedList) handOn() error {
	q := r.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.isFullLocked() && !q.mu.closed && r.abandonedLocked() == nil {
		q.room.Wait()
	}
	if q.mu.closed {
		return ErrClosed
	}
	if err := r.abandonedLocked(); err != nil {
		return err
	}
	r.appendPartLocked(false, "")
	q.mu.stream = r.stream
	return nil
}

// abandonedLocked returns why the list is not wanted any more, or nil.
func (r *streamedList) abandonedLocked() error {
	if r.stream.err == nil && r.queue.lossWaitsLocked() {
		return fmt.Errorf("%w: it was asked for before the objects were lost", ErrAbandoned)
	}
	return r.stream.err
}

func (r *streamedList) appendPartLocked(last bool, rv string) {
	q := r.queue
	first := q.mu.stream != r.stream
	q.appendLocked(item{expansion: &part{stream: r.stream, deltas: r.part, first: first, last: last, rv: rv}, bytes: r.bytes})
	r.part, r.bytes = nil, 0
	clear(r.positions)
}

// Commit implements Replacement.
func (r *streamedList) Commit(rv string) {
	q := r.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.abandonedLocked() == nil {
		q.listedLocked()
		r.appendPartLocked(true, rv)
	}
	q.mu.stream = nil
}

// Abort implements Replacement.
func (r *streamedList) Abort() {
	q := r.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.stream != r.stream {
		return // committed, or nothing was queued
	}
	q.mu.stream = nil
	r.stream.err = ErrAbandoned
}
