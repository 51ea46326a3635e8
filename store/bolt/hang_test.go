package bolt_test

import (
	"errors"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
	"github.com/warmcache/warmcache/store/storetest"
)

// within fails the test if fn does not return.
func within(t *testing.T, what string, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%s does not return", what)
	}
}

// leavesGoroutines marks a process in which goroutines may be left behind.
const leavesGoroutines = "WARMCACHE_BOLT_LEAVES_GOROUTINES"

// TestView_MetaPagesGone takes the meta pages from under many readers and a writer:
// bbolt panics with a lock held that all of them need. Everybody must get on, but a
// commit that waits for this lock in bbolt has to be left behind. So that no other
// goroutine can be, unnoticed, this is a process of its own.
func TestView_MetaPagesGone(t *testing.T) {
	if os.Getenv(leavesGoroutines) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=5m")
		cmd.Env = append(os.Environ(), leavesGoroutines+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out[max(0, len(out)-4000):])
		}
		return
	}
	for name, harm := range map[string]func(*os.File) error{
		"truncated": func(file *os.File) error { return file.Truncate(0) },
		"zeroed": func(file *os.File) error {
			_, err := file.WriteAt(make([]byte, 2*4096), 0)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 15 {
				path, db, c := inDirectory(t, bolt.Options{FlushInterval: time.Millisecond, ScrubInterval: -1})
				var stop atomic.Bool
				var users sync.WaitGroup
				for range 8 {
					users.Go(func() {
						for !stop.Load() {
							_ = c.View(func(store.Tx) error { return nil })
						}
					})
				}
				users.Go(func() {
					for !stop.Load() {
						_ = c.Apply(store.Batch{Ops: []store.Op{storetest.Put("b", "1")}})
						_ = c.Flush(t.Context())
					}
				})
				harmUntilLost(t, path, c.Lost(), harm)
				stop.Store(true)
				within(t, "a user", users.Wait)
				within(t, "the writer", func() { beginAnew(t, c); flush(t, c) })
				within(t, "Close", func() { wantOnDisk(t, db) })
			}
		})
	}
}

// harmUntilLost harms the file that is at path now, again and again: a commit that
// begins to write afterwards may write everything that so small a file has.
func harmUntilLost(t *testing.T, path string, lost <-chan struct{}, harm func(*os.File) error) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	within(t, "who waits for the loss", func() {
		for {
			if err := harm(file); err != nil {
				t.Error(err)
				return
			}
			select {
			case <-lost:
				return
			case <-ticker.C:
			}
		}
	})
}

// TestClose_DamageInTheLastView must not wait for a transaction that damage has kept
// from ending.
func TestClose_DamageInTheLastView(t *testing.T) {
	path, db, c := inDirectory(t, bolt.Options{ScrubInterval: -1})
	closed := make(chan struct{})
	err := c.View(func(tx store.Tx) error {
		go func() {
			_ = db.Close()
			close(closed)
		}()
		closing := false
		for !closing {
			closing = c.Apply(store.Batch{}) != nil
		}
		if err := os.Truncate(path, 0); err != nil {
			return err
		}
		return tx.Scan("", func(_, _ []byte) bool { return true })
	})
	checkCorrupt(t, "View", err)
	within(t, "Close", func() { <-closed })
	// There was nobody left to move it aside.
	if err := os.Remove(path); err != nil {
		t.Error(err)
	}
}

// TestClose_WritesWhatWaitedForAnOverlay has a frozen overlay, which an earlier
// commit could not write, and a pending one. Close must write both, or say so.
func TestClose_WritesWhatWaitedForAnOverlay(t *testing.T) {
	var fail atomic.Bool
	o := bolt.FailCommits(bolt.Options{FlushInterval: time.Hour}, func() error {
		if fail.Load() {
			return errors.New("no commit")
		}
		return nil
	})
	path, db, c := inDirectory(t, o)
	fail.Store(true)
	apply(t, c, storetest.Put("frozen", "1"))
	if err := c.Flush(t.Context()); err == nil {
		t.Fatal("Flush succeeded")
	}
	apply(t, c, storetest.Put("pending", "1"))
	fail.Store(false)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	again := bolttest.Open(t, path, bolt.Options{})
	if got := storetest.Dump(t, collection(t, again)).Objects; len(got) != 3 {
		t.Errorf("the file has %v", got)
	}
}

// TestForget_GivesBackWhatWaited forgets a collection whose last commit failed: what
// it had waiting must not count for ever.
func TestForget_GivesBackWhatWaited(t *testing.T) {
	var fail atomic.Bool
	o := bolt.FailCommits(bolt.Options{FlushInterval: time.Hour}, func() error {
		if fail.CompareAndSwap(true, false) {
			return errors.New("no commit")
		}
		return nil
	})
	_, db, c := inDirectory(t, o)
	apply(t, c, storetest.Put("waits", "1"))
	fail.Store(true)
	if err := c.Close(); err == nil {
		t.Fatal("Close succeeded")
	}
	fail.Store(true) // the commit before Forget's own transaction
	if err := db.Forget(storetest.Pods()); err != nil {
		t.Fatal(err)
	}
	if s := db.Status(); s.PendingBytes != 0 {
		t.Errorf("%d bytes wait", s.PendingBytes)
	}
}

// TestCollection_WhileOthersFindDamage opens collections while the file is lost
// again and again. Each time there is one that works.
func TestCollection_WhileOthersFindDamage(t *testing.T) {
	_, db, c := inDirectory(t, bolt.Options{ScrubInterval: -1})
	var stop atomic.Bool
	var others sync.WaitGroup
	others.Go(func() {
		for !stop.Load() {
			c.Quarantine(errChecksum)
			if err := c.Apply(store.Batch{Clear: true}); err != nil {
				t.Error(err)
			}
		}
	})
	for range 3000 {
		d, err := db.Collection(storetest.Deployments(), "test")
		if err != nil {
			t.Errorf("Collection: %v", err)
			break
		}
		_ = d.Close() // it may have been lost by now
	}
	stop.Store(true)
	others.Wait()
	if err := c.Apply(store.Batch{Clear: true}); err != nil {
		t.Error(err)
	}
}
