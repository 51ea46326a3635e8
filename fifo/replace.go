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
	rv     string
}

// NewReplacement begins a list.
func (q *Queue) NewReplacement() *Replacement { return &Replacement{queue: q} }

// Add adds an object to the list after transforming it.
func (r *Replacement) Add(obj any) error {
	d, err := r.queue.newDelta(cache.Replaced, obj)
	if err != nil {
		return err
	}
	r.deltas = append(r.deltas, d)
	return nil
}

// Len returns the number of objects added.
func (r *Replacement) Len() int { return len(r.deltas) }

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
	listed map[string]struct{}
	// gone holds the keys to delete; nil until all of the list has been seen.
	gone []string
}

func newListExpansion(r *Replacement) *listExpansion {
	return &listExpansion{deltas: r.deltas, rv: r.rv, listed: make(map[string]struct{}, len(r.deltas))}
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
		e.listed[d.Key] = struct{}{}
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
