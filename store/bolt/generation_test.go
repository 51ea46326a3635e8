package bolt_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
	"github.com/warmcache/warmcache/store/storetest"
)

var errChecksum = errors.New("a checksum does not hold")

// inDirectory opens a database in a directory of its own, with one collection.
func inDirectory(t *testing.T, o bolt.Options) (path string, db *bolt.DB, c store.Collection) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "cache", "cache.db")
	db = bolttest.Open(t, path, o)
	c = collection(t, db)
	apply(t, c, storetest.Put("old", "1"))
	flush(t, c)
	return path, db, c
}

func flush(t *testing.T, c store.Collection) {
	t.Helper()
	if err := c.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// beginAnew writes one object to a collection that is lost.
func beginAnew(t *testing.T, c store.Collection) {
	t.Helper()
	select {
	case <-c.Lost():
	default:
		t.Error("the collection is not lost")
	}
	if err := c.Apply(store.Batch{Clear: true, Ops: []store.Op{storetest.Put("new", "1")}}); err != nil {
		t.Fatal(err)
	}
}

// wantOnDisk closes db and checks that the file at its path has the new object
// only.
func wantOnDisk(t *testing.T, db *bolt.DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	again := bolttest.Open(t, db.Path(), bolt.Options{})
	if again.Quarantined() != "" {
		t.Errorf("the new file was quarantined: %s", again.Quarantined())
	}
	if got := storetest.Dump(t, collection(t, again)).Objects; len(got) != 1 || got[0].Key != "new" {
		t.Errorf("the new file has %v", got)
	}
}

// TestQuarantine_WhileOpen keeps the evidence and lets go of it, while the path
// stays ours.
func TestQuarantine_WhileOpen(t *testing.T) {
	path, db, c := inDirectory(t, bolt.Options{})
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c.Quarantine(errChecksum)
	if err := c.Flush(t.Context()); !errors.Is(err, errChecksum) {
		t.Errorf("Flush: got %v, want the cause", err)
	}
	beginAnew(t, c)
	flush(t, c)

	evidence := db.Quarantined()
	if !strings.HasPrefix(evidence, path+".quarantined-") || !strings.HasSuffix(evidence, "-damaged") {
		t.Fatalf("moved to %q", evidence)
	}
	if after, err := os.ReadFile(evidence); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the damaged file was changed: %v", err)
	}
	file, err := os.Open(evidence)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("the damaged file is still locked: %v", err)
	}
	if _, err := bolt.Open(path, bolt.Options{LockTimeout: time.Millisecond}); !errors.Is(err, store.ErrLocked) {
		t.Errorf("another Open: got %v, want ErrLocked", err)
	}
	if s := db.Status(); s.Err != nil || s.Quarantines != 1 || s.Quarantined != evidence || s.FileBytes == 0 {
		t.Errorf("status %+v", s)
	}
	wantOnDisk(t, db)
}

// TestCommit_FileNotAtItsPath must not write into a file that nobody will find.
func TestCommit_FileNotAtItsPath(t *testing.T) {
	for name, move := range map[string]func(path string) error{
		"removed": os.Remove,
		"moved":   func(path string) error { return os.Rename(path, path+".old") },
		"replaced": func(path string) error {
			return errors.Join(os.WriteFile(path+".other", []byte("of somebody else"), 0o600), os.Rename(path+".other", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path, db, c := inDirectory(t, bolt.Options{})
			if err := move(path); err != nil {
				t.Fatal(err)
			}
			apply(t, c, storetest.Put("unseen", "1"))
			checkCorrupt(t, "Flush", c.Flush(t.Context()))
			beginAnew(t, c)
			flush(t, c)
			if name == "replaced" {
				other, err := os.ReadFile(db.Quarantined())
				if err != nil || string(other) != "of somebody else" {
					t.Errorf("what was at the path: %q, %v", other, err)
				}
			}
			wantOnDisk(t, db)
		})
	}
}

// TestQuarantine_NoRoomForANewFile goes on from memory until one can be created.
func TestQuarantine_NoRoomForANewFile(t *testing.T) {
	path, db, c := inDirectory(t, bolt.Options{})
	dir := filepath.Dir(path)
	if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	c.Quarantine(errChecksum)
	beginAnew(t, c)
	if err := c.Flush(t.Context()); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("Flush without a directory: got %v", err)
	}
	if got := storetest.Dump(t, c).Objects; len(got) != 1 {
		t.Errorf("memory has %v", got)
	}
	if s := db.Status(); !errors.Is(s.Err, unix.ENOTDIR) || s.FailedCommits == 0 || s.PendingBytes == 0 {
		t.Errorf("status %+v", s)
	}
	// The directory is made as by Open.
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if c.Flush(t.Context()) != nil { // by an attempt that had begun before
		flush(t, c)
	}
	if s := db.Status(); s.Err != nil || s.PendingBytes != 0 {
		t.Errorf("status after it healed %+v", s)
	}
	wantOnDisk(t, db)
}

// TestQuarantine_PathOfAnotherProcess leaves the file alone that another process
// has made, after somebody had removed the lock file too.
func TestQuarantine_PathOfAnotherProcess(t *testing.T) {
	path, db, c := inDirectory(t, bolt.Options{})
	if err := errors.Join(os.Remove(path), os.Remove(bolt.LockPath(path))); err != nil {
		t.Fatal(err)
	}
	other := bolttest.Open(t, path, bolt.Options{})
	o := collection(t, other)
	apply(t, o, storetest.Put("theirs", "1"))
	flush(t, o)

	apply(t, c, storetest.Put("unseen", "1"))
	checkCorrupt(t, "Flush", c.Flush(t.Context()))
	beginAnew(t, c)
	if err := c.Flush(t.Context()); !errors.Is(err, store.ErrLocked) {
		t.Errorf("Flush: got %v, want ErrLocked", err)
	}
	if db.Status().Quarantines != 0 || !errors.Is(db.Status().Err, store.ErrLocked) {
		t.Errorf("status %+v", db.Status())
	}
	apply(t, o, storetest.Put("more", "1"))
	flush(t, o)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	// Now the path is free.
	flush(t, c)
	wantOnDisk(t, db)
	if kept := bolttest.Open(t, db.Quarantined(), bolt.Options{}); len(storetest.Dump(t, collection(t, kept)).Objects) != 2 {
		t.Error("the file of the other process was not kept")
	}
}

// TestQuarantine_PausesBeforeTheNext keeps a disk that damages everything from
// having everything written for ever.
func TestQuarantine_PausesBeforeTheNext(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(1e9, 0))
	_, db, c := inDirectory(t, bolt.Options{Clock: clock})
	for _, pause := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second} {
		c.Quarantine(errChecksum)
		beginAnew(t, c)
		if pause > 0 {
			clock.Step(pause - 1)
			checkCorrupt(t, "Flush during the pause", c.Flush(t.Context()))
			clock.Step(1)
		}
		flush(t, c)
	}
	clock.Step(2 * time.Hour)
	c.Quarantine(errChecksum)
	beginAnew(t, c)
	flush(t, c)
	wantOnDisk(t, db)
}

// TestClose_DoesNotPause writes what waits for another file.
func TestClose_DoesNotPause(t *testing.T) {
	_, db, c := inDirectory(t, bolt.Options{})
	for range 2 {
		c.Quarantine(errChecksum)
		beginAnew(t, c)
		_ = c.Flush(t.Context()) // the second one comes too early
	}
	if s := db.Status(); s.Err == nil {
		t.Fatalf("no pause: %+v", s)
	}
	wantOnDisk(t, db)
}

// TestQuarantine_DiesBeforeMovingTheFile leaves the file to the next Open.
func TestQuarantine_DiesBeforeMovingTheFile(t *testing.T) {
	path, db, c := inDirectory(t, bolt.Options{})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := bolt.DieDamaged(path); err != nil {
		t.Fatal(err)
	}
	_ = c
	again := bolttest.Open(t, path, bolt.Options{})
	if !strings.HasSuffix(again.Quarantined(), "-damaged") {
		t.Errorf("the next Open moved it to %q", again.Quarantined())
	}
}

// TestOpenReadOnly_Quarantine leaves the file where it is.
func TestOpenReadOnly_Quarantine(t *testing.T) {
	path, db, _ := inDirectory(t, bolt.Options{})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	ro, err := bolt.OpenReadOnly(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := collection(t, ro)
	c.Quarantine(errChecksum)
	checkCorrupt(t, "View", c.View(func(store.Tx) error { return nil }))
	_, err = ro.Informers()
	checkCorrupt(t, "Informers", err)
	if _, err := ro.Collection(storetest.Deployments(), "test"); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("Collection: got %v, want ErrCorrupt", err)
	}
	if err := ro.Close(); err != nil {
		t.Error(err)
	}
	if again := bolttest.Open(t, path, bolt.Options{}); again.Quarantined() != "" {
		t.Errorf("quarantined: %s", again.Quarantined())
	}
}

// TestBegin_OlderMetaPages brings the meta pages of the last commit but one back,
// which are as valid and have the same totals. Nobody may go on from them.
func TestBegin_OlderMetaPages(t *testing.T) {
	for name, use := range map[string]func(c store.Collection) error{
		"Flush": func(c store.Collection) error {
			return errors.Join(c.Apply(store.Batch{Ops: []store.Op{storetest.Put("more", "1")}}), c.Flush(t.Context()))
		},
		"View": func(c store.Collection) error { return c.View(func(store.Tx) error { return nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			path, db, c := inDirectory(t, bolt.Options{FlushInterval: time.Hour, ScrubInterval: -1})
			file, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			apply(t, c, storetest.Put("old", "1"))
			flush(t, c)
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteAt(file[:2*4096], 0)
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			if err := use(c); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "transaction ") {
				t.Errorf("got %v, want ErrCorrupt because of the transaction", err)
			}
			beginAnew(t, c)
			flush(t, c)
			if !strings.HasSuffix(db.Quarantined(), "-damaged") {
				t.Errorf("moved to %q", db.Quarantined())
			}
			wantOnDisk(t, db)
		})
	}
}

// TestOpen_Condemned_DiesAgain leaves a condemned file to the Open after the next,
// which dies before it has moved it.
func TestOpen_Condemned_DiesAgain(t *testing.T) {
	for name, condemn := range map[string]func(path string) error{
		"damaged": bolt.DieDamaged,
		"crashed": func(path string) (err error) {
			for range bolt.MaxStrikes {
				err = errors.Join(err, bolt.DieWhileOpening(path))
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			path, db, _ := inDirectory(t, bolt.Options{})
			if err := errors.Join(db.Close(), condemn(path)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := bolt.DieWhileOpening(path); err != nil {
					t.Fatal(err)
				}
			}
			again := bolttest.Open(t, path, bolt.Options{})
			if !strings.HasSuffix(again.Quarantined(), "-damaged") {
				t.Errorf("moved to %q, want it moved as damaged", again.Quarantined())
			}
		})
	}
}
