package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

// sampleAt writes the sample to a path.
func sampleAt(t testing.TB) (path string, file []byte) {
	t.Helper()
	path, file = filepath.Join(t.TempDir(), "cache.db"), checkSample(t)
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, file
}

func get(c store.Collection, key string) (value string, err error) {
	err = c.View(func(tx store.Tx) error {
		b, err := tx.Get(key)
		value = string(b)
		return err
	})
	return value, err
}

func put(t testing.TB, c store.Collection, key string) {
	t.Helper()
	if err := c.Apply(store.Batch{Ops: []store.Op{storetest.Put(key, "1")}}); err != nil {
		t.Fatal(err)
	}
}

// inBackground calls fn and returns its error in time.
func inBackground(fn func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	return done
}

// TestVerify_ComesBeforeEverything asks for a commit in every way before the file was
// verified. Nothing may be written; what is asked for happens afterwards.
func TestVerify_ComesBeforeEverything(t *testing.T) {
	path, before := sampleAt(t)
	o, release := held(t)
	o.FlushInterval, o.MaxDirty = 1, 1
	db, c := openIn(t, path, o)
	for i := range 5 {
		put(t, c, fmt.Sprint("new-", i))
	}
	flushed := inBackground(func() error { return c.Flush(t.Context()) })
	forgotten := inBackground(func() error { return db.Forget(nodesID) })
	for db.mu.Lock(); len(db.mu.requests) == 0 || !db.mu.urgent; db.mu.Lock() {
		db.mu.Unlock()
		runtime.Gosched()
	}
	db.mu.Unlock()
	if value, err := get(c, "new-0"); err != nil || value == "" {
		t.Errorf("Get of what waits: %v", err)
	}
	if infos, err := db.Informers(); err != nil || len(infos) != 2 {
		t.Errorf("Informers: %v, %v", infos, err)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, before) || db.Status().Commits > 0 {
		t.Errorf("the file was changed: %v", err)
	}
	select {
	case <-c.Verified():
		t.Error("Verified is closed")
	default:
	}
	release()
	<-c.Verified()
	if err := errors.Join(<-flushed, <-forgotten); err != nil {
		t.Error(err)
	}
	if infos, err := db.Informers(); err != nil || len(infos) != 1 {
		t.Errorf("Informers after Forget: %v, %v", infos, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	report, problems := checkBytes(t, readUsed(t, path))
	if len(problems) > 0 || report.Collections[0].Totals.Count != 405 {
		t.Errorf("afterwards: %+v, %v", report.Collections, problems)
	}
}

// TestVerify_Close closes a store before its file was verified: at once, unless there
// is something to commit.
func TestVerify_Close(t *testing.T) {
	for _, changes := range []int{0, 1} {
		path, before := sampleAt(t)
		o, _ := held(t)
		var db *DB
		var c store.Collection
		opened := make(chan struct{})
		o.beforeVerify = func() error {
			for <-opened; !db.isStopping(); {
				runtime.Gosched()
			}
			return nil
		}
		db, c = openIn(t, path, o)
		close(opened)
		for i := range changes {
			put(t, c, fmt.Sprint("new-", i))
		}
		f := db.current().opened.Load()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		if trusted := f.trusted.Load(); trusted != (changes > 0) {
			t.Errorf("%d changes: verified: %v", changes, trusted)
		}
		<-c.Verified()
		after, err := os.ReadFile(path)
		if err != nil || bytes.Equal(before, after) != (changes == 0) {
			t.Errorf("%d changes: the file has changed: %v, %v", changes, !bytes.Equal(before, after), err)
		}
	}
}

// TestVerify_DiskCannotBeRead tries again until the disk can be read. Meanwhile, what
// can be read is, and nobody waits for what cannot.
func TestVerify_DiskCannotBeRead(t *testing.T) {
	path, _ := sampleAt(t)
	o, _ := held(t)
	broken := make(chan error, 100)
	for range 2 {
		broken <- fmt.Errorf("%w: by a test", errUnreadable)
	}
	o.beforeVerify = func() error {
		select {
		case err := <-broken:
			return err
		default:
			return nil
		}
	}
	db, c := openIn(t, path, o)
	<-c.Verified()
	if _, err := get(c, "ns/0000"); err != nil {
		t.Errorf("Get: %v", err)
	}
	put(t, c, "new")
	for !db.current().ready() {
		if err := c.Flush(t.Context()); err != nil && !errors.Is(err, errUnreadable) {
			t.Errorf("Flush: %v", err)
		}
	}
	if err := errors.Join(c.Flush(t.Context()), db.Status().Err, db.Close()); err != nil {
		t.Error(err)
	}
	if record := ownerAt(t, path); record.Phase != phaseClosed || record.Strikes != 0 {
		t.Errorf("the lock file says %+v", record)
	}
}

func ownerAt(t testing.TB, path string) ownerRecord {
	t.Helper()
	file, err := os.Open(lockPath(path))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	return readOwner(file)
}

// TestVerify_UnreadableForEver moves a file aside that three processes could not verify.
func TestVerify_UnreadableForEver(t *testing.T) {
	path, _ := sampleAt(t)
	o, _ := held(t)
	o.beforeVerify = func() error { return fmt.Errorf("%w: by a test", errUnreadable) }
	for range maxStrikes {
		db, c := openIn(t, path, o)
		<-c.Verified()
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if db.Quarantined() != "" {
			t.Fatal("moved aside too early")
		}
	}
	db, _ := openIn(t, path, Options{})
	if !strings.HasSuffix(db.Quarantined(), reasonUnreadable) {
		t.Errorf("moved to %q", db.Quarantined())
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// TestVerify_ViewKeepsItsPages holds a View that began before the file was verified. Others
// go on, commits wait for it, as they may write over pages that it reads.
func TestVerify_ViewKeepsItsPages(t *testing.T) {
	path, _ := sampleAt(t)
	o, release := held(t)
	var committing atomic.Bool
	o.beforeCommit = func() error { committing.Store(true); return nil }
	db, c := openIn(t, path, o)
	put(t, c, "new")
	var flushed <-chan error
	err := c.View(func(tx store.Tx) error {
		release()
		flushed = inBackground(func() error { return c.Flush(t.Context()) })
		for !db.current().ready() {
			runtime.Gosched()
		}
		if err := <-inBackground(func() error { _, err := get(c, "ns/0000"); return err }); err != nil {
			t.Errorf("another View: %v", err)
		}
		for range 50 {
			contents, err := storetest.DumpTx(tx, "zone")
			if err != nil || len(contents.Objects) != 401 {
				return fmt.Errorf("%d objects: %w", len(contents.Objects), err)
			}
		}
		if committing.Load() {
			t.Error("a commit began before the end of the View")
		}
		return nil
	})
	if err := errors.Join(err, <-flushed, db.Close()); err != nil {
		t.Error(err)
	}
}

// TestVerify_ReadOnly reads a damaged file that nobody may change.
func TestVerify_ReadOnly(t *testing.T) {
	path, file := sampleAt(t)
	d := newDamager(t, file)
	d.branches(pods.objects)[0].data[pageHeader+8] ^= 1
	writeOver(t, path, d.file)
	db, err := OpenReadOnly(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.Collection(podsID, "test")
	if err == nil {
		<-c.Verified()
		_, err = get(c, "ns/0000")
	}
	if !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
