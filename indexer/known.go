package indexer

import (
	"bytes"
	"errors"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/warmcache/warmcache/internal/parallel"
	"github.com/warmcache/warmcache/store"
)

// Known returns the view of the indexer that a list is reconciled against. Unlike
// the indexer itself it includes objects that are stored but not served.
func (x *Indexer) Known() *Known { return &Known{x} }

// Known implements fifo.KnownObjects.
type Known struct{ x *Indexer }

// Suspect says, until it is called with false, that objects may be served in another
// state than they are recorded in: somebody has modified one, which nobody must. A known
// object then counts as unchanged only if both are as the list has it, which costs another
// encoding for each that is in memory. It is safe for concurrent use.
func (x *Indexer) Suspect(suspect bool) { x.suspect.Store(suspect) }

// ListKeys returns the keys of all objects, served or not.
func (k *Known) ListKeys() []string {
	k.x.write.Lock()
	defer k.x.write.Unlock()
	keys, err := k.x.knownKeysLocked()
	if err != nil {
		// As for every reader, none of them can be read.
		k.x.log().Error(err, "Known objects cannot be read")
		return nil
	}
	return keys
}

// knownKeysLocked does not wait for what cannot be read, as ListKeys does.
func (x *Indexer) knownKeysLocked() (keys []string, err error) {
	d := x.disk.Load()
	if d == nil {
		return append(x.objects.ListKeys(), x.write.foreign.keys()...), nil
	}
	err = d.keysIn("", "", func(key string) bool {
		keys = append(keys, key)
		return true
	})
	return keys, err
}

// KeysIn calls fn for the key of every object, served or not, that comes after one key
// and not after another, in their order, until it returns false. An empty upTo has no
// end.
func (k *Known) KeysIn(after, upTo string, fn func(key string) bool) error {
	if d := k.x.disk.Load(); d != nil {
		return d.keysIn(after, upTo, fn)
	}
	keys := k.ListKeys()
	slices.Sort(keys)
	for _, key := range keys {
		if key > after && (upTo == "" || key <= upTo) && !fn(key) {
			break
		}
	}
	return nil
}

// GetByKey returns the served object, or nil and true for one that is not
// served. In memory residency the error is always nil.
func (k *Known) GetByKey(key string) (item any, exists bool, err error) {
	if d := k.x.disk.Load(); d != nil {
		return d.known(key)
	}
	if item, exists = k.x.objects.Get(key); exists {
		return item, true, nil
	}
	k.x.write.Lock()
	defer k.x.write.Unlock()
	_, exists = k.x.write.foreign.uid(key)
	return nil, exists, nil
}

// Unchanged reports of each object whether it equals what is recorded under its
// key, byte for byte once encoded. Comparing versions alone would miss what
// changes an object without touching it: a new default in its CRD, or a restored
// server that has reached the same version by another way. Other versions are a
// change in any case.
//
// It never fails: what cannot be compared counts as changed, and writing it heals
// the record or shows what is wrong with the file. An error would lead to a list
// that fails in the same place.
func (k *Known) Unchanged(keys []string, objs []any) ([]bool, error) {
	if d := k.x.disk.Load(); d != nil {
		return d.unchanged(keys, objs, k.x.suspect.Load()), nil
	}
	unchanged := make([]bool, len(keys))
	olds := make([]any, len(keys))
	for i, key := range keys {
		if old, exists := k.x.objects.Get(key); exists && versionOf(old) == versionOf(objs[i]) {
			olds[i] = old
		}
	}
	k.x.write.Lock()
	collection, codec, persistent := k.x.write.collection, k.x.write.codec, k.x.write.persistentLocked()
	k.x.write.Unlock()
	if !persistent {
		parallel.For(len(keys), func(i int) {
			// Semantic equality would be ten times slower, and right only where
			// this is wrong: to call equal objects changed does no harm.
			unchanged[i] = olds[i] != nil && reflect.DeepEqual(olds[i], objs[i])
		})
		return unchanged, nil
	}
	records := make([][]byte, len(keys))
	parallel.For(len(keys), func(i int) {
		if olds[i] != nil {
			// Without a record it counts as changed; applying it finds the error.
			records[i], _ = encode(codec, objs[i])
		}
	})
	if err := collection.View(func(tx store.Tx) error { return compare(tx, keys, records, unchanged) }); err != nil {
		clear(unchanged)
	}
	if k.x.suspect.Load() {
		parallel.For(len(keys), func(i int) { unchanged[i] = unchanged[i] && isRecordOf(codec, records[i], olds[i]) })
	}
	return unchanged, nil
}

// isRecordOf reports whether an object is as it was recorded.
func isRecordOf(codec Codec, record []byte, obj any) bool {
	now, err := encode(codec, obj)
	return err == nil && bytes.Equal(now, record)
}

// compare notes which records, of those that are not nil, are stored as they are.
func compare(tx store.Tx, keys []string, records [][]byte, unchanged []bool) error {
	for i, record := range records {
		if record == nil {
			continue
		}
		stored, err := tx.Get(keys[i])
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		unchanged[i] = err == nil && bytes.Equal(stored, record)
	}
	return nil
}

// versionOf returns the resourceVersion of an object, or "" if it has none.
func versionOf(obj any) string {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return accessor.GetResourceVersion()
}
