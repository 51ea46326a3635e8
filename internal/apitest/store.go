package apitest

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// storage is etcd and the watch caches in front of it: tables of records under
// one counter of resourceVersions.
//
// What a real server has in two layers shows in one place only: table.seen lags
// behind rv, because a watch cache learns of a version from a change of its own
// resource or from a consistent read, not from changes of other resources.
type storage struct {
	window int

	mu struct {
		sync.RWMutex
		rv     uint64
		tables map[schema.GroupVersionResource]*table
		kinds  map[schema.GroupVersionKind]*table
	}
}

// table is one resource. Its fields are guarded by storage.mu; the record and
// change values they point to are immutable.
type table struct {
	res  *resource
	rows []*record // in order of key
	log  history
	// seen is the resourceVersion of the watch cache: what bookmarks carry and
	// what a list at resourceVersion=0 returns.
	seen uint64
	// changed is closed and replaced whenever a watch may have something to do.
	changed chan struct{}
	// generation changes when the watch cache starts anew, which ends every
	// watch of the generations before.
	generation int
}

func newStorage(window int) *storage {
	s := &storage{window: window}
	s.mu.rv = 1 // etcd's first revision
	s.mu.tables = map[schema.GroupVersionResource]*table{}
	s.mu.kinds = map[schema.GroupVersionKind]*table{}
	for _, r := range builtinResources() {
		s.add(r)
	}
	return s
}

// add begins to serve a resource. Its watches can start at the current version.
func (s *storage) add(r *resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &table{
		res:     r,
		log:     history{limit: s.window, oldest: s.mu.rv},
		seen:    s.mu.rv,
		changed: make(chan struct{}),
	}
	s.mu.tables[r.gvr] = t
	s.mu.kinds[r.gvk] = t
}

func (s *storage) table(gvr schema.GroupVersionResource) (*table, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t, ok := s.mu.tables[gvr]
	return t, ok
}

// tableOfKind finds a table by the kind of its objects.
func (s *storage) tableOfKind(gvk schema.GroupVersionKind) (*table, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t, ok := s.mu.kinds[gvk]
	return t, ok
}

// resources returns what is served, ordered by group, version and name.
func (s *storage) resources() []*resource {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]*resource, 0, len(s.mu.tables))
	for _, t := range s.mu.tables {
		all = append(all, t.res)
	}
	slices.SortFunc(all, func(a, b *resource) int { return strings.Compare(a.gvr.String(), b.gvr.String()) })
	return all
}

func (s *storage) revision() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.rv
}

// revise decides the next state of one object. It gets the current record, nil
// if there is none, and returns the object to store, or nil to delete it. It
// runs under the storage's lock.
type revise func(cur *record) (runtime.Object, error)

// write changes one object and returns its record afterwards, or the deleted
// one at the version of its deletion. A write that changes nothing takes no
// resourceVersion and makes no event, as in a real server.
func (s *storage) write(t *table, key string, fn revise) (*record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, cur := t.findLocked(key)
	obj, err := fn(cur)
	if err != nil {
		return nil, err
	}
	if obj == nil {
		return s.deleteLocked(t, i, cur)
	}
	if unchanged, err := sameContent(cur, obj); err != nil || unchanged {
		return cur, err
	}
	next, err := newRecord(t.res, obj, s.mu.rv+1)
	if err != nil {
		return nil, err
	}
	if cur != nil {
		t.rows[i] = next
	} else {
		t.rows = slices.Insert(t.rows, i, next)
	}
	s.commitLocked(t, &change{cur: next, prev: cur})
	return next, nil
}

func (s *storage) deleteLocked(t *table, i int, cur *record) (*record, error) {
	if cur == nil {
		return nil, nil
	}
	gone := &change{prev: cur}
	t.rows = slices.Delete(t.rows, i, i+1)
	s.commitLocked(t, gone)
	return gone.departed()
}

// commitLocked gives c the next resourceVersion and shows it to watches.
func (s *storage) commitLocked(t *table, c *change) {
	s.mu.rv++
	c.rv = s.mu.rv
	t.seen = c.rv
	t.log.add(c)
	t.wakeLocked()
}

func (t *table) wakeLocked() {
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *table) findLocked(key string) (int, *record) {
	i := sort.Search(len(t.rows), func(i int) bool { return t.rows[i].key >= key })
	if i < len(t.rows) && t.rows[i].key == key {
		return i, t.rows[i]
	}
	return i, nil
}

// sameContent reports whether storing obj over cur would change nothing but the
// resourceVersion.
func sameContent(cur *record, obj runtime.Object) (bool, error) {
	if cur == nil {
		return false, nil
	}
	same, err := newRecord(cur.res, obj, cur.rv)
	if err != nil {
		return false, err
	}
	return string(same.body) == string(cur.body), nil
}

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
}

// canStart returns an Expired error when the changes above rv are not all there
// for a new watch.
func (s *storage) canStart(t *table, rv uint64) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if rv < t.log.oldest {
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", rv, t.log.oldest))
	}
	return nil
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
	changes, ok := t.log.since(rv)
	if !ok || generation != t.generation {
		return window{}, false
	}
	return window{changes: changes, seen: t.seen, changed: t.changed}, true
}

// forget makes every version before the current one too old for watches and
// exact lists. Watches that have seen everything go on.
func (s *storage) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.mu.tables {
		t.log.forget(s.mu.rv)
		t.seen = s.mu.rv
		t.wakeLocked()
	}
}

// endWatches ends every watch in the way a watch cache does that starts anew.
func (s *storage) endWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.mu.tables {
		t.generation++
		t.wakeLocked()
	}
}

func (s *storage) snapshot() *Snapshot {
	s.mu.RLock()
	defer s.mu.RUnlock()
	snap := &Snapshot{rv: s.mu.rv, rows: map[schema.GroupVersionResource][]*record{}}
	for gvr, t := range s.mu.tables {
		snap.rows[gvr] = slices.Clone(t.rows)
	}
	return snap
}

func (s *storage) restore(snap *Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.rv = snap.rv
	rows := maps.Clone(snap.rows)
	for gvr, t := range s.mu.tables {
		t.rows = slices.Clone(rows[gvr])
		t.log.forget(snap.rv)
		t.seen = snap.rv
		t.generation++
		t.wakeLocked()
	}
}
