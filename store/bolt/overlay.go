package bolt

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/warmcache/warmcache/store"
)

// treeDegree of the overlays' trees. Each Apply copies the nodes on the path to
// what it changes, so that small nodes are cheaper than the customary large
// ones.
const treeDegree = 16

// entryOverhead is what an entry is charged beyond its key and value, in bytes.
const entryOverhead = 64

// entry is one change: a value to be stored, or nil for a key to be deleted.
// The value of an index entry is not nil and empty.
type entry struct{ key, value []byte }

type tree = btree.BTree[entry]

func newTree() *tree {
	return btree.New(treeDegree, func(a, b entry) bool { return bytes.Compare(a.key, b.key) < 0 })
}

// present is the value of an index entry that exists.
var present = []byte{}

// overlay is a set of changes to one collection that is not in the file, at
// most one per key: the last. A published overlay never changes; Apply clones
// it, which copies nothing but what it then touches.
type overlay struct {
	// cleared hides everything below: the changes that came before, and the
	// file.
	cleared bool
	// dropped hides these indices below.
	dropped map[string]bool
	// header is nil if it does not change, or was cleared and not set since.
	header *store.Header

	objects, departed *tree
	indices           map[string]*tree

	// usage is what the overlay holds.
	usage usage
	// departedBytes is the size of the departed records in it.
	departedBytes int64
	// deletions counts entries without a value; pruned is what the last prune
	// has left of them.
	deletions, pruned int
}

// usage is an amount of changes.
type usage struct {
	count int
	bytes int64
}

func (u usage) plus(v usage) usage  { return usage{u.count + v.count, u.bytes + v.bytes} }
func (u usage) minus(v usage) usage { return usage{u.count - v.count, u.bytes - v.bytes} }

func newOverlay() *overlay {
	return &overlay{objects: newTree(), departed: newTree()}
}

// empty says whether o changes nothing.
func (o *overlay) empty() bool { return o.usage.count == 0 }

func (o *overlay) clone() *overlay {
	next := *o
	next.objects = o.objects.Clone()
	next.departed = o.departed.Clone()
	next.dropped = maps.Clone(o.dropped)
	next.indices = maps.Clone(o.indices)
	for name, index := range next.indices {
		next.indices[name] = index.Clone()
	}
	return &next
}

// clear makes o hide everything below, and hold nothing. Hiding is one change,
// so that the overlay of an empty collection that is cleared is committed.
func (o *overlay) clear() {
	*o = *newOverlay()
	o.cleared = true
	o.usage.count = 1
}

// dropIndex forgets what o holds of an index and hides what is below.
func (o *overlay) dropIndex(name string) {
	if index := o.indices[name]; index != nil {
		index.Ascend(func(e entry) bool {
			o.uncharge(e)
			return true
		})
		delete(o.indices, name)
	}
	if o.dropped == nil {
		o.dropped = map[string]bool{}
	}
	if !o.dropped[name] {
		o.dropped[name] = true
		o.usage.count++
	}
}

func (o *overlay) setHeader(h *store.Header) {
	if o.header == nil {
		o.usage.count++
	}
	header := h.Clone()
	o.header = &header
}

func (o *overlay) setObject(key, value []byte) { o.set(o.objects, entry{key, value}) }

func (o *overlay) setIndex(name string, key, value []byte) {
	index := o.indices[name]
	if index == nil {
		if o.indices == nil {
			o.indices = map[string]*tree{}
		}
		index = newTree()
		o.indices[name] = index
	}
	o.set(index, entry{key, value})
}

// setDeparted also keeps the size of the departed records.
func (o *overlay) setDeparted(key, value []byte) {
	old := o.set(o.departed, entry{key, value})
	o.departedBytes += int64(len(value) - len(old.value))
}

// set stores e, keeps the usage right, and returns what it replaces.
func (o *overlay) set(t *tree, e entry) entry {
	old, replaced := t.ReplaceOrInsert(e)
	if replaced {
		o.uncharge(old)
	}
	o.usage.count++
	o.usage.bytes += e.size()
	if e.value == nil {
		o.deletions++
	}
	return old
}

// uncharge takes an entry that is replaced or dropped out of the usage.
func (o *overlay) uncharge(e entry) {
	o.usage.count--
	o.usage.bytes -= e.size()
	if e.value == nil {
		o.deletions--
	}
}

func (e entry) size() int64 { return int64(len(e.key)+len(e.value)) + entryOverhead }

// trimDeparted drops the oldest departed records until those that are left have
// at most seven eighths of limit, if they have more than limit, and returns how
// many it dropped. Without it, an overlay would grow for as long as the disk
// fails, because each object that goes leaves a record under a key of its own.
func (o *overlay) trimDeparted(limit int64) int {
	if o.departedBytes <= limit {
		return 0
	}
	var records []departedAge
	o.departed.Ascend(func(e entry) bool {
		if e.value != nil {
			records = append(records, ageOf(e.key, e.value))
		}
		return true
	})
	victims := oldest(records, o.departedBytes-limit/8*7)
	for _, v := range victims {
		o.setDeparted(v.key, nil)
	}
	return len(victims)
}

// departedAge is what matters for dropping a departed record.
type departedAge struct {
	key   []byte
	since time.Time
	size  int64
}

func ageOf(key, value []byte) departedAge {
	return departedAge{key, departedSince(value), int64(len(value))}
}

// oldest returns the oldest records that have at least the given size together.
func oldest(records []departedAge, size int64) []departedAge {
	slices.SortFunc(records, func(a, b departedAge) int {
		return cmp.Or(a.since.Compare(b.since), bytes.Compare(a.key, b.key))
	})
	n := 0
	for ; n < len(records) && size > 0; n++ {
		size -= records[n].size
	}
	return records[:n]
}
