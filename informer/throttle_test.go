package informer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmcache/warmcache/store"
)

// slowStore is a store whose disk does not take what is applied, as long as it fails or
// hangs.
type slowStore struct {
	store.Store
	fails, hangs atomic.Bool
}

func (s *slowStore) Collection(id store.Identity, owner string) (store.Collection, error) {
	c, err := s.Store.Collection(id, owner)
	return &slowCollection{c, s}, err
}

type slowCollection struct {
	store.Collection
	disk *slowStore
}

var errDisk = errors.New("no space left on device")

func (c *slowCollection) Durability() store.Durability {
	d := c.Collection.Durability()
	if c.disk.fails.Load() {
		d.Err = errDisk
	}
	if c.disk.fails.Load() || c.disk.hangs.Load() {
		d.Pending = 1 << 30
	}
	return d
}

func (c *slowCollection) Flush(ctx context.Context) error {
	if c.disk.hangs.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if c.disk.fails.Load() {
		return errDisk
	}
	return c.Collection.Flush(ctx)
}

// TestDisk_StopsReadingWhenTooMuchWaits checks that changes do not pile up in memory for
// a disk that fails or hangs, that reads go on, and that nothing is missed.
func TestDisk_StopsReadingWhenTooMuchWaits(t *testing.T) {
	for name, breaks := range map[string]func(*slowStore) *atomic.Bool{
		"fails": func(s *slowStore) *atomic.Bool { return &s.fails },
		"hangs": func(s *slowStore) *atomic.Bool { return &s.hangs },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.make = onDisk
				w.create("a")
				s := &slowStore{Store: w.memory.Open()}
				p := w.prepareIn(s)
				p.recorder = p.handle()
				p.run()
				synctest.Wait()
				broken := breaks(s)
				broken.Store(true)
				w.create("b") // what the pump has begun to wait for
				synctest.Wait()
				w.create("c")
				time.Sleep(time.Minute)
				if !p.status().Throttled {
					t.Error("changes are applied although too much waits")
				}
				if _, exists, err := p.informer.GetStore().GetByKey("default/c"); exists || err != nil {
					t.Errorf("default/c is there: %v, %v", exists, err)
				}
				if _, exists, err := p.informer.GetStore().GetByKey("default/a"); !exists || err != nil {
					t.Errorf("default/a: %v, %v", exists, err)
				}
				broken.Store(false)
				time.Sleep(time.Minute)
				p.converged()
				if p.status().Throttled {
					t.Error("still throttled")
				}
				broken.Store(true)
				w.create("d", "e")
				time.Sleep(time.Minute)
				p.stop() // does not wait for the disk
			})
		})
	}
}
