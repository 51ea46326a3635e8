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
	rv     string
}

// NewReplacement begins a list.
func (q *Queue) NewReplacement() *Replacement {
	return &Replacement{queue: q, listed: map[string]int{}}
}

// Add adds an object to the list after transforming it. An object added before
// under the same key is replaced: a streamed list may contain updates.
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
// its deletion.
func (r *Replacement) Remove(obj any) error {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return cache.KeyError{Obj: obj, Err: err}
	}
	if i, ok := r.listed[key]; ok {
		r.deltas[i] = Delta{}
		delete(r.listed, key)
	}
	return nil
}

// Len returns the number of objects in the list.
func (r *Replacement) Len() int { return len(r.listed) }

// Commit queues the list as the state at resourceVersion rv. It ends the
// discarding that a failure began. The Replacement must not be used afterwards.
func (r *Replacement) Commit(rv string) {
	q := r.queue
	r.rv = rv
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.failed = false
	select {
	case <-q.failures:
	default:
	}
	// What is queued for an object before the list is not what a later delta
	// repeats.
	clear(q.mu.last)
	q.appendLocked(item{list: r})
}

// Replace queues a complete list; see Replacement.
func (q *Queue) Replace(list []any, rv string) error {
	r := q.NewReplacement()
	for _, obj := range list {
		if err := r.Add(obj); err != nil {
			return err
		}
	}
	r.Commit(rv)
	return nil
}

// listExpansion reconciles a list with the known objects: first what is listed
// and differs, then the deletes of what is known and not listed.
type listExpansion struct {
	deltas []Delta
	rv     string
	listed map[string]int
	// gone holds the keys to delete; nil until all of the list has been seen.
	gone []string
}

func newListExpansion(r *Replacement) *listExpansion {
	return &listExpansion{deltas: r.deltas, rv: r.rv, listed: r.listed}
}

func (e *listExpansion) next(known KnownObjects) (Batch, bool, error) {
	batch := Batch{List: ListPartial}
	if err := e.changed(known, &batch); err != nil {
		return Batch{}, false, err
	}
	if len(e.deltas) == 0 && len(batch.Deltas) < maxBatch {
		if err := e.deleted(known, &batch); err != nil {
			return Batch{}, false, err
		}
	}
	if len(e.deltas) > 0 || e.gone == nil || len(e.gone) > 0 {
		return batch, true, nil
	}
	batch.List, batch.RV = ListEnd, e.rv
	return batch, false, nil
}

func (e *listExpansion) changed(known KnownObjects, batch *Batch) error {
	for len(e.deltas) > 0 && len(batch.Deltas) < maxBatch {
		d := e.deltas[0]
		e.deltas[0] = Delta{}
		e.deltas = e.deltas[1:]
		if d.Key == "" { // removed again while the list was read
			continue
		}
		unchanged, err := known.Unchanged(d.Key, d.Object)
		if err != nil {
			return err
		}
		if !unchanged {
			batch.Deltas = append(batch.Deltas, d)
		}
	}
	return nil
}

func (e *listExpansion) deleted(known KnownObjects, batch *Batch) error {
	if e.gone == nil {
		e.gone = []string{}
		for _, key := range known.ListKeys() {
			if _, ok := e.listed[key]; !ok {
				e.gone = append(e.gone, key)
			}
		}
	}
	for len(e.gone) > 0 && len(batch.Deltas) < maxBatch {
		key := e.gone[0]
		e.gone = e.gone[1:]
		obj, exists, err := known.GetByKey(key)
		if err != nil {
			return err
		}
		if exists {
			tombstone := cache.DeletedFinalStateUnknown{Key: key, Obj: obj}
			batch.Deltas = append(batch.Deltas, Delta{Type: cache.Deleted, Key: key, Object: tombstone})
		}
	}
	return nil
}
