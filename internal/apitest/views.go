package apitest

import (
	"fmt"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// get returns the current record of key, or nil.
func (s *storage) get(t *table, key string) *record {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, cur := t.findLocked(key)
	return cur
}

// latest returns all rows, at least as new as everything written before the
// call, and their version. It moves the watch cache, as a consistent read does.
func (s *storage) latest(t *table) ([]*record, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.seen = s.mu.rv
	return slices.Clone(t.rows), t.seen
}

// cached returns all rows at the version of the watch cache.
func (s *storage) cached(t *table) ([]*record, uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(t.rows), t.seen
}

// peek returns all rows and the current version without any effect.
func (s *storage) peek(t *table) ([]*record, string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(t.rows), strconv.FormatUint(s.mu.rv, 10)
}

// reach moves the watch cache to rv, unless that is in the future, and returns
// its version and a channel that is closed when it changes.
func (s *storage) reach(t *table, rv uint64) (uint64, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.seen < rv {
		t.seen = s.mu.rv
	}
	return t.seen, t.changed
}

// at returns the rows as they were at rv, which must not be in the future.
func (s *storage) at(t *table, rv uint64) ([]*record, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	rows, ok := t.log.rewind(t.rows, rv)
	if !ok {
		return nil, apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	}
	return slices.Clone(rows), nil
}

// window is what a watch sees when it looks at its table.
type window struct {
	changes []*change
	// seen is the version for a bookmark; changes reach up to it.
	seen    uint64
	changed <-chan struct{}
	// end is what a watch that has to end says first, if anything.
	end error
}

// canStart returns the version of the newest change, or an Expired error when
// the changes above rv are not all there for a new watch.
func (s *storage) canStart(t *table, rv uint64) (newest uint64, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if rv < t.log.oldest {
		return 0, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", rv, t.log.oldest))
	}
	return t.log.newest(), nil
}

// generation identifies the present watch cache. A watch reads it before
// anything else.
func (s *storage) generation(t *table) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return t.generation
}

// since returns the changes above rv, or false when the watch of the given
// generation has to end because they are lost or the cache is a new one.
func (s *storage) since(t *table, generation int, rv uint64) (window, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if generation != t.generation {
		return window{end: t.end}, false
	}
	changes, ok := t.log.since(rv)
	if !ok {
		return window{}, false
	}
	return window{changes: changes, seen: t.seen, changed: t.changed}, true
}
