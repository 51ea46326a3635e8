// Package bolttest makes every test that uses a bbolt file a test for damage:
// it opens files that are verified, whole, when the test ends. It must not be
// imported by anything but tests.
package bolttest

import (
	"context"
	"errors"
	"io/fs"
	"testing"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
)

// Open opens the file at path. When the test ends, it is closed and verified.
// The test may Close it before, and open it again.
func Open(t testing.TB, path string, o bolt.Options) *bolt.DB {
	t.Helper()
	db, err := bolt.Open(path, o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	// Cleanups run last to first: of several opens, the first one verifies.
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		CheckFile(t, path)
	})
	return db
}

// CheckFile checks the file at path, which nobody has open for writing. A file
// that does not exist is fine.
func CheckFile(t testing.TB, path string) {
	t.Helper()
	CheckRecords(t, path, nil)
}

// CheckRecords is CheckFile with a check of each record, which the engine does
// not decode: see bolt.CheckOptions.
func CheckRecords(t testing.TB, path string, record func(id store.Identity, key string, sealed []byte) error) {
	t.Helper()
	_, err := bolt.Check(context.Background(), path, bolt.CheckOptions{
		Found: func(p bolt.Problem) bool {
			t.Errorf("%s: %v", path, p)
			return true
		},
		Record: record,
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
