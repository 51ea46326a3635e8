package crashtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
)

// smallDisk is a file system of a megabyte.
func smallDisk(t *testing.T) string {
	t.Helper()
	return mount(t, "size=1m")
}

// mount mounts a file system in memory.
func mount(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		lacking(t, requireAll, "a small file system cannot be mounted, which takes root and the permission to", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// fill leaves no space in dir until the returned function is called.
func fill(t *testing.T, dir string) (empty func()) {
	t.Helper()
	name := filepath.Join(dir, "filler")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Error(err)
		}
	}
}

func TestOpen_FullDisk(t *testing.T) {
	dir := smallDisk(t)
	empty := fill(t, dir)
	path := filepath.Join(dir, "cache.db")
	_, err := bolt.Open(path, bolt.Options{}) //hygiene:allow bolt.Open: it fails
	wantOneLine(t, err, path, "no space")
	empty()
	closeDB(t, bolttest.Open(t, path, bolt.Options{}))
}

// TestFullDisk_ServesFromMemoryAndLosesNothing fills the disk under a running
// informer. It must not notice, but say so; what was written before is what the
// next start resumes from.
func TestFullDisk_ServesFromMemoryAndLosesNothing(t *testing.T) {
	for name, heals := range map[string]bool{"heals": true, "does not heal": false} {
		t.Run(name, func(t *testing.T) {
			dir := smallDisk(t)
			w := newWorld(t)
			w.put(configMaps, "a/1", "gold")
			w.put(configMaps, "a/2", "gold")
			path := filepath.Join(dir, "cache.db")
			db := bolttest.Open(t, path, bolt.Options{FlushInterval: time.Millisecond})
			c := startController(t, w, db, newRecorder())
			persisted(t, c, w.now(specs[0])["a/2"].rv)

			empty := fill(t, dir)
			for i := range 200 {
				w.put(configMaps, fmt.Sprintf("b/%d", i), "gold")
			}
			w.remove(configMaps, "a/1")
			c.converge()
			awaitStatus(t, c, "an error of the disk", func(s informer.Status) bool { return s.Durability.Err != nil })
			if heals {
				empty()
				w.put(configMaps, "a/3", "gold")
				c.converge()
			}
			c.stop()
			err := db.Close()
			if heals && err != nil {
				t.Errorf("close: %v", err)
			}
			if !heals {
				wantOneLine(t, err, path, "no space", "lost")
				empty()
			}

			c = startController(t, w, bolttest.Open(t, path, bolt.Options{}), newRecorder())
			c.converge()
			c.resumed()
			if n := c.handler.deletes(); n != 1 {
				t.Errorf("%d deletes were delivered", n)
			}
			c.stop()
		})
	}
}
