package apitest

import (
	"slices"
	"sort"
	"strings"
	"sync"

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
	// end is what watches of the generation before are told, if anything.
	end error
	// schema counts changes of the schema.
	schema int
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

// aggregate lets another server serve a resource, and reports whether there is one.
func (s *storage) aggregate(gvr schema.GroupVersionResource, a Aggregated) bool {
	t, ok := s.table(gvr)
	if !ok {
		return false
	}
	res := *t.res // which servers share
	res.aggregated = a
	s.add(&res)
	return true
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
	written := 1
	if cur != nil {
		written += cur.written
	}
	next, err := newRecord(t.res, obj, s.mu.rv+1, written)
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

// deleteLocked removes row i, which is cur. Deleting nothing is nothing: callers
// that mind say so in their revise function.
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

// wakeLocked lets every watch look at the table.
func (t *table) wakeLocked() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// findLocked returns where key is or belongs, and its record or nil.
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
	same, err := newRecord(cur.res, obj, cur.rv, cur.written)
	if err != nil {
		return false, err
	}
	return string(same.body) == string(cur.body), nil
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

// endWatches ends every watch, with end as its last event if it is not nil.
func (s *storage) endWatches(end error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.mu.tables {
		t.endWatchesLocked(end)
	}
}

func (t *table) endWatchesLocked(end error) {
	t.generation++
	t.end = end
	t.wakeLocked()
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

// restore puts the state of snap back, with the counter. The history of the
// versions above it belongs to a timeline that is no more.
func (s *storage) restore(snap *Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.rv = snap.rv
	for gvr, t := range s.mu.tables {
		t.rows = slices.Clone(snap.rows[gvr])
		t.restartLocked(snap.rv)
	}
}

// restartLocked is the table after its watch cache has been filled anew at rv.
func (t *table) restartLocked(rv uint64) {
	t.log = history{limit: t.log.limit, oldest: rv}
	t.seen = rv
	t.endWatchesLocked(nil)
}
