package informer_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store"
)

// flushedStore counts the changes of departed records that were not flushed: those
// that a store may lose with the process.
type flushedStore struct {
	store.Store
	unflushed atomic.Int64
}

func (s *flushedStore) Collection(id store.Identity, owner string) (store.Collection, error) {
	c, err := s.Store.Collection(id, owner)
	return &flushedCollection{c, s}, err
}

type flushedCollection struct {
	store.Collection
	store *flushedStore
}

func (c *flushedCollection) Apply(b store.Batch) error {
	c.store.unflushed.Add(int64(len(b.Departed)))
	return c.Collection.Apply(b)
}

func (c *flushedCollection) Flush(ctx context.Context) error {
	err := c.Collection.Flush(ctx)
	if err == nil {
		c.store.unflushed.Store(0)
	}
	return err
}

// flushed puts a flushedStore between a new process and its store.
func (w *world) flushed() (*process, *flushedStore) {
	s := &flushedStore{}
	return w.prepare(func(o *informer.Options) {
		s.Store = o.Store
		o.Store = s
	}), s
}

// TestDeparted_AttemptsAreFlushed checks that attempts are durable before a handler
// is given what may end the process, and that so is their end, soon after: the
// process may be killed for any other reason. The first time a delete is found, its
// attempt is noted when all are read, later when its turn comes.
func TestDeparted_AttemptsAreFlushed(t *testing.T) {
	for name, late := range map[string]bool{"early handler": false, "late handler": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.gone("a", "b")
				for _, want := range [][]string{{"a 1", "b 1"}, {"a 2", "b 1"}} {
					p, s := w.flushed()
					reached, leave := make(chan struct{}), make(chan struct{})
					handle := func() {
						p.recorder = p.handleWith(func(event string) {
							if event == "initial a" {
								if n := s.unflushed.Load(); n != 0 {
									t.Errorf("%d changes are not durable", n)
								}
								close(reached)
								<-leave
							}
						}, cache.HandlerOptions{})
					}
					if !late {
						handle()
					}
					p.run()
					if late {
						<-p.informer.HasSyncedChecker().Done()
						handle()
					}
					<-reached
					w.memory.Open() // the process is killed
					close(leave)
					p.stop()
					if got := w.departed(); !slices.Equal(got, want) {
						t.Errorf("departed %v, want %v", got, want)
					}
				}
			})
		})
	}
}

func TestDeparted_EndOfAttemptsIsFlushed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gone("a")
		p, s := w.flushed()
		p.recorder = p.handle()
		p.run()
		p.synced()
		time.Sleep(time.Second) // much less than the retention
		synctest.Wait()
		if n := s.unflushed.Load(); n != 0 {
			t.Errorf("%d changes are not durable", n)
		}
		p.kill()
		if got := w.departed(); !slices.Equal(got, []string{"a 0"}) {
			t.Errorf("departed %v", got)
		}
	})
}

// TestDeparted_StopBetweenAddAndDelete checks that graceful stops take an attempt
// back which has begun, with the object introduced and not yet deleted.
func TestDeparted_StopBetweenAddAndDelete(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gone("a")
		for range 5 {
			p := w.prepare()
			reached, leave := make(chan struct{}), make(chan struct{})
			p.recorder = p.handleWith(func(event string) {
				if event == "initial a" {
					close(reached)
					<-leave
				}
			}, cache.HandlerOptions{})
			p.run()
			<-reached
			p.cancel()
			synctest.Wait() // the handler is told nothing more
			close(leave)
			<-p.done
			w.wantEvents(p.recorder, "initial a")
			if got := w.departed(); !slices.Equal(got, []string{"a 0"}) {
				t.Fatalf("departed %v", got)
			}
		}
		p := w.start().synced()
		w.wantEvents(p.recorder, "initial a", "delete a", "initial kept")
		p.stop()
	})
}

// hangingStore is a store whose disk does not answer.
type hangingStore struct{ store.Store }

func (s hangingStore) Collection(id store.Identity, owner string) (store.Collection, error) {
	c, err := s.Store.Collection(id, owner)
	return hangingCollection{c}, err
}

type hangingCollection struct{ store.Collection }

func (hangingCollection) Flush(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestDeparted_HangingDisk checks that handlers and statuses do not wait for each
// record that was being delivered when a process ended.
func TestDeparted_HangingDisk(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		names := make([]string, 100)
		for n := range names {
			names[n] = fmt.Sprintf("gone-%02d", n)
		}
		w.gone(names...)
		p := w.start().synced() // finds and delivers them
		p.kill()                // at once, so that the attempts are not over
		p = w.prepare(func(o *informer.Options) { o.Store = hangingStore{o.Store} })
		start := time.Now()
		p.run()
		<-p.informer.HasSyncedChecker().Done()
		joined := make(chan struct{})
		go func() {
			defer close(joined)
			p.recorder = p.handle()
		}()
		p.status()
		if waited := time.Since(start); waited > 4*time.Second {
			t.Errorf("a status took until %s after the start", waited)
		}
		<-joined
		<-p.recorder.registration.HasSyncedChecker().Done()
		if waited := time.Since(start); waited > 20*time.Second {
			t.Errorf("the handler had synced %s after the start", waited)
		}
		p.stop()
	})
}
