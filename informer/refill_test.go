package informer_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/indexer"
	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/apitest"
	"github.com/warmcache/warmcache/store"
)

// tapped is a store that lets a test find damage in it.
type tapped struct {
	store.Store
	collection store.Collection
}

func (s *tapped) Collection(id store.Identity, owner string) (c store.Collection, err error) {
	s.collection, err = s.Store.Collection(id, owner)
	return s.collection, err
}

// refilled runs an informer with a, b and c in disk residency, finds its file damaged, and
// calls meanwhile while the list of the lost state is held back.
func refilled(t *testing.T, meanwhile func(w *world, p *process), after func(w *world, p *process, r *recorder)) {
	inWorld(t, func(t *testing.T, w *world) {
		open := make(chan struct{})
		w.make = func(lw cache.ListerWatcher, o informer.Options) cache.SharedIndexInformer {
			list := lw.(*cache.ListWatch).ListWithContextFunc
			lw.(*cache.ListWatch).ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				if o.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
					<-open
				}
				return list(ctx, o)
			}
			return onDisk(lw, o)
		}
		w.create("a", "b", "c")
		s := &tapped{Store: w.memory.Open()}
		p := w.prepareIn(s)
		r := p.handle()
		p.run()
		synctest.Wait()
		w.wantEvents(r, "initial a", "initial b", "initial c")
		s.collection.Quarantine(errors.New("found by a test"))
		synctest.Wait()

		_, _, err := p.informer.GetStore().GetByKey("default/a")
		if !errors.Is(err, indexer.ErrUnreadable) || !errors.Is(p.status().ReadErr, indexer.ErrUnreadable) {
			t.Errorf("GetByKey: %v; status: %v", err, p.status().ReadErr)
		}
		listed := make(chan int, 1)
		go func() { listed <- len(p.informer.GetStore().List()) }()
		synctest.Wait()
		meanwhile(w, p)
		select {
		case n := <-listed:
			t.Errorf("List returned %d objects of a store that cannot be read", n)
		default:
		}
		close(open)
		time.Sleep(time.Minute) // backoff, if any
		synctest.Wait()
		if n := <-listed; n == 0 {
			t.Error("List waited, and then returned nothing")
		}
		if s := p.status(); s.ReadErr != nil || s.ReadErrors == 0 || !s.Persistent {
			t.Errorf("status %+v", s)
		}
		after(w, p, r)
		p.stop()
	})
}

// The server still has the state that was lost: handlers are told what has changed since,
// and nothing else.
func TestRefill_AtTheLostVersion(t *testing.T) {
	refilled(t, func(w *world, _ *process) {
		w.delete("a")
		w.update("b", "changed")
	}, func(w *world, p *process, r *recorder) {
		w.wantEvents(r, "delete a", "update b")
		p.converged()
	})
}

// It has forgotten that state: handlers are shown all there is, so that they miss no
// change but a delete.
func TestRefill_AtANewerVersion(t *testing.T) {
	refilled(t, func(w *world, _ *process) {
		w.delete("a")
		w.update("b", "changed")
		w.create("d")
		w.server.Compact()
	}, func(w *world, p *process, r *recorder) {
		w.wantEvents(r, "add b", "add c", "add d")
		p.recorder = nil // it knows of a
		p.converged()
	})
}

// The informer ends while nothing can be read: whoever waits is let go.
func TestRefill_StopsMeanwhile(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.make = onDisk
		w.create("a")
		s := &tapped{Store: w.memory.Open()}
		p := w.prepareIn(s)
		p.run()
		synctest.Wait()
		w.server.Inject(apitest.Fault{Status: http.StatusServiceUnavailable})
		s.collection.Quarantine(errors.New("found by a test"))
		synctest.Wait()
		listed := make(chan []any)
		go func() { listed <- p.informer.GetStore().List() }()
		synctest.Wait()
		p.stop()
		if objs := <-listed; len(objs) > 0 {
			t.Errorf("List returned %v", objs)
		}
		if _, _, err := p.informer.GetStore().GetByKey("default/a"); !errors.Is(err, indexer.ErrUnreadable) {
			t.Errorf("GetByKey: %v", err)
		}
	})
}
