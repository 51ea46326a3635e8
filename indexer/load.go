package indexer

import (
	"context"
	"fmt"
	"slices"

	"github.com/warmcache/warmcache/codec"
	"github.com/warmcache/warmcache/internal/parallel"
	"github.com/warmcache/warmcache/store"
)

const (
	// A chunk of records is copied out of one View and decoded outside of it:
	// a long read transaction would make the file grow (DESIGN, storage).
	chunkRecords = 2048
	chunkBytes   = 8 << 20
)

// unread is a record that is known but not served.
type unread struct {
	// uid is noUID if not even the envelope could be read.
	uid string
}

// record is a copy of one stored record.
type record struct {
	key   string
	value []byte
}

// Load reads the objects of the attached collection into memory and verifies
// them: every checksum, and count and sum of all records against the header. It
// must be called once, before the first Apply; without a collection it does
// nothing.
//
// An error that wraps store.ErrCorrupt means that nothing was loaded, the
// collection has been emptied, and the objects must be listed.
func (x *Indexer) Load(ctx context.Context) error {
	x.write.Lock()
	r := reader{collection: x.write.collection, codec: x.write.codec, foreign: x.write.foreign}
	x.write.Unlock()
	if r.collection == nil {
		return nil
	}
	// Nothing is applied before Load has returned, so the collection is stable
	// without the lock, and reads of status do not wait.
	err := r.read(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	x.write.Lock()
	defer x.write.Unlock()
	x.write.loaded = true
	if err != nil {
		x.clearLocked(err)
		return err
	}
	x.write.unread = r.unread
	if !r.foreign {
		x.objects.Replace(r.objects, x.write.header.RV)
		x.count.Store(int64(len(r.objects)))
	}
	x.reindexLocked()
	return nil
}

// reader reads and verifies all records of a collection.
type reader struct {
	collection store.Collection
	codec      Codec
	foreign    bool

	objects map[string]any
	unread  map[string]unread
	totals  store.Totals
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
	r.objects = make(map[string]any, max(want.Count, 0))
	r.unread = map[string]unread{}
	for from, more := "", true; more && ctx.Err() == nil; {
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
	err := r.collection.View(func(tx store.Tx) error {
		size := 0
		return tx.Scan(from, func(key, value []byte) bool {
			chunk = append(chunk, record{string(key), slices.Clone(value)})
			size += len(value)
			return len(chunk) < chunkRecords && size < chunkBytes
		})
	})
	return chunk, err
}

// take decodes records, or notes them as unread if they are foreign.
func (r *reader) take(chunk []record) error {
	for _, record := range chunk {
		r.totals.Add(record.key, record.value)
		if r.foreign {
			r.unread[record.key] = unread{uid: uidInRecord(record.value)}
		}
	}
	if r.foreign {
		return nil
	}
	decoded := make([]any, len(chunk))
	errs := make([]error, len(chunk))
	parallel.For(len(chunk), func(i int) {
		decoded[i], errs[i] = r.codec.Decode(chunk[i].value)
	})
	for i, record := range chunk {
		if errs[i] != nil {
			return fmt.Errorf("object %s: %w", record.key, errs[i])
		}
		r.objects[record.key] = decoded[i]
	}
	return nil
}

func uidInRecord(value []byte) string {
	envelope, err := codec.ReadEnvelope(value)
	if err != nil || envelope.UID == "" {
		return noUID
	}
	return string(envelope.UID)
}

// reindexLocked brings the stored indices in line with the index functions of
// today. In memory they are computed anyway; in the file, those whose function
// changed are written anew and those that nobody maintains any more are dropped.
func (x *Indexer) reindexLocked() {
	current := x.fingerprintsLocked()
	var changed []string
	for name, fingerprint := range current {
		if x.write.foreign || x.write.header.Indices[name] != fingerprint {
			changed = append(changed, name)
		}
	}
	for name := range x.write.header.Indices {
		if _, ok := current[name]; !ok {
			changed = append(changed, name)
		}
	}
	if len(changed) == 0 {
		return
	}
	slices.Sort(changed)
	x.logger.V(2).Info("Rewriting stored indices", "informer", x.write.collection.Identity(), "indices", changed)
	x.persistLocked(x.rebuildLocked(changed))
}
