package indexer

import (
	"bytes"
	"errors"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/warmcache/warmcache/internal/objectcache"
	"github.com/warmcache/warmcache/store"
)

// updateDiskLocked is updateLocked in disk residency. There is nothing to go on with
// when the collection does not take u, so that its error is returned, and nothing
// has changed.
func (x *Indexer) updateDiskLocked(d *disk, u Update) ([]any, error) {
	if x.write.suspended != nil {
		return nil, x.write.suspended
	}
	olds, err := d.previous(u.Changes)
	if err != nil {
		return nil, err
	}
	batch, err := x.batchLocked(u, olds)
	if err != nil {
		return nil, err
	}
	if err := d.apply(batch, u); err != nil {
		return nil, err
	}
	x.write.header = *batch.Header
	x.countLocked(u.Changes, olds)
	if u.Complete {
		d.foreign.Store(nil)
		x.write.foreign = nil
		d.health.heal()
	}
	return olds, nil
}

// previous looks up the state before each change, where an earlier change of the
// same object counts.
func (d *disk) previous(changes []Change) ([]any, error) {
	olds := make([]any, len(changes))
	latest := make(map[string]int, len(changes))
	var missing []int
	g := gatherer{snapshot: d.snapshot()}
	for i, c := range changes {
		if before, again := latest[c.Key]; again {
			olds[i] = changes[before].Object
		} else if obj, ok := d.cache.AsOf([]byte(c.Key), g.write); ok {
			olds[i] = obj
		} else {
			missing = append(missing, i)
		}
		latest[c.Key] = i
	}
	if len(missing) == 0 {
		return olds, nil
	}
	err := g.viewAny(func(tx store.Tx) error {
		for _, i := range missing {
			value, err := tx.Get(changes[i].Key)
			switch {
			case errors.Is(err, store.ErrNotFound):
			case err != nil:
				return err
			case !g.foreign.hides(changes[i].Key, g.write):
				g.found = append(g.found, found{key: changes[i].Key, value: bytes.Clone(value)})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	objs, err := g.decodeAll(false)
	if err != nil {
		return nil, err
	}
	byKey := make(map[string]any, len(objs))
	for n, f := range g.found {
		byKey[f.key] = objs[n]
	}
	for _, i := range missing {
		olds[i] = byKey[changes[i].Key]
	}
	return olds, nil
}

// apply hands a batch to the collection and keeps the cache right. What a watch
// brings is kept, because handlers ask for it next; what a list brings only replaces
// what was kept, because it may be everything.
func (d *disk) apply(batch store.Batch, u Update) error {
	keys := make([]string, len(batch.Ops))
	written := make([]objectcache.Written[runtime.Object], len(batch.Ops))
	wanted := !u.Incomplete && !u.Complete
	for i, op := range batch.Ops {
		keys[i] = op.Key
		obj, exists := u.Changes[i].Object.(runtime.Object)
		written[i] = objectcache.Written[runtime.Object]{Key: op.Key, Value: obj, Gone: !exists, Wanted: wanted}
		if exists {
			written[i].Size = d.weigher.size(obj, len(op.Value))
		}
	}
	d.cache.Begin(keys)
	if err := d.collection.Apply(batch); err != nil {
		d.cache.End(keys, nil, 0)
		return d.refused(err)
	}
	write := d.writes.Load() + 1
	if f := d.foreign.Load(); f != nil {
		for _, key := range keys {
			f.replace(key, write)
		}
	}
	d.writes.Store(write)
	d.cache.End(keys, written, write)
	return nil
}

// beginAnew empties a collection in disk residency that cannot be read. The header
// says that it is incomplete, and nothing is served, until a list has filled it. It
// returns the version of what was lost.
func (x *Indexer) beginAnew(d *disk) (rv string, err error) {
	x.write.Lock()
	defer x.write.Unlock()
	rv = x.LastStoreSyncResourceVersion()
	if x.write.suspended != nil {
		return rv, x.write.suspended
	}
	header := x.write.header
	header.RV, header.Complete, header.Fingerprint = "", false, x.write.fingerprint
	// First, so that nobody reads the empty collection as if it were all there is.
	d.health.begin(store.ErrCorrupt)
	return rv, x.clearLocked(d, header)
}

// clearLocked removes everything from the collection. From here on all is written anew,
// with its entries in all indices: those that wait to be written are as good as written.
func (x *Indexer) clearLocked(d *disk, header store.Header) error {
	x.builtLocked(slices.Collect(maps.Keys(x.write.indices)))
	header.Indices = x.fingerprintsLocked()
	d.cache.BeginAll()
	if err := x.writeDiskLocked(d, store.Batch{Clear: true, Header: &header}); err != nil {
		d.cache.End(nil, nil, 0)
		return err
	}
	x.write.foreign = nil
	d.foreign.Store(nil)
	d.cache.End(nil, nil, d.writes.Add(1))
	x.count.Store(0)
	d.health.poke()
	return nil
}

// refused deals with an error of Collection.Apply.
func (d *disk) refused(err error) error {
	if errors.Is(err, store.ErrCorrupt) {
		s := d.snapshot()
		return s.failed(err)
	}
	return err
}
