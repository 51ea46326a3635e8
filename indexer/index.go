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
	// fn is the user's function.
	fn cache.IndexFunc
	// fingerprint identifies the function across restarts.
	fingerprint string
}

// lookup wraps an object that indexed objects are compared with, so that the
// function given to client-go's store may fail for it: for an object that is
// stored it must not.
type lookup struct{ obj any }

// call calls the user's function and turns a panic, and a value that no store can
// hold, into an error. It names only the type of what was thrown, which may hold
// what is indexed.
func (i *index) call(obj any) (values []string, err error) {
	defer func() {
		if r := recover(); r != nil {
			values, err = nil, fmt.Errorf("function of index %q panicked with a %T", i.name, r)
		}
	}()
	values, err = i.fn(obj)
	for _, value := range values {
		if len(value) > store.MaxIndexValueLength {
			return nil, fmt.Errorf("a value of index %q has %d bytes, the limit is %d", i.name, len(value), store.MaxIndexValueLength)
		}
	}
	return values, err
}

// valuesOf never fails. The object stays out of the index when the function
// does, instead of taking the process with it: with durable data that would be a
// crash loop.
func (x *Indexer) valuesOf(i *index, obj any) []string {
	values, err := i.call(obj)
	if err == nil {
		return values
	}
	if n := x.indexErrors.Add(1); n == 1 || n%1000 == 0 {
		x.log().Error(err, "Index function failed; objects stay out of this index", "index", i.name, "failures", n)
	}
	return nil
}

// registerLocked adds indices and returns the functions that client-go's store
// calls for them.
func (x *Indexer) registerLocked(indexers cache.Indexers) cache.Indexers {
	guarded := make(cache.Indexers, len(indexers))
	for name, fn := range indexers {
		fingerprint := "version " + x.write.versions[name]
		if x.write.versions[name] == "" {
			fingerprint, _ = funcid.Of(fn)
		}
		index := &index{name: name, fn: fn, fingerprint: fingerprint}
		x.write.indices[name] = index
		guarded[name] = func(obj any) ([]string, error) {
			if l, ok := obj.(lookup); ok {
				return index.call(l.obj)
			}
			return x.valuesOf(index, obj), nil
		}
	}
	return guarded
}

// showIndexersLocked is to be called once the indices can be asked.
func (x *Indexer) showIndexersLocked() {
	indexers := make(cache.Indexers, len(x.write.indices))
	for name, index := range x.write.indices {
		indexers[name] = index.fn
	}
	x.indexers.Store(&indexers)
}

// GetIndexers implements cache.Indexer. The functions are those that were added;
// the map is the caller's. Like every read it waits for no disk.
func (x *Indexer) GetIndexers() cache.Indexers {
	return maps.Clone(*x.indexers.Load())
}

// AddIndexers implements cache.Indexer. Objects already present are indexed, in
// memory and in the file. It fails, changing nothing, if a name is taken or has no
// function. It may be called while Load is running, which then indexes what it
// loads.
func (x *Indexer) AddIndexers(newIndexers cache.Indexers) error {
	x.write.Lock()
	defer x.write.Unlock()
	for name, fn := range newIndexers {
		switch {
		case x.write.indices[name] != nil:
			return fmt.Errorf("indexer conflict: there is an index %q already", name)
		case fn == nil:
			return fmt.Errorf("index %q has no function", name)
		case name == "" || len(name) > store.MaxKeyLength:
			return fmt.Errorf("the name of an index has %d bytes, it must have 1 to %d", len(name), store.MaxKeyLength)
		}
	}
	if err := x.objects.AddIndexers(x.registerLocked(newIndexers)); err != nil {
		return err
	}
	x.showIndexersLocked()
	if x.write.loaded && len(newIndexers) > 0 {
		x.rebuildLocked(slices.Sorted(maps.Keys(newIndexers)))
	}
	return nil
}

// changesLocked returns how the index entries of one object change. Either
// object may be nil.
func (x *Indexer) changesLocked(old, obj any) []store.IndexChange {
	var changes []store.IndexChange
	for name, index := range x.write.indices {
		var before, after []string
		if old != nil {
			before = x.valuesOf(index, old)
		}
		if obj != nil {
			after = x.valuesOf(index, obj)
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

// reindexLocked brings the stored indices in line with the index functions of
// today. In memory they are computed anyway; in the file, those whose function
// changed are written anew and those that nobody maintains any more are dropped.
func (x *Indexer) reindexLocked() {
	current := x.fingerprintsLocked()
	// No entry of a foreign record can be removed with its object, which cannot
	// be read.
	foreign := x.write.foreignLocked()
	var changed []string
	for name, fingerprint := range current {
		if foreign || x.write.header.Indices[name] != fingerprint {
			changed = append(changed, name)
		}
	}
	for name := range x.write.header.Indices {
		if _, ok := current[name]; !ok {
			changed = append(changed, name)
		}
	}
	if len(changed) > 0 {
		slices.Sort(changed)
		x.rebuildLocked(changed)
	}
}

// rebuildLocked writes the named indices anew from the objects in memory, with
// the header that vouches for them. Foreign records have no entries: as long as
// there are any, no index is vouched for, not even to the program that wrote
// them and may come back.
func (x *Indexer) rebuildLocked(names []string) {
	if !x.write.persistentLocked() {
		return
	}
	if x.write.restoring {
		x.write.restoreAgain = true
		return
	}
	x.log().V(2).Info("Rewriting stored indices", "informer", x.write.collection.Identity(), "indices", names)
	batch := store.Batch{DropIndices: names}
	for _, key := range x.objects.ListKeys() {
		obj, _ := x.objects.Get(key)
		var changes []store.IndexChange
		for _, name := range names {
			if index := x.write.indices[name]; index != nil {
				if values := x.valuesOf(index, obj); len(values) > 0 {
					changes = append(changes, store.IndexChange{Name: name, Add: values})
				}
			}
		}
		if len(changes) > 0 {
			batch.Index = append(batch.Index, store.IndexOp{Key: key, Changes: changes})
		}
	}
	header := x.write.header
	header.Indices = nil
	if !x.write.foreignLocked() {
		header.Indices = x.fingerprintsLocked()
	}
	batch.Header = &header
	_ = x.persistLocked(batch)
}

func (x *Indexer) fingerprintsLocked() map[string]string {
	fingerprints := make(map[string]string, len(x.write.indices))
	for name, index := range x.write.indices {
		fingerprints[name] = index.fingerprint
	}
	return fingerprints
}
