package bolt

import (
	"bytes"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/warmcache/warmcache/store"
)

// fillPercent of pages when they split. Object keys mostly arrive in order; the
// default of 0.5 leaves the file half empty.
const fillPercent = 0.9

// writer writes one overlay into a transaction. Writing the same overlay again
// changes nothing: everything that is counted is counted by what was there.
type writer struct {
	c      *collection
	tx     *writeTx
	header *bbolt.Bucket
	totals totalsRecord
}

// write writes o, in the order in which overlays hide things: what o clears and
// drops goes first, then comes what it holds. Buckets are opened as they are
// needed, because an informer of a small resource should not cost pages.
func (c *collection) write(tx *writeTx, o *overlay) error {
	w := &writer{c: c, tx: tx}
	for _, step := range []func(*overlay) error{w.open, w.clear, w.objects, w.indices, w.departed, w.close} {
		if err := step(o); err != nil {
			return fmt.Errorf("write %s: %w", c.id, err)
		}
	}
	c.written = w.totals
	return nil
}

// open reads the totals that the overlay starts from: none after a clear, for
// which damaged totals must not be in the way. Totals other than those that were
// written last are those of an earlier commit, a page of which has come back from
// the disk: to go on from that would leave out what came in between.
func (w *writer) open(o *overlay) (err error) {
	if w.header, err = w.bucket(w.c.names.header); err != nil {
		return err
	}
	if o.cleared || w.header.Get(totalsKey) == nil {
		return nil
	}
	if w.totals, err = totalsIn(boltBucket{w.header}); err != nil {
		return err
	}
	if last := w.c.totals; last != nil && *last != w.totals {
		return damaged("totals are %+v, the last commit has written %+v", w.totals, *last)
	}
	return nil
}

func (w *writer) clear(o *overlay) (err error) {
	if o.cleared {
		if err := w.c.deleteCollection(w.tx); err != nil {
			return err
		}
		w.header, err = w.bucket(w.c.names.header)
		return err
	}
	for name := range o.dropped {
		if err := deleteBucket(w.tx, w.c.names.index(name)); err != nil {
			return err
		}
		w.c.db.scrub.emptied(w.c, keySpace{index: name})
		// Zeros instead of nothing: the header may still list the index.
		if err := w.putIndexTotals(name, indexTotals{}); err != nil {
			return err
		}
	}
	return nil
}

// objects counts by the record that the transaction finds and not by what the
// overlay was applied to, which a commit that failed after the fact has changed.
func (w *writer) objects(o *overlay) error {
	return w.each(w.c.names.objects, o.objects, func(bucket *bbolt.Bucket, e entry) error {
		old := bucket.Get(e.key)
		w.c.db.scrub.changed(w.c, keySpace{}, e.key, old, e.value)
		if old != nil {
			w.totals.objects.Remove(string(e.key), old)
		}
		if e.value == nil {
			return bucket.Delete(e.key)
		}
		w.totals.objects.Add(string(e.key), e.value)
		return bucket.Put(e.key, e.value)
	})
}

// indices counts entries as objects does objects.
func (w *writer) indices(o *overlay) error {
	for name, index := range o.indices {
		totals, err := w.indexTotals(name)
		if err != nil {
			return err
		}
		err = w.each(w.c.names.index(name), index, func(bucket *bbolt.Bucket, e entry) error {
			old := bucket.Get(e.key)
			w.c.db.scrub.changed(w.c, keySpace{index: name}, e.key, old, e.value)
			switch exists := old != nil; {
			case e.value == nil && exists:
				totals.remove(e.key)
				return bucket.Delete(e.key)
			case e.value != nil && !exists:
				totals.add(e.key)
				return bucket.Put(e.key, e.value)
			}
			return nil
		})
		if err == nil {
			err = w.putIndexTotals(name, totals)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// indexTotals returns the totals of an index, zeros if there are none.
func (w *writer) indexTotals(name string) (indexTotals, error) {
	sealed := w.header.Get(indexTotalsKey(name))
	if sealed == nil {
		return indexTotals{}, nil
	}
	return decodeIndexTotals(sealed)
}

func (w *writer) putIndexTotals(name string, totals indexTotals) error {
	return w.header.Put(indexTotalsKey(name), totals.encode())
}

func (w *writer) departed(o *overlay) error {
	err := w.each(w.c.names.departed, o.departed, w.putDeparted)
	if err != nil || w.totals.departed.Bytes <= w.c.db.options.DepartedBytes {
		return err
	}
	return w.trimDeparted()
}

func (w *writer) putDeparted(bucket *bbolt.Bucket, e entry) error {
	old := bucket.Get(e.key)
	w.c.db.scrub.changed(w.c, keySpace{departed: true}, e.key, old, e.value)
	if old != nil {
		w.totals.departed.Remove(string(e.key), old)
	}
	if e.value == nil {
		return bucket.Delete(e.key)
	}
	w.totals.departed.Add(string(e.key), e.value)
	return bucket.Put(e.key, e.value)
}

// trimDeparted drops the oldest departed records as overlay.trimDeparted does.
// It reads all of them, which the margin of an eighth makes rare.
func (w *writer) trimDeparted() error {
	bucket := w.tx.Bucket(w.c.names.departed)
	var records []departedAge
	err := ascending(boltBucket{bucket}, func(key, value []byte) {
		if len(value) >= departedHeaderSize {
			records = append(records, ageOf(bytes.Clone(key), value))
		}
	})
	if err != nil {
		return err
	}
	victims := oldest(records, w.totals.departed.Bytes-w.c.db.options.DepartedBytes/8*7)
	for _, v := range victims {
		if err := w.tx.vetKey(bucket, v.key); err != nil {
			return err
		}
		if err := w.putDeparted(bucket, entry{key: v.key}); err != nil {
			return err
		}
	}
	w.c.dropped.note(w.c, len(victims))
	return nil
}

// close writes the header bucket, which also makes the collection exist.
func (w *writer) close(o *overlay) error {
	if o.header != nil {
		sealed, err := encodeHeader(o.header)
		if err != nil {
			return err
		}
		if err := w.header.Put(headerKey, sealed); err != nil {
			return err
		}
		if err := w.addIndexTotals(o.header); err != nil {
			return err
		}
	}
	return w.header.Put(totalsKey, w.totals.encode())
}

// addIndexTotals gives every index that the header lists totals, also one without
// entries: so that an index that is lost as a whole is missed.
func (w *writer) addIndexTotals(header *store.Header) error {
	for name := range header.Indices {
		if w.header.Get(indexTotalsKey(name)) == nil {
			if err := w.putIndexTotals(name, indexTotals{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// each calls fn for the entries of t, in key order, with their bucket. It
// creates the bucket if there is anything to store.
func (w *writer) each(name []byte, t *tree, fn func(*bbolt.Bucket, entry) error) error {
	if t.Len() == 0 {
		return nil
	}
	bucket, err := w.bucket(name)
	if err != nil {
		return err
	}
	t.Ascend(func(e entry) bool {
		if err = w.tx.vetKey(bucket, e.key); err == nil {
			err = fn(bucket, e)
		}
		return err == nil
	})
	return err
}

// bucket returns a bucket to write to.
func (w *writer) bucket(name []byte) (*bbolt.Bucket, error) {
	if err := w.tx.vetKey(w.tx.root(), name); err != nil {
		return nil, err
	}
	return createBucket(w.tx.Tx, name)
}

// createBucket returns a bucket, which it creates if need be. FillPercent is a
// setting of the handle, not of the bucket.
func createBucket(tx *bbolt.Tx, name []byte) (*bbolt.Bucket, error) {
	bucket, err := tx.CreateBucketIfNotExists(name)
	if err != nil {
		return nil, err
	}
	bucket.FillPercent = fillPercent
	return bucket, nil
}

// deleteBucket deletes a bucket if it exists. bbolt fails to, by an error without
// a type, if it takes something in it for another bucket.
func deleteBucket(tx *writeTx, name []byte) error {
	bucket := tx.Bucket(name)
	if bucket == nil {
		return nil
	}
	if err := tx.vetKey(tx.root(), name); err != nil {
		return err
	}
	if err := tx.vetBucket(bucket); err != nil {
		return err
	}
	if err := tx.DeleteBucket(name); err != nil {
		return fmt.Errorf("%w: bbolt: %w", store.ErrCorrupt, err)
	}
	return nil
}

// deleteContents deletes every bucket of c but the header.
func (c *collection) deleteContents(tx *writeTx) error {
	var doomed [][]byte
	err := eachBucket(tx.Tx, c.names, func(name []byte, _ *bbolt.Bucket) error {
		doomed = append(doomed, bytes.Clone(name))
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range doomed {
		if err := deleteBucket(tx, name); err != nil {
			return err
		}
	}
	return nil
}

// deleteCollection deletes every bucket of c.
func (c *collection) deleteCollection(tx *writeTx) error {
	if err := c.deleteContents(tx); err != nil {
		return err
	}
	c.db.scrub.cleared(c)
	return deleteBucket(tx, c.names.header)
}
