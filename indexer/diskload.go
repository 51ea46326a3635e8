package indexer

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/warmcache/warmcache/internal/objectcache"
	"github.com/warmcache/warmcache/internal/parallel"
	"github.com/warmcache/warmcache/store"
)

// attachDiskLocked makes the collection what answers reads, at once: how many objects
// it has does not matter. Foreign ones are hidden until it is known which they are,
// and indices whose function has changed wait to be written.
func (x *Indexer) attachDiskLocked(totals store.Totals) {
	d := &disk{
		collection: x.write.collection,
		codec:      x.write.codec,
		log:        x.log,
		cache:      objectcache.New[runtime.Object](x.budget),
		health:     newHealth(),
		budget:     x.budget,
		indices:    x.indexNamed,
	}
	if x.write.foreignLocked() {
		x.write.foreign = newForeign()
		x.write.foreign.all = true
		d.foreign.Store(x.write.foreign)
	} else {
		x.count.Store(totals.Count)
	}
	for _, name := range x.outdatedLocked() {
		if i := x.write.indices[name]; i != nil && i.stored {
			i.ready.Store(false)
		}
	}
	x.disk.Store(d)
}

// loadDisk finishes what Attach has begun. It reads nothing but what this program
// cannot use as it is: foreign records, for their keys, and objects that an index is
// to be written for.
func (x *Indexer) loadDisk(ctx context.Context, d *disk, r *reader) error {
	var failure error
	if r.foreign != nil {
		failure = r.readKeys(ctx, d)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	outdated, err := x.beginDiskUse(d, r, failure)
	if err != nil || len(outdated) == 0 {
		return err
	}
	return x.build(ctx, d, outdated)
}

// beginDiskUse lets changes come, and returns the indices that are to be written. A
// failure to read leaves nothing to be loaded: the list that BeginAnew makes room for is
// all there will be.
func (x *Indexer) beginDiskUse(d *disk, r *reader, failure error) (outdated []string, err error) {
	x.write.Lock()
	defer x.write.Unlock()
	if x.write.loaded { // by Reset
		return nil, nil
	}
	x.write.loaded = true
	if failure != nil {
		return nil, failure
	}
	if r.foreign != nil {
		x.write.foreign = r.foreign
		d.foreign.Store(r.foreign)
	}
	x.beginUseLocked()
	return x.dropIndicesLocked(d, x.outdatedLocked())
}

// readKeys notes the keys and UIDs of all records as foreign.
func (r *reader) readKeys(ctx context.Context, d *disk) error {
	for from, more := "", true; more; {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		chunk, err := r.chunk(from)
		if err != nil {
			s := d.snapshot()
			return s.failed(err)
		}
		if err := r.take(chunk); err != nil {
			return err
		}
		if more = len(chunk) > 0; more {
			from = chunk[len(chunk)-1].key + "\x00"
		}
	}
	return nil
}

const (
	// buildChunk bounds, in records and bytes, what is read while changes wait.
	buildChunk      = 500
	buildChunkBytes = 2 << 20
	// buildProgress is how often the log says how far it is.
	buildProgress = 5 * time.Second
)

// build writes the named indices, which dropIndicesLocked has emptied, from the stored
// objects, in parts, between which changes go on. Who asks for one of them waits. What
// changes meanwhile is indexed as it is applied, so that the order of the two does not
// matter: an index entry depends on the object alone.
//
// An error of reading is not returned: the objects are listed again, and indexed then.
func (x *Indexer) build(ctx context.Context, d *disk, names []string) error {
	err := x.writeIndices(ctx, d, names)
	if errors.Is(err, ErrUnreadable) {
		return nil
	}
	return err
}

// dropIndicesLocked removes the entries of the named indices, for which the header
// vouches no longer, and returns those of them that have a function and are to be
// written. It must be called under the same lock under which their names were found
// out: nothing that another call of build has written may be removed.
func (x *Indexer) dropIndicesLocked(d *disk, names []string) (outdated []string, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	header := x.write.header
	header.Indices = x.vouchedLocked()
	err = x.writeDiskLocked(d, store.Batch{DropIndices: names, Header: &header})
	switch {
	case errors.Is(err, ErrUnreadable):
		return nil, nil // the list that follows writes all indices
	case err != nil:
		return nil, err
	}
	for _, name := range names {
		if i := x.write.indices[name]; i != nil && i.stored {
			outdated = append(outdated, name)
		}
	}
	return outdated, nil
}

// writeIndices writes the entries of the named indices, which have none.
func (x *Indexer) writeIndices(ctx context.Context, d *disk, names []string) (err error) {
	start, last := time.Now(), time.Now()
	total := x.Len()
	x.log().Info("Writing stored indices", "informer", d.collection.Identity(), "indices", names, "objects", total)
	done := 0
	for after, more := "", true; err == nil && more; {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var n int
		n, after, more, err = x.buildChunk(d, names, after)
		if done += n; time.Since(last) >= buildProgress {
			last = time.Now()
			x.log().Info("Writing stored indices", "informer", d.collection.Identity(), "indices", names, "done", done, "objects", total)
		}
	}
	if err != nil {
		return err
	}
	x.write.Lock()
	defer x.write.Unlock()
	x.builtLocked(names)
	header := x.write.header
	header.Indices = x.vouchedLocked()
	err = x.writeDiskLocked(d, store.Batch{Header: &header})
	d.health.poke()
	x.log().Info("Stored indices are written", "informer", d.collection.Identity(), "indices", names, "objects", done,
		"duration", time.Since(start).Round(time.Millisecond))
	return err
}

// buildChunk writes the entries of the objects that follow a key.
func (x *Indexer) buildChunk(d *disk, names []string, after string) (n int, last string, more bool, err error) {
	x.write.Lock()
	defer x.write.Unlock()
	g := gatherer{snapshot: d.snapshot()}
	seen := 0
	err = g.viewAny(func(tx store.Tx) error {
		return tx.Scan(following(after), func(key, value []byte) bool {
			seen, last = seen+1, string(key)
			return g.take(key, value) && seen < buildChunk && g.bytes < buildChunkBytes
		})
	})
	if err != nil || seen == 0 {
		return 0, "", false, err
	}
	objs, err := g.decodeAll(false)
	if err != nil {
		return 0, "", false, err
	}
	ops := make([]store.IndexOp, len(objs))
	parallel.For(len(objs), func(i int) {
		ops[i] = store.IndexOp{Key: g.found[i].key, Changes: x.entriesLocked(names, objs[i])}
	})
	return len(objs), last, true, x.writeDiskLocked(d, store.Batch{Index: ops})
}

// following returns the first key that comes after a key; the empty one for none.
func following(key string) string {
	if key == "" {
		return ""
	}
	return key + "\x00"
}

// writeDiskLocked hands a batch to the collection that changes no single object.
func (x *Indexer) writeDiskLocked(d *disk, batch store.Batch) error {
	if x.write.collection == nil { // detached
		return store.ErrClosed
	}
	if err := x.write.collection.Apply(batch); err != nil {
		return d.refused(err)
	}
	if batch.Header != nil {
		x.write.header = *batch.Header
	}
	return nil
}

// known returns a served object, or nil and true for one that is stored and not
// served.
func (d *disk) known(key string) (item any, exists bool, err error) {
	if _, isForeign := d.foreign.Load().uid(key); isForeign {
		return nil, true, nil
	}
	s := d.snapshot()
	obj, err := s.read(s.viewAny, key)
	if obj == nil {
		return nil, false, err
	}
	return obj, true, nil
}

// unchanged is Known.Unchanged in disk residency. Suspect is what Suspect was given.
func (d *disk) unchanged(keys []string, objs []any, suspect bool) []bool {
	unchanged := make([]bool, len(keys))
	records := make([][]byte, len(keys))
	s := d.snapshot()
	parallel.For(len(keys), func(i int) {
		if _, isForeign := s.foreign.uid(keys[i]); !isForeign {
			records[i], _ = encode(d.codec, objs[i])
		}
	})
	if err := s.viewAny(func(tx store.Tx) error { return compare(tx, keys, records, unchanged) }); err != nil {
		clear(unchanged)
	}
	if suspect {
		parallel.For(len(keys), func(i int) {
			cached, ok := d.cache.AsOf([]byte(keys[i]), s.write)
			unchanged[i] = unchanged[i] && (!ok || isRecordOf(d.codec, records[i], cached))
		})
	}
	return unchanged
}

// keysIn calls fn for the keys of all stored objects, served or not, that come after
// one and not after another, which may be empty. It holds no View while fn runs.
func (d *disk) keysIn(after, upTo string, fn func(key string) bool) error {
	const chunk = 4096
	for from := following(after); ; {
		var keys []string
		s := d.snapshot()
		err := s.viewAny(func(tx store.Tx) error {
			return tx.Scan(from, func(key, _ []byte) bool {
				k := string(key)
				if upTo != "" && k > upTo {
					return false
				}
				keys = append(keys, k)
				return len(keys) < chunk
			})
		})
		if err != nil {
			return err
		}
		for _, key := range keys {
			if !fn(key) {
				return nil
			}
		}
		if len(keys) < chunk {
			return nil
		}
		from = following(keys[len(keys)-1])
	}
}
