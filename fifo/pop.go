package fifo

import (
	"k8s.io/client-go/tools/cache"
)

// PopBatch waits until something is queued and passes the next batch to process.
// It returns ErrClosed after Close, and otherwise the error of process or of the
// known objects; see Failed for what follows from one.
func (q *Queue) PopBatch(process func(Batch) error) error {
	if q.expansion == nil {
		batch, err := q.next()
		if err != nil {
			return err
		}
		if q.expansion == nil {
			return q.finish(process(batch))
		}
	}
	if q.isClosed() {
		return ErrClosed
	}
	batch, more, err := q.expansion.next(q.known)
	if !more {
		q.expansion = nil
	}
	if err == nil {
		err = process(batch)
	}
	return q.finish(err)
}

// next takes either a batch of deltas from the head of the queue or, by setting
// q.expansion, the one item at its head that has to be expanded.
func (q *Queue) next() (Batch, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.mu.items) == 0 {
		if q.mu.closed {
			return Batch{}, ErrClosed
		}
		q.cond.Wait()
	}
	switch head := q.mu.items[0]; {
	case head.list != nil:
		q.takeLocked()
		q.expansion = newListExpansion(head.list)
		return Batch{}, nil
	case head.resync:
		q.takeLocked()
		q.expansion = &resyncExpansion{}
		return Batch{}, nil
	}
	return q.takeBatchLocked(), nil
}

// takeBatchLocked takes deltas and bookmarks up to the next item that has to be
// expanded, up to and including a mark, or up to maxBatch.
func (q *Queue) takeBatchLocked() Batch {
	var batch Batch
	for len(q.mu.items) > 0 && len(batch.Deltas) < maxBatch && batch.CaughtUp == nil {
		if head := q.mu.items[0]; head.list != nil || head.resync {
			break
		}
		if q.mu.items[0].reset && len(batch.Deltas) > 0 {
			break
		}
		it := q.takeLocked()
		batch.Reset = batch.Reset || it.reset
		if it.delta.Key != "" {
			batch.Deltas = append(batch.Deltas, it.delta)
		}
		if it.rv != "" {
			batch.RV = it.rv
		}
		batch.CaughtUp = it.caughtUp
	}
	return batch
}

func (q *Queue) takeLocked() item {
	it := q.mu.items[0]
	q.mu.items[0] = item{} // the array outlives the item; let the object go
	q.mu.items = q.mu.items[1:]
	if it.delta.Key != "" && q.mu.last[it.delta.Key] == q.mu.popped {
		delete(q.mu.last, it.delta.Key)
	}
	q.mu.popped++
	return it
}

func (q *Queue) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.closed
}

// finish passes err on and, if there is one, fails the queue.
func (q *Queue) finish(err error) error {
	if err != nil {
		q.Fail(err)
	}
	return err
}

// Fail discards what is queued up to the next list and announces err, unless a
// list is queued already, which then heals the store. The consumer calls it when
// it finds out between batches that the store is not what it should be.
func (q *Queue) Fail(err error) {
	q.expansion = nil
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.mu.items) > 0 && q.mu.items[0].list == nil && !q.mu.items[0].reset {
		q.takeLocked()
	}
	if len(q.mu.items) > 0 || q.mu.closed {
		return
	}
	q.mu.failed = true
	select {
	case q.failures <- err:
	default:
	}
}

// expansion turns one queued item into batches.
type expansion interface {
	// next returns the next batch and whether there will be another.
	next(known KnownObjects) (batch Batch, more bool, err error)
}

// resyncExpansion yields a Sync delta for each object that is still there when
// its turn comes.
type resyncExpansion struct {
	started bool
	keys    []string
}

func (e *resyncExpansion) next(known KnownObjects) (Batch, bool, error) {
	if !e.started {
		e.started, e.keys = true, known.ListKeys()
	}
	var batch Batch
	for len(e.keys) > 0 && len(batch.Deltas) < maxBatch {
		key := e.keys[0]
		e.keys = e.keys[1:]
		obj, exists, err := known.GetByKey(key)
		if err != nil {
			return Batch{}, false, err
		}
		if exists && obj != nil {
			batch.Deltas = append(batch.Deltas, Delta{Type: cache.Sync, Key: key, Object: obj})
		}
	}
	return batch, len(e.keys) > 0, nil
}
