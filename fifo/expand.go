package fifo

import (
	"errors"
	"slices"

	"k8s.io/client-go/tools/cache"
)

// expansion turns one queued item into batches.
type expansion interface {
	// next returns the next batch and whether there will be another. Its effort
	// is bounded: it looks at no more than limit objects.
	next(known KnownObjects, limit int) (batch Batch, more bool, err error)
	// size is how many objects are waiting in it.
	size() int
}

// resyncExpansion yields a Sync delta for each object that is still there when
// its turn comes.
type resyncExpansion struct {
	started bool
	keys    []string
}

func (e *resyncExpansion) next(known KnownObjects, limit int) (Batch, bool, error) {
	if !e.started {
		e.started, e.keys = true, known.ListKeys()
	}
	var batch Batch
	for _, key := range takeUpTo(&e.keys, limit) {
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

func (e *resyncExpansion) size() int { return 0 }

// listExpansion reconciles a list with the known objects: first the deletes of
// what is known and not listed, then what is listed and differs.
type listExpansion struct {
	rv string
	// listed finds the delta of a key.
	listed map[string]int
	// deltas are what has not been compared yet. Those without a type were
	// removed again while the list was read.
	deltas  []Delta
	started bool
	// gone holds the keys to delete, ordered.
	gone []string
}

func (e *listExpansion) next(known KnownObjects, limit int) (Batch, bool, error) {
	if !e.started {
		e.start(known.ListKeys())
	}
	deleted, err := tombstones(known, takeUpTo(&e.gone, limit))
	if err != nil {
		return Batch{}, false, err
	}
	changed, err := changed(known, takeUpTo(&e.deltas, limit-len(deleted)))
	if err != nil {
		return Batch{}, false, err
	}
	batch := Batch{Deltas: append(deleted, changed...), List: ListPartial}
	if len(e.gone)+len(e.deltas) > 0 {
		return batch, true, nil
	}
	batch.List, batch.RV = ListEnd, e.rv
	return batch, false, nil
}

func (e *listExpansion) size() int { return len(e.deltas) }

func (e *listExpansion) start(known []string) {
	e.started = true
	for _, key := range known {
		if _, ok := e.listed[key]; !ok {
			e.gone = append(e.gone, key)
		}
	}
	slices.Sort(e.gone)
	e.listed = nil // no longer needed, and large
}

// tombstones returns the deletes of those keys that are still known.
func tombstones(known KnownObjects, keys []string) ([]Delta, error) {
	var deltas []Delta
	for _, key := range keys {
		obj, exists, err := known.GetByKey(key)
		if err != nil {
			return nil, err
		}
		if exists {
			tombstone := cache.DeletedFinalStateUnknown{Key: key, Obj: obj}
			deltas = append(deltas, Delta{Type: cache.Deleted, Key: key, Object: tombstone})
		}
	}
	return deltas, nil
}

// changed returns those of the listed objects that differ from what is known, and
// clears taken, which may hold objects that were removed from the list again.
func changed(known KnownObjects, taken []Delta) ([]Delta, error) {
	// The array lives until the last of the list is done; its objects need not.
	defer clear(taken)
	if err := checkKept(known, taken); err != nil {
		return nil, err
	}
	listed := make([]Delta, 0, len(taken))
	keys, objs := make([]string, 0, len(taken)), make([]any, 0, len(taken))
	for _, d := range taken {
		if d.Type == cache.Replaced {
			listed, keys, objs = append(listed, d), append(keys, d.Key), append(objs, d.Object)
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	unchanged, err := known.Unchanged(keys, objs)
	if err != nil {
		return nil, err
	}
	differing := listed[:0]
	for i, d := range listed {
		if !unchanged[i] {
			differing = append(differing, d)
		}
	}
	return differing, nil
}

// errNotKept says that a list cannot be applied that has left objects out.
var errNotKept = errors.New("what a list has left out is not what is stored")

// checkKept returns an error unless what a list keeps is known as the list has it.
func checkKept(known KnownObjects, taken []Delta) error {
	var keys, uids, rvs []string
	for _, d := range taken {
		if v, ok := d.Object.(keptVersion); ok {
			keys, uids, rvs = append(keys, d.Key), append(uids, v.uid), append(rvs, v.rv)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	holds, err := known.Holds(keys, uids, rvs)
	if err == nil && !holds {
		err = errNotKept
	}
	return err
}

// takeUpTo removes up to limit elements from the front of s and returns them.
func takeUpTo[T any](s *[]T, limit int) []T {
	n := min(len(*s), limit)
	taken := (*s)[:n:n]
	*s = (*s)[n:]
	return taken
}
