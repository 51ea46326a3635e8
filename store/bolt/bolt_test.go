package bolt_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
	"github.com/warmcache/warmcache/store/storetest"
)

func harness(t *testing.T) storetest.Harness { return harnessWith(t, bolt.Options{}) }

func harnessWith(t *testing.T, o bolt.Options) storetest.Harness {
	path := filepath.Join(t.TempDir(), "cache.db")
	open := func(open func(string, bolt.Options) (*bolt.DB, error)) func(testing.TB) store.Store {
		return func(t testing.TB) store.Store {
			t.Helper()
			db, err := open(path, o)
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

// busy commits all the time, so that batches meet commits at every point.
var busy = bolt.Options{FlushInterval: time.Nanosecond, MaxDirty: 1}

func TestDB_Conformance_CommitsAllTheTime(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness { return harnessWith(t, busy) })
}

func TestDB_Model_CommitsAllTheTime(t *testing.T) {
	storetest.RunModel(t, harnessWith(t, busy), 400)
}
