package crashtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
)

// TestLost_RunningInformerWritesAnotherFile takes the file away from a running
// informer in several ways. Readers and handlers must not notice, the evidence must
// be kept, and the next start must resume from the new file.
func TestLost_RunningInformerWritesAnotherFile(t *testing.T) {
	for name, c := range map[string]struct {
		harm func(path string) error
		// kept says whether there is something to keep.
		kept bool
	}{
		"truncated": {func(path string) error { return os.Truncate(path, 3*4096) }, true},
		"removed":   {os.Remove, false},
		"overwritten": {func(path string) error {
			file, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer file.Close()
			_, err = file.WriteAt([]byte(strings.Repeat("not what was written", 5000)), 2*4096)
			return err
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for i := range 50 {
				w.put(configMaps, fmt.Sprintf("a/%d", i), "gold")
			}
			path := filepath.Join(t.TempDir(), "cache.db")
			db := bolttest.Open(t, path, bolt.Options{FlushInterval: time.Millisecond})
			c1 := startController(t, w, db, newRecorder())
			persisted(t, c1, w.now(specs[0])["a/49"].rv)

			if err := c.harm(path); err != nil {
				t.Fatal(err)
			}
			w.put(configMaps, "a/new", "gold")
			w.remove(configMaps, "a/1")
			last := w.put(configMaps, "a/newer", "gold")
			c1.converge()
			persisted(t, c1, last.rv)
			awaitStatus(t, c1, "an end of the errors", func(s informer.Status) bool { return s.Persistent && s.Durability.Err == nil })
			if got := db.Quarantined() != ""; got != c.kept {
				t.Errorf("quarantined as %q", db.Quarantined())
			}
			if n := c1.world.server.Counts().FullLists; n != 1 {
				t.Errorf("%d lists, want the one of the cold start", n)
			}
			c1.stop()
			closeDB(t, db)

			c2 := startController(t, w, bolttest.Open(t, path, bolt.Options{}), newRecorder())
			c2.converge()
			c2.resumed()
			c2.stop()
		})
	}
}

// TestLost_DamageFoundByLoad has the file moved aside by the start that finds it,
// which then lists into another one.
func TestLost_DamageFoundByLoad(t *testing.T) {
	w := newWorld(t)
	w.put(configMaps, "a/1", "gold")
	w.put(configMaps, "a/2", "gold")
	path := filepath.Join(t.TempDir(), "cache.db")
	db := bolttest.Open(t, path, bolt.Options{})
	c := startController(t, w, db, newRecorder())
	c.converge()
	c.stop()
	closeDB(t, db)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The value is somewhere in the middle of a record.
	value := w.now(specs[0])["a/1"].value
	harmed := strings.ReplaceAll(string(content), valueAnnotation+"\x12\x01"+value, valueAnnotation+"\x12\x01"+"!")
	if harmed == string(content) {
		t.Fatal("the record was not found in the file")
	}
	writeFile(t, path, []byte(harmed))

	db = bolttest.Open(t, path, bolt.Options{FlushInterval: time.Millisecond})
	c = startController(t, w, db, newRecorder())
	c.converge()
	if n := w.server.Counts().FullLists; n != 1 {
		t.Errorf("%d lists, want 1", n)
	}
	persisted(t, c, w.now(specs[0])["a/2"].rv)
	if db.Quarantined() == "" {
		t.Error("the damaged file was not kept")
	} else {
		wantFile(t, db.Quarantined(), []byte(harmed))
	}
	c.stop()
	closeDB(t, db)
	c = startController(t, w, bolttest.Open(t, path, bolt.Options{}), newRecorder())
	c.converge()
	c.resumed()
	c.stop()
}
