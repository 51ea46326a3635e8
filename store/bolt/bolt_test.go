package bolt_test

import (
	"path/filepath"
	"testing"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
	"github.com/warmcache/warmcache/store/storetest"
)

func harness(t *testing.T) storetest.Harness {
	path := filepath.Join(t.TempDir(), "cache.db")
	open := func(open func(string, bolt.Options) (*bolt.DB, error)) func(testing.TB) store.Store {
		return func(t testing.TB) store.Store {
			t.Helper()
			db, err := open(path, bolt.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return db
		}
	}
	t.Cleanup(func() { bolttest.CheckFile(t, path) })
	return storetest.Harness{Open: open(bolt.Open), OpenReadOnly: open(bolt.OpenReadOnly)}
}

func TestDB_Conformance(t *testing.T) { storetest.Run(t, harness) }

func TestDB_Model(t *testing.T) { storetest.RunModel(t, harness(t), 400) }
