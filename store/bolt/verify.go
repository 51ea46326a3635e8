package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/warmcache/warmcache/store"
)

// Verify reads the whole file at path, which nobody may have open for writing,
// and returns an error wrapping store.ErrCorrupt that names the first thing
// that does not hold, or one of OpenReadOnly:
//
//   - the structure that Open verifies
//   - the checksum of every header, record and departed record
//   - the totals of every collection, which equal what is there
//   - every index entry, which belongs to an object that exists
//   - every bucket, which belongs to a collection
func Verify(path string) error {
	db, err := OpenReadOnly(path, Options{})
	if err != nil {
		return err
	}
	err = db.view(func(tx *bbolt.Tx) error {
		known := map[string]bool{string(metaBucket): true}
		err := eachCollection(tx, func(info store.Info) error { return verifyCollection(tx, info, known) })
		if err != nil {
			return err
		}
		return tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
			if !known[string(name)] {
				return fmt.Errorf("%w: bucket %q belongs to no collection", store.ErrCorrupt, name)
			}
			return nil
		})
	})
	if err != nil {
		err = fmt.Errorf("verify %s: %w", path, err)
	}
	return errors.Join(err, db.Close())
}

// verifyCollection verifies one collection, and adds its buckets to known.
func verifyCollection(tx *bbolt.Tx, info store.Info, known map[string]bool) error {
	v := &verifier{tx: tx, names: namesOf(info.Identity)}
	for _, name := range [][]byte{v.names.header, v.names.objects, v.names.departed} {
		known[string(name)] = true
	}
	err := errors.Join(v.objects(), v.departed(), v.indices(known))
	if err == nil {
		err = v.compare()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", info.Identity, err)
	}
	return nil
}

type verifier struct {
	tx    *bbolt.Tx
	names bucketNames
	found totalsRecord
}

func (v *verifier) objects() error {
	return v.each(v.names.objects, func(key, value []byte) error {
		v.found.objects.Add(string(key), value)
		if _, err := store.Unseal(value); err != nil {
			return fmt.Errorf("object %q: %w", key, err)
		}
		return nil
	})
}

func (v *verifier) departed() error {
	return v.each(v.names.departed, func(key, value []byte) error {
		v.found.departedCount++
		v.found.departedBytes += int64(len(value))
		record, err := decodeDeparted(key, value)
		if err != nil {
			return err
		}
		if _, err := store.Unseal(record.Value); err != nil {
			return fmt.Errorf("departed %q: %w", record.Key, err)
		}
		return nil
	})
}

func (v *verifier) indices(known map[string]bool) error {
	objects := v.tx.Bucket(v.names.objects)
	prefix := []byte(v.names.indices)
	cursor := v.tx.Cursor()
	for name, _ := cursor.Seek(prefix); bytes.HasPrefix(name, prefix); name, _ = cursor.Next() {
		known[string(name)] = true
		index := strings.TrimPrefix(string(name), v.names.indices)
		err := v.each(name, func(entry, _ []byte) error {
			value, key, err := splitPair(entry)
			if err == nil && (objects == nil || objects.Get(key) == nil) {
				err = fmt.Errorf("%w: value %q refers to %q, which does not exist", store.ErrCorrupt, value, key)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("index %q: %w", index, err)
		}
	}
	return nil
}

func (v *verifier) compare() error {
	stored, err := totalsIn(v.tx.Bucket(v.names.header))
	if err == nil && stored != v.found {
		err = fmt.Errorf("%w: totals are %+v, found %+v", store.ErrCorrupt, stored, v.found)
	}
	return err
}

// each calls fn for every key of a bucket that may not exist, and verifies that
// they ascend.
func (v *verifier) each(name []byte, fn func(key, value []byte) error) error {
	bucket := v.tx.Bucket(name)
	if bucket == nil {
		return nil
	}
	var previous []byte
	return bucket.ForEach(func(key, value []byte) error {
		if previous != nil && bytes.Compare(previous, key) >= 0 {
			return fmt.Errorf("%w: %q does not come after %q", store.ErrCorrupt, key, previous)
		}
		if value == nil {
			return fmt.Errorf("%w: %q is a bucket", store.ErrCorrupt, key)
		}
		previous = key
		return fn(key, value)
	})
}
