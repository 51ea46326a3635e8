package indexer

import (
	"context"
	"fmt"

	"github.com/warmcache/warmcache/codec"
	"github.com/warmcache/warmcache/internal/parallel"
	"github.com/warmcache/warmcache/store"
)

const (
	// A chunk of records is copied out of one View and decoded outside of it:
	// while a read transaction is open, a file that changes can only grow.
	chunkRecords = 2048
	chunkBytes   = 8 << 20
)

// record is a copy of one stored record. The value is only good until the next
// chunk is read.
type record struct {
	key   string
	value []byte
}

// Load reads the objects of the attached collection into memory and verifies
// them: every checksum, and count and sum of all records against the header. It
// must be called once, before the first change; without a collection it does
// nothing. Reads, AddIndexers and Reset may come at any time meanwhile.
//
// After an error nothing is loaded. That of ctx leaves everything as it was. Any
// other means that the objects must be listed: if it wraps store.ErrCorrupt the
// collection is empty, in another file if the old one was damaged; otherwise it is
// left alone by this process.
func (x *Indexer) Load(ctx context.Context) error {
	x.write.Lock()
	r := reader{collection: x.write.collection, codec: x.write.codec}
	if x.write.foreignLocked() {
		r.foreign = newForeign()
	}
	loaded := x.write.loaded
	x.write.Unlock()
	if r.collection == nil || loaded {
		return nil
	}
	if d := x.disk.Load(); d != nil {
		return x.loadDisk(ctx, d, &r)
	}
	// Before that it would be slow, and hold up what it waits for.
	select {
	case <-r.collection.Verified():
	case <-ctx.Done():
		return ctx.Err()
	}
	// Nothing is applied before Load has returned, so the collection is stable
	// without the lock, and AddIndexers does not wait.
	err := r.read(ctx)
	x.write.Lock()
	defer x.write.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case x.write.loaded: // by Reset
		return nil
	case err != nil:
		x.distrustLocked(err)
		return err
	}
	x.installLoadedLocked(&r)
	return nil
}

// installLoadedLocked shows what was read. client-go's store computes its indices
// from the functions it has by now; reindexLocked does the same for the file.
func (x *Indexer) installLoadedLocked(r *reader) {
	x.write.loaded = true
	x.write.foreign = r.foreign
	x.objects.Replace(r.objects, "")
	x.count.Store(int64(len(r.objects)))
	x.beginUseLocked()
	x.reindexLocked()
}

// beginUseLocked goes on from the stored version, and takes the mark of a graceful
// stop back.
func (x *Indexer) beginUseLocked() {
	if x.write.header.Complete {
		x.setVersion(x.write.header.RV)
	}
	if x.write.header.Clean {
		header := x.write.header
		header.Clean = false
		x.write.header = header
		_ = x.persistLocked(store.Batch{Header: &header})
	}
}

// reader reads and verifies all records of a collection.
type reader struct {
	collection store.Collection
	codec      Codec
	// foreign takes what is not to be decoded; nil if all is.
	foreign *foreign

	objects map[string]any
	totals  store.Totals
	// slab holds the values of one chunk. Decoded objects share no memory with
	// their records, so one is enough for all chunks.
	slab []byte
}

func (r *reader) read(ctx context.Context) error {
	var want store.Totals
	err := r.collection.View(func(tx store.Tx) (err error) {
		want, err = tx.Totals()
		return err
	})
	if err != nil {
		return err
	}
	// The count is not verified yet; it must not decide how much to allocate.
	r.objects = make(map[string]any, min(max(want.Count, 0), 1<<17))
	for from, more := "", true; more; {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		chunk, err := r.chunk(from)
		if err != nil {
			return err
		}
		if err := r.take(chunk); err != nil {
			return err
		}
		if more = len(chunk) > 0; more {
			from = chunk[len(chunk)-1].key + "\x00"
		}
	}
	if r.totals != want {
		return fmt.Errorf("%w: found %+v; the header says %+v", store.ErrCorrupt, r.totals, want)
	}
	return nil
}

// chunk copies records from one View.
func (r *reader) chunk(from string) ([]record, error) {
	var chunk []record
	var ends []int
	r.slab = r.slab[:0]
	err := r.collection.View(func(tx store.Tx) error {
		return tx.Scan(from, func(key, value []byte) bool {
			r.slab = append(r.slab, value...)
			ends = append(ends, len(r.slab))
			chunk = append(chunk, record{key: string(key)})
			return len(chunk) < chunkRecords && len(r.slab) < chunkBytes
		})
	})
	// Only now, because the slab may have moved.
	start := 0
	for i, end := range ends {
		chunk[i].value = r.slab[start:end:end]
		start = end
	}
	return chunk, err
}

// take decodes records, or notes them as unread if they are foreign.
func (r *reader) take(chunk []record) error {
	for _, record := range chunk {
		r.totals.Add(record.key, record.value)
		if r.foreign != nil {
			r.foreign.uids[record.key] = uidInRecord(record.value)
		}
	}
	if r.foreign != nil {
		return nil
	}
	decoded := make([]any, len(chunk))
	errs := make([]error, len(chunk))
	parallel.For(len(chunk), func(i int) {
		decoded[i], errs[i] = r.codec.Decode(chunk[i].value)
	})
	for i, record := range chunk {
		if errs[i] != nil {
			return undecodable(record, errs[i])
		}
		r.objects[record.key] = decoded[i]
	}
	return nil
}

// undecodable tells a record that is damaged from one that is what was written.
func undecodable(r record, err error) error {
	if _, damage := store.Unseal(r.value); damage == nil {
		err = fmt.Errorf("%w: %w", errUndecodable, err)
	}
	return fmt.Errorf("object %s: %w", r.key, err)
}

func uidInRecord(value []byte) string {
	envelope, err := codec.ReadEnvelope(value)
	if err != nil || envelope.UID == "" {
		return noUID
	}
	return string(envelope.UID)
}
