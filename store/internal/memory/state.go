package memory

import (
	"cmp"
	"maps"
	"time"

	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/warmcache/warmcache/store"
)

// degree of the trees. Each Apply copies the nodes it changes, so that small
// nodes are cheaper than the customary large ones.
const degree = 16

// state is everything a collection holds. A published state never changes.
type state struct {
	header   *store.Header
	totals   store.Totals
	objects  *btree.BTree[object]
	indices  map[string]*btree.BTree[indexEntry]
	departed *btree.BTree[store.Departed]
}

type object struct {
	key   string
	value []byte
}

type indexEntry struct {
	value, key string
}

func lessObject(a, b object) bool { return a.key < b.key }

func lessEntry(a, b indexEntry) bool {
	return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.key, b.key)) < 0
}

func lessDeparted(a, b store.Departed) bool {
	return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.UID, b.UID)) < 0
}

func newState() *state {
	return &state{
		objects:  btree.New(degree, lessObject),
		indices:  map[string]*btree.BTree[indexEntry]{},
		departed: btree.New(degree, lessDeparted),
	}
}

// exists says whether anything was ever written, so that the collection shows
// up in Informers.
func (s *state) exists() bool {
	return s.header != nil || s.objects.Len() > 0 || len(s.indices) > 0 || s.departed.Len() > 0
}

// apply returns the state after b. The receiver stays as it is.
func (s *state) apply(b store.Batch, now time.Time) *state {
	next := s.clone()
	if b.Clear {
		next = newState()
	}
	for _, name := range b.DropIndices {
		delete(next.indices, name)
	}
	for i := range b.Ops {
		next.applyOp(&b.Ops[i], now)
	}
	for _, op := range b.Index {
		for _, change := range op.Changes {
			next.applyIndex(op.Key, change)
		}
	}
	for i := range b.Departed {
		next.applyDeparted(&b.Departed[i])
	}
	if b.Header != nil {
		header := b.Header.Clone()
		next.header = &header
	}
	return next
}

func (s *state) clone() *state {
	next := *s
	next.objects = s.objects.Clone()
	next.departed = s.departed.Clone()
	next.indices = maps.Clone(s.indices)
	for name, index := range next.indices {
		next.indices[name] = index.Clone()
	}
	return &next
}

// applyOp sees what earlier ops of the batch have done, as Depart requires.
func (s *state) applyOp(op *store.Op, now time.Time) {
	old, found := s.objects.Delete(object{key: op.Key})
	if found {
		s.totals.Remove(op.Key, old.value)
	}
	if found && op.Depart != "" {
		s.departed.ReplaceOrInsert(store.Departed{Key: op.Key, UID: op.Depart, Since: now, Value: old.value})
	}
	if op.Value != nil {
		s.objects.ReplaceOrInsert(object{key: op.Key, value: op.Value})
		s.totals.Add(op.Key, op.Value)
	}
	for _, change := range op.Index {
		s.applyIndex(op.Key, change)
	}
}

func (s *state) applyIndex(key string, change store.IndexChange) {
	index := s.indices[change.Name]
	if index == nil {
		index = btree.New(degree, lessEntry)
		s.indices[change.Name] = index
	}
	for _, value := range change.Remove {
		index.Delete(indexEntry{value, key})
	}
	for _, value := range change.Add {
		index.ReplaceOrInsert(indexEntry{value, key})
	}
}

func (s *state) applyDeparted(op *store.DepartedOp) {
	record, found := s.departed.Delete(store.Departed{Key: op.Key, UID: op.UID})
	if !found || op.Remove {
		return
	}
	record.Attempts, record.Age = op.Attempts, op.Age.Truncate(time.Second)
	s.departed.ReplaceOrInsert(record)
}
