package main

import (
	"maps"
	"slices"
	"sync"
)

// recorder is the event handler of the demo. It keeps what a controller would
// know if its handlers told it everything.
type recorder struct {
	mu struct {
		sync.Mutex
		known                  state
		deleted                []instance
		adds, updates, deletes int
		frozen                 bool
	}
}

func newRecorder() *recorder {
	r := &recorder{}
	r.mu.known = state{}
	return r
}

// OnAdd implements cache.ResourceEventHandler.
func (r *recorder) OnAdd(obj any, _ bool) { r.record(&r.mu.adds, obj, r.learnLocked) }

// OnUpdate implements cache.ResourceEventHandler.
func (r *recorder) OnUpdate(_, obj any) { r.record(&r.mu.updates, obj, r.learnLocked) }

// OnDelete implements cache.ResourceEventHandler.
func (r *recorder) OnDelete(obj any) { r.record(&r.mu.deletes, obj, r.forgetLocked) }

// record counts a call of the handler and notes what it says.
func (r *recorder) record(counter *int, obj any, noteLocked func(string, version)) {
	key, v := keyAndVersion(obj)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.frozen {
		return
	}
	*counter++
	noteLocked(key, v)
}

func (r *recorder) learnLocked(key string, v version) { r.mu.known[key] = v }

// forgetLocked notes the delete even of what the handler never heard of: a
// departed object of an earlier process counts by its UID.
func (r *recorder) forgetLocked(key string, v version) {
	r.mu.deleted = append(r.mu.deleted, instance{Key: key, UID: v.UID})
	delete(r.mu.known, key)
}

// freeze makes the recorder ignore what it is told from now on.
func (r *recorder) freeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.frozen = true
}

// knows reports whether what the handler was told adds up to these objects.
func (r *recorder) knows(objects []any) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(objects) != len(r.mu.known) {
		return false
	}
	for _, obj := range objects {
		if key, v := keyAndVersion(obj); r.mu.known[key] != v {
			return false
		}
	}
	return true
}

// fill copies what was recorded into a report.
func (r *recorder) fill(report *childReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	report.Known = maps.Clone(r.mu.known)
	report.Deleted = slices.Clone(r.mu.deleted)
	report.Adds, report.Updates, report.Deletes = r.mu.adds, r.mu.updates, r.mu.deletes
}
