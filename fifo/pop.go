package fifo

import (
	"errors"
	"fmt"
	"time"
)

// PopBatch waits until something is queued and passes the next batch to process.
// It returns ErrClosed after Close, and otherwise the error of process or of the
// known objects; either fails the queue, see Fail.
func (q *Queue) PopBatch(process func(Batch) error) error {
	batch, err := q.next()
	if errors.Is(err, ErrClosed) {
		return err
	}
	if err == nil {
		start := time.Now()
		err = process(batch)
		q.metrics.latency.Observe(time.Since(start).Seconds())
		if err == nil && (batch.List == ListEnd || batch.Reset) {
			q.lost = nil
		}
	}
	if err != nil {
		q.Fail(err)
	}
	return err
}

// next returns the next batch: of the list or resync that is being expanded, or
// else from the head of the queue.
func (q *Queue) next() (Batch, error) {
	for {
		batch, err := q.take()
		if err != nil || q.expansion == nil {
			return batch, err
		}
		batch, more, err := q.expansion.next(q.known, q.maxBatch)
		if !more {
			q.expansion = nil
		}
		if err != nil || len(batch.Deltas) > 0 || !more && batch.List != ListPartial {
			return batch, err
		}
		// Nothing in this part of a list has changed. Look again whether the
		// queue was closed; a list may be long.
	}
}

// take waits for the head of the queue. If that is to be expanded it becomes
// q.expansion, otherwise the result is a batch.
func (q *Queue) take() (Batch, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.expansion == nil && len(q.mu.items) == 0 && !q.mu.closed && !q.mu.woken {
		q.cond.Wait()
	}
	defer func() { q.metrics.queued.Set(float64(len(q.mu.items))) }()
	switch {
	case q.mu.closed:
		return Batch{}, ErrClosed
	case q.expansion != nil:
		return Batch{}, nil
	case len(q.mu.items) > 0 && q.mu.items[0].expansion != nil:
		q.expansion = q.popLocked().expansion
		return Batch{}, nil
	}
	// Not before, because an expansion may come to nothing.
	q.mu.woken = false
	switch {
	case len(q.mu.items) == 0:
		return Batch{}, nil
	case q.mu.items[0].reset:
		q.popLocked()
		return Batch{Reset: true}, nil
	}
	return q.popBatchLocked(), nil
}

// popBatchLocked takes deltas and bookmarks up to the next item that makes
// batches of its own, up to and including a mark, or until the batch is full.
func (q *Queue) popBatchLocked() Batch {
	batch := Batch{Deltas: make([]Delta, 0, min(len(q.mu.items), q.maxBatch))}
	bytes := int64(0)
	for len(q.mu.items) > 0 && !q.fills(len(batch.Deltas), bytes) && batch.CaughtUp == nil {
		if head := &q.mu.items[0]; head.expansion != nil || head.reset {
			break
		}
		it := q.popLocked()
		bytes += it.bytes
		if it.isDelta() {
			batch.Deltas = append(batch.Deltas, it.delta)
		}
		if it.rv != "" {
			batch.RV = it.rv
		}
		batch.CaughtUp = it.caughtUp
	}
	return batch
}

func (q *Queue) popLocked() item {
	it := q.mu.items[0]
	q.mu.items[0] = item{} // the array outlives the item; let the object go
	q.mu.items = q.mu.items[1:]
	if it.isDelta() && q.mu.last[it.delta.Key] == q.mu.popped {
		delete(q.mu.last, it.delta.Key)
	}
	if p, ok := it.expansion.(*part); ok {
		p.stream.begun = true
	}
	q.mu.popped++
	q.mu.waiting -= it.size()
	if q.mu.bytes -= it.bytes; !q.isFullLocked() {
		q.room.Broadcast()
	}
	return it
}

// Fail discards what is queued up to the next list, and what arrives until then,
// and announces err, unless a list or a Reset is queued already: a list then
// heals the store anyway, except after a LostError. Of a streamed list that has
// reached the consumer, the rest is discarded too. PopBatch calls Fail; the
// consumer does when it finds out between batches that the store is not what it
// should be.
func (q *Queue) Fail(err error) {
	err = q.orLoss(err)
	q.expansion = nil
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.mu.items) > 0 && !q.mu.items[0].reset && (q.lost != nil || !q.mu.items[0].isList()) {
		q.popLocked()
	}
	q.metrics.queued.Set(float64(len(q.mu.items)))
	underWay := q.mu.stream
	if underWay != nil && underWay.begun {
		underWay.err = fmt.Errorf("%w: %w", ErrAbandoned, err)
		underWay = nil
	}
	if len(q.mu.items) == 0 || underWay != nil { // which may still be aborted
		q.mu.failed = true
	}
	if len(q.mu.items) == 0 && !q.mu.closed {
		q.announceLocked(err)
	}
}

// orLoss returns err, or a LostError around it while the objects that an earlier
// one was about have not been listed yet.
func (q *Queue) orLoss(err error) error {
	var loss *LostError
	switch {
	case errors.As(err, &loss):
		q.lost = loss
	case q.lost != nil:
		return &LostError{RV: q.lost.RV, Err: err}
	}
	return err
}

// announceLocked lets Failed deliver err. An earlier error that has not been
// received says the same, unless this one says how to list.
func (q *Queue) announceLocked(err error) {
	if q.lost != nil && !q.lossWaitsLocked() {
		q.takeBackLocked()
	}
	select {
	case q.failures <- err:
		q.mu.loss = q.lost != nil
	default:
	}
}

// takeBackLocked takes back what Failed has to deliver.
func (q *Queue) takeBackLocked() {
	select {
	case <-q.failures: //nolint:errcheck // it says nothing any more
	default:
	}
}

// lossWaitsLocked reports whether Failed has a LostError to deliver. A list that
// is under way then was not made because of it.
func (q *Queue) lossWaitsLocked() bool { return q.mu.loss && len(q.failures) > 0 }
