package crashtest

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
	"github.com/warmcache/warmcache/store/storetest"
)

// unhurried commits by itself only after the test: what is in the file was put
// there by the stop.
var unhurried = bolt.Options{FlushInterval: time.Hour}

func TestStop_LeavesNothingPendingAndTheNextStartResumes(t *testing.T) {
	w := newWorld(t)
	for i := range 10 {
		w.put(configMaps, fmt.Sprintf("a/%d", i), "gold")
	}
	path := filepath.Join(t.TempDir(), "cache.db")
	db := bolttest.Open(t, path, unhurried)
	c := startController(t, w, db, newRecorder())
	w.remove(configMaps, "a/1")
	w.remove(configMaps, "a/2")
	last := w.put(configMaps, "a/3", "iron")
	c.converge()
	if n := c.handler.deletes(); n != 2 {
		t.Fatalf("%d deletes were delivered, want 2", n)
	}
	c.stop()

	infos, err := db.Informers()
	if err != nil || len(infos) != 1 || infos[0].InUse || infos[0].Totals.Count != 8 {
		t.Fatalf("in the file: %+v, %v", infos, err)
	}
	collection, err := db.Collection(infos[0].Identity, "test")
	if err != nil {
		t.Fatalf("the identity is not free: %v", err)
	}
	if d := collection.Durability(); d.Pending != 0 || d.RV != fmt.Sprint(last.rv) {
		t.Errorf("%+v, want nothing pending at version %d", d, last.rv)
	}
	if left := storetest.Dump(t, collection).Departed; len(left) != 2 || left[0].Attempts+left[1].Attempts != 0 {
		t.Errorf("departed records %+v, want two without attempts: their deletes may be in a workqueue", left)
	}
	if err := collection.Close(); err != nil {
		t.Error(err)
	}
	closeDB(t, db)

	// A few changes while it is down.
	w.remove(configMaps, "a/4")
	w.put(configMaps, "a/new", "gold")
	db = bolttest.Open(t, path, unhurried)
	c = startController(t, w, db, newRecorder())
	c.converge()
	c.resumed()
	if n := c.handler.deletes(); n != 3 {
		t.Errorf("%d deletes were delivered, want that of a/4 and, again, two", n)
	}
	c.stop()
}

func TestStop_InformersGoOnWhenTheFileIsClosedFirst(t *testing.T) {
	w := newWorld(t)
	w.put(configMaps, "a/1", "gold")
	path := filepath.Join(t.TempDir(), "cache.db")
	db := bolttest.Open(t, path, unhurried)
	c := startController(t, w, db, newRecorder())
	closeDB(t, db)
	w.put(configMaps, "a/2", "gold")
	w.remove(configMaps, "a/1")
	c.converge()
	c.stop()

	c = startController(t, w, bolttest.Open(t, path, unhurried), newRecorder())
	c.converge()
	c.resumed()
	if n := c.handler.deletes(); n != 1 {
		t.Errorf("%d deletes were delivered, want that of a/1, which happened when the file was closed", n)
	}
	c.stop()
}
