package bolt

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// TestWalker_AgreesWithBbolt lets bbolt split, merge and free pages in every way,
// and verifies after each transaction that the layout is the one that the walker
// insists on: every page is used once or free, elements have no gaps, the first
// key of a page is the one in its parent.
func TestWalker_AgreesWithBbolt(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "file.db")
	db, err := bbolt.Open(path, fileMode, boltOptions())
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(db.Close(), file.Close()); err != nil {
			t.Error(err)
		}
	}()
	rounds := 150
	if testing.Short() {
		rounds = 30
	}
	for i := range rounds {
		if err := db.Update(func(tx *bbolt.Tx) error { return mutate(tx, random) }); err != nil {
			t.Fatal(err)
		}
		if err := walkAll(file); err != nil {
			t.Fatalf("after %d transactions: %v", i+1, err)
		}
	}
}

// mutate puts and deletes keys of several buckets, at random or in a row. Long
// keys make the trees high, long values the pages.
func mutate(tx *bbolt.Tx, random *rand.Rand) error {
	bucket, err := createBucket(tx, fmt.Appendf(nil, "bucket-%d", random.IntN(4)))
	if err != nil {
		return err
	}
	start, deleting, size := random.IntN(1000), random.IntN(2) == 0, random.IntN(3000)
	for i := range random.IntN(150) {
		at := start + i
		if i%3 == 0 {
			at = random.IntN(1000)
		}
		key := fmt.Appendf(nil, "%0400d", at)
		if deleting {
			err = bucket.Delete(key)
		} else {
			err = bucket.Put(key, make([]byte, random.IntN(size+1)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// walkAll reads all pages, and returns the first thing that does not hold.
func walkAll(file *os.File) error {
	size, err := sizeOf(file)
	if err != nil {
		return err
	}
	meta, _, err := readMeta(file)
	if err != nil {
		return err
	}
	w := &walker{file: file, problem: func(err error) error { return err }}
	if err := w.begin(meta, size); err != nil {
		return err
	}
	err = w.directory(meta.root, func(b *bucket) error {
		return w.bucket(b, func(*page, element) error { return nil })
	})
	if err != nil {
		return err
	}
	for id, state := range w.states {
		if id >= 2 && state == pageUnknown {
			return fmt.Errorf("page %d is neither used nor free", id)
		}
	}
	return nil
}
