package apitest

import (
	"sort"
	"sync"
)

// change is one write to a collection.
type change struct {
	rv        uint64
	cur, prev *record // nil when there is no object after or before it

	once sync.Once
	gone *record
	err  error
}

// departed is the object as it was before the change, at the version of the
// change: what a DELETED event carries. It is made when first asked for,
// because most changes are never seen as deletions.
func (c *change) departed() (*record, error) {
	c.once.Do(func() { c.gone, c.err = c.prev.withRV(c.rv) })
	return c.gone, c.err
}

// history is the watch window of one collection: its latest changes in order
// of resourceVersion.
type history struct {
	changes []*change
	// oldest is the lowest resourceVersion that a watch can start from.
	oldest uint64
	// lost is the version of the newest change that is gone: a running watch
	// that has not come so far has to end. It is lower than oldest when the
	// cache started anew at a version that other resources had reached.
	lost  uint64
	limit int
}

func (h *history) add(c *change) {
	h.changes = append(h.changes, c)
	if len(h.changes) > h.limit {
		h.lost = h.changes[0].rv
		h.changes = h.changes[1:]
		h.oldest = c.rv - 1
		if len(h.changes) > 0 {
			h.oldest = h.changes[0].rv - 1
		}
	}
}

// newest is the version of the latest change that is not forgotten, or 0.
func (h *history) newest() uint64 {
	if n := len(h.changes); n > 0 {
		return h.changes[n-1].rv
	}
	return 0
}

// forget drops everything up to rv, as a watch cache does when it starts anew.
func (h *history) forget(rv uint64) {
	h.lost = max(h.lost, h.newest())
	h.changes, h.oldest = nil, rv
}

// since returns the changes above rv, or false if some of them are lost. The
// slice stays valid and unchanged: the log is only ever appended to.
func (h *history) since(rv uint64) ([]*change, bool) {
	if rv < h.lost {
		return nil, false
	}
	i := sort.Search(len(h.changes), func(i int) bool { return h.changes[i].rv > rv })
	return h.changes[i:len(h.changes):len(h.changes)], true
}

// rewind returns rows as they were at rv, or false if that is forgotten.
func (h *history) rewind(rows []*record, rv uint64) ([]*record, bool) {
	if rv < h.oldest {
		return nil, false
	}
	changes, _ := h.since(rv)
	then := map[string]*record{}
	for _, c := range changes {
		key := c.key()
		if _, seen := then[key]; !seen {
			then[key] = c.prev
		}
	}
	if len(then) == 0 {
		return rows, true
	}
	old := make([]*record, 0, len(rows))
	for _, row := range rows {
		if _, changed := then[row.key]; !changed {
			old = append(old, row)
		}
	}
	for _, row := range then {
		if row != nil {
			old = append(old, row)
		}
	}
	sort.Slice(old, func(i, j int) bool { return old[i].key < old[j].key })
	return old, true
}

func (c *change) key() string {
	if c.cur != nil {
		return c.cur.key
	}
	return c.prev.key
}
