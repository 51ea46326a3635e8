//go:build linux

package powercut

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
)

const (
	// marksName and cacheName are the files of a workload, below its root.
	marksName = "marks"
	cacheName = "cache/cache.db"
)

// retries is how often a step is tried again that meets an injected error.
const retries = 100

// runner is the child: it takes the steps of a workload, and marks them.
type runner struct {
	workload
	path        string
	marks       *os.File
	db          *bolt.DB
	collections map[store.Identity]store.Collection
}

func runChild(argument string) error {
	// Calls to inject into are counted by thread; Open makes all of its own here.
	runtime.LockOSThread()
	r := &runner{}
	if err := json.Unmarshal([]byte(argument), &r.workload); err != nil {
		return err
	}
	r.path = filepath.Join(r.Root, cacheName)
	var err error
	r.marks, err = os.OpenFile(filepath.Join(r.Root, marksName), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	steps := r.script()
	if r.Only > 0 {
		steps = steps[:r.Only]
	}
	for i, s := range steps {
		if err := r.take(i, s); err != nil {
			return fmt.Errorf("step %d, %s: %w", i, s.kind, err)
		}
	}
	return r.marks.Close()
}

// take takes a step, again and again while it fails: what is injected ends.
func (r *runner) take(i int, s step) (err error) {
	r.mark(mark{step: i})
	for n := range retries {
		err = r.do(s)
		absent := s.kind == stepForget && errors.Is(err, store.ErrNotFound)
		if absent && n > 0 {
			// By an attempt that failed: nobody promises that it is durable.
			return nil
		}
		if err == nil || absent {
			r.mark(mark{step: i, end: true})
			return nil
		}
	}
	return err
}

func (r *runner) mark(m mark) { fmt.Fprintln(r.marks, m) }

func (r *runner) do(s step) error {
	switch s.kind {
	case stepOpen:
		return r.open()
	case stepApply:
		c, err := r.collection(s.id)
		if err != nil {
			return err
		}
		return c.Apply(s.batch)
	case stepFlush:
		return r.flush()
	case stepForget:
		return r.forget(s.id)
	case stepClose:
		return r.db.Close()
	case stepDamage:
		return damage(r.path, s.damage)
	case stepReport:
		return r.report()
	}
	return nil
}

// open opens the file. With an even seed only Flush commits; with an odd one
// commits come at any time.
func (r *runner) open() (err error) {
	o := bolt.Options{FlushInterval: time.Hour}
	if r.Seed%2 == 1 {
		o.FlushInterval = time.Millisecond
	}
	r.collections = map[store.Identity]store.Collection{}
	//hygiene:allow bolt.Open: it is recorded; the states on the disk are checked
	r.db, err = bolt.Open(r.path, o)
	return err
}

func (r *runner) collection(id store.Identity) (store.Collection, error) {
	if c := r.collections[id]; c != nil {
		return c, nil
	}
	c, err := r.db.Collection(id, "test")
	if err == nil {
		r.collections[id] = c
	}
	return c, err
}

func (r *runner) flush() error {
	for _, c := range r.collections {
		if err := c.Flush(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) forget(id store.Identity) error {
	if c := r.collections[id]; c != nil {
		if err := c.Flush(context.Background()); err != nil {
			return err
		}
		delete(r.collections, id)
		if err := c.Close(); err != nil {
			return err
		}
	}
	return r.db.Forget(id)
}

// report has the file moved aside while it is open. That the step has ended
// means that the next file has everything that it should have.
func (r *runner) report() error {
	for _, id := range identities() {
		if _, err := r.collection(id); err != nil {
			return err
		}
	}
	reporter := r.collections[identities()[0]]
	lost := reporter.Lost()
	reporter.Quarantine(errors.New("reported by a test"))
	<-lost
	for _, c := range r.collections {
		if err := c.Apply(store.Batch{Clear: true}); err != nil {
			return err
		}
	}
	return r.flush()
}

// damage destroys the file, durably.
func damage(path string, choice int) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(uint64(choice), 0))
	garbage := make([]byte, 2*4096)
	for i := range garbage {
		garbage[i] = byte(random.Uint32())
	}
	switch choice % 3 {
	case 0:
		// Both meta pages.
		_, err = f.WriteAt(garbage, 0)
	case 1:
		// A file of something else.
		if err = f.Truncate(0); err == nil {
			_, err = f.WriteAt([]byte(fmt.Sprintf("this is file %d of another program\n", choice)), 0)
		}
	case 2:
		err = f.Truncate(4096 + int64(choice%4096))
	}
	return errors.Join(err, f.Sync(), f.Close())
}
