package indexer

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/internal/funcid"
	"github.com/warmcache/warmcache/store"
)

// index is one secondary index.
type index struct {
	name string
	// original is the user's function; safe never fails.
	original cache.IndexFunc
	safe     func(obj any) []string
	// fingerprint identifies the function across restarts.
	fingerprint string
}

func (x *Indexer) newIndex(name string, fn cache.IndexFunc, version string) *index {
	fingerprint := "version " + version
	if version == "" {
		fingerprint, _ = funcid.Of(fn)
	}
	return &index{name: name, original: fn, safe: x.guard(name, fn), fingerprint: fingerprint}
}

// guard makes an index function total. The object stays out of the index when
// the function fails, instead of taking the process with it: with durable data
// that would be a crash loop. The log names the index and the error, never
// indexed values.
func (x *Indexer) guard(name string, fn cache.IndexFunc) func(any) []string {
	return func(obj any) (values []string) {
		err := func() (err error) {
			defer func() {
				if r := recover(); r != nil {
					err = fmt.Errorf("panic of type %T", r)
				}
			}()
			values, err = fn(obj)
			return err
		}()
		if err == nil {
			return values
		}
		if n := x.indexErrors.Add(1); n == 1 || n%1000 == 0 {
			x.logger.Error(err, "Index function failed; objects stay out of this index", "index", name, "failures", n)
		}
		return nil
	}
}

// GetIndexers implements cache.Indexer. The functions are those that were added;
// the map is the caller's.
func (x *Indexer) GetIndexers() cache.Indexers {
	x.write.Lock()
	defer x.write.Unlock()
	indexers := make(cache.Indexers, len(x.write.indices))
	for name, index := range x.write.indices {
		indexers[name] = index.original
	}
	return indexers
}

// AddIndexers implements cache.Indexer. Objects already present are indexed. It
// fails, changing nothing, if a name is taken.
func (x *Indexer) AddIndexers(newIndexers cache.Indexers) error {
	x.write.Lock()
	defer x.write.Unlock()
	if err := x.addIndexersLocked(newIndexers); err != nil {
		return err
	}
	if x.write.loaded {
		x.persistLocked(x.rebuildLocked(slices.Sorted(maps.Keys(newIndexers))))
	}
	return nil
}

func (x *Indexer) addIndexersLocked(newIndexers cache.Indexers) error {
	guarded := make(cache.Indexers, len(newIndexers))
	added := make(map[string]*index, len(newIndexers))
	for name, fn := range newIndexers {
		index := x.newIndex(name, fn, x.write.versions[name])
		added[name] = index
		guarded[name] = func(obj any) ([]string, error) { return index.safe(obj), nil }
	}
	if err := x.objects.AddIndexers(guarded); err != nil {
		return err
	}
	maps.Copy(x.write.indices, added)
	return nil
}

// changesLocked returns how the index entries of one object change. Either
// object may be nil.
func (x *Indexer) changesLocked(old, obj any) []store.IndexChange {
	var changes []store.IndexChange
	for name, index := range x.write.indices {
		var before, after []string
		if old != nil {
			before = index.safe(old)
		}
		if obj != nil {
			after = index.safe(obj)
		}
		change := store.IndexChange{Name: name, Remove: without(before, after), Add: without(after, before)}
		if len(change.Remove) > 0 || len(change.Add) > 0 {
			changes = append(changes, change)
		}
	}
	return changes
}

// without returns the values of a that are not in b. Indices have few values per
// object.
func without(a, b []string) []string {
	var rest []string
	for _, value := range a {
		if !slices.Contains(b, value) {
			rest = append(rest, value)
		}
	}
	return rest
}

// rebuildLocked returns a batch that writes the named indices anew from the
// objects in memory, and the header that vouches for them.
func (x *Indexer) rebuildLocked(names []string) store.Batch {
	batch := store.Batch{DropIndices: names}
	for _, key := range x.objects.ListKeys() {
		obj, _ := x.objects.Get(key)
		var changes []store.IndexChange
		for _, name := range names {
			if index := x.write.indices[name]; index != nil {
				if values := index.safe(obj); len(values) > 0 {
					changes = append(changes, store.IndexChange{Name: name, Add: values})
				}
			}
		}
		if len(changes) > 0 {
			batch.Index = append(batch.Index, store.IndexOp{Key: key, Changes: changes})
		}
	}
	header := x.write.header
	header.Indices = x.fingerprintsLocked()
	x.write.header = header
	batch.Header = &header
	return batch
}

func (x *Indexer) fingerprintsLocked() map[string]string {
	fingerprints := make(map[string]string, len(x.write.indices))
	for name, index := range x.write.indices {
		fingerprints[name] = index.fingerprint
	}
	return fingerprints
}
