package indexer

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"

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
	// stored is false for the index of namespaces, which the order of the keys makes
	// needless.
	stored bool
	// ready is false, in disk residency, while the index is being written. It changes
	// under Indexer.write.
	ready atomic.Bool
}

// isNamespaceIndex says whether fn is the function that client-go's generated code
// indexes every type by.
func isNamespaceIndex(fn cache.IndexFunc) bool {
	return reflect.ValueOf(fn).Pointer() == reflect.ValueOf(cache.MetaNamespaceIndexFunc).Pointer()
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
		index := &index{name: name, fn: fn, fingerprint: fingerprint, stored: !isNamespaceIndex(fn)}
		index.ready.Store(true)
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

// showIndicesLocked is to be called once the indices can be asked.
func (x *Indexer) showIndicesLocked() {
	indices := maps.Clone(x.write.indices)
	x.indices.Store(&indices)
}

// indexNamed returns an index that can be asked, or nil.
func (x *Indexer) indexNamed(name string) *index { return (*x.indices.Load())[name] }

// GetIndexers implements cache.Indexer. The functions are those that were added;
// the map is the caller's. Like every read it waits for no disk.
func (x *Indexer) GetIndexers() cache.Indexers {
	indices := *x.indices.Load()
	indexers := make(cache.Indexers, len(indices))
	for name, index := range indices {
		indexers[name] = index.fn
	}
	return indexers
}

// AddIndexers implements cache.Indexer. Objects already present are indexed, in
// memory and in the file. It fails, changing nothing, if a name is taken or has no
// function. It may be called while Load is running, which then indexes what it
// loads.
//
// In disk residency it returns once the index is written: it reads all objects, in
// parts, while other calls and changes go on. The error wraps store.ErrClosed if that
// is not possible any more.
func (x *Indexer) AddIndexers(newIndexers cache.Indexers) error {
	d, outdated, err := x.addIndexers(newIndexers)
	if err != nil || len(outdated) == 0 {
		return err
	}
	return x.build(context.Background(), d, outdated)
}

// addIndexers returns the indices that have to be written in disk residency.
func (x *Indexer) addIndexers(newIndexers cache.Indexers) (*disk, []string, error) {
	x.write.Lock()
	defer x.write.Unlock()
	if err := x.checkIndexersLocked(newIndexers); err != nil {
		return nil, nil, err
	}
	if err := x.objects.AddIndexers(x.registerLocked(newIndexers)); err != nil {
		return nil, nil, err
	}
	d := x.disk.Load()
	var outdated []string
	for name := range newIndexers {
		if index := x.write.indices[name]; d != nil && x.isOutdatedLocked(index) {
			index.ready.Store(false)
			outdated = append(outdated, name)
		}
	}
	x.showIndicesLocked()
	switch {
	case !x.write.loaded || len(newIndexers) == 0:
		return d, nil, nil // Load writes them
	case d == nil:
		x.rebuildLocked(slices.Sorted(maps.Keys(newIndexers)))
		return nil, nil, nil
	}
	outdated, err := x.dropIndicesLocked(d, outdated)
	return d, outdated, err
}

func (x *Indexer) checkIndexersLocked(newIndexers cache.Indexers) error {
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
	return nil
}

// changesLocked returns how the index entries of one object change. Either
// object may be nil.
func (x *Indexer) changesLocked(old, obj any) []store.IndexChange {
	var changes []store.IndexChange
	for name, index := range x.write.indices {
		if !index.stored {
			continue
		}
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
	if outdated := x.outdatedLocked(); len(outdated) > 0 {
		x.rebuildLocked(outdated)
	}
}

// outdatedLocked returns the names of the indices that are stored and should not be,
// or the other way round, or whose function has changed.
func (x *Indexer) outdatedLocked() []string {
	outdated := map[string]bool{}
	for name, index := range x.write.indices {
		if x.isOutdatedLocked(index) {
			outdated[name] = true
		}
	}
	for name := range x.write.header.Indices {
		if index := x.write.indices[name]; index == nil || !index.stored {
			outdated[name] = true
		}
	}
	return slices.Sorted(maps.Keys(outdated))
}

// isOutdatedLocked says whether the entries of an index are to be written anew. No entry
// of a foreign record can be removed with its object, which cannot be read.
func (x *Indexer) isOutdatedLocked(i *index) bool {
	return i.stored && (x.write.foreignLocked() || x.write.header.Indices[i.name] != i.fingerprint)
}

// builtLocked notes that these indices are written.
func (x *Indexer) builtLocked(names []string) {
	for _, name := range names {
		if index := x.write.indices[name]; index != nil {
			index.ready.Store(true)
		}
	}
}

// entriesLocked returns the entries of one object in the named indices.
func (x *Indexer) entriesLocked(names []string, obj any) []store.IndexChange {
	var changes []store.IndexChange
	for _, name := range names {
		if index := x.write.indices[name]; index != nil && index.stored {
			if values := x.valuesOf(index, obj); len(values) > 0 {
				changes = append(changes, store.IndexChange{Name: name, Add: values})
			}
		}
	}
	return changes
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
		if changes := x.entriesLocked(names, obj); len(changes) > 0 {
			batch.Index = append(batch.Index, store.IndexOp{Key: key, Changes: changes})
		}
	}
	header := x.write.header
	header.Indices = x.vouchedLocked()
	batch.Header = &header
	_ = x.persistLocked(batch)
}

// fingerprintsLocked returns those of the stored indices, for the header; for one that
// is being written, none: it is named, so that somebody drops its entries should this
// process end before.
func (x *Indexer) fingerprintsLocked() map[string]string {
	fingerprints := make(map[string]string, len(x.write.indices))
	for name, index := range x.write.indices {
		switch {
		case !index.stored:
		case index.ready.Load():
			fingerprints[name] = index.fingerprint
		default:
			fingerprints[name] = ""
		}
	}
	return fingerprints
}

// vouchedLocked is fingerprintsLocked, without any fingerprint as long as there are
// foreign records, which have no entries.
func (x *Indexer) vouchedLocked() map[string]string {
	fingerprints := x.fingerprintsLocked()
	if x.write.foreignLocked() {
		for name := range fingerprints {
			fingerprints[name] = ""
		}
	}
	return fingerprints
}
