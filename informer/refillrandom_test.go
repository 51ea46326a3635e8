package informer_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
)

// TestRefill_RandomChanges finds a file damaged again and again while objects change and
// handlers come and take their time. The server forgets nothing, so that nobody may miss
// anything.
func TestRefill_RandomChanges(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("replay with -seed=%d", seed)
	inWorld(t, func(t *testing.T, w *world) {
		w.make = onDisk
		r := rand.New(rand.NewPCG(seed, 1))
		for n := range 100 {
			w.create(name(n))
		}
		s := &tapped{Store: w.memory.Open()}
		p := w.prepareIn(s, func(o *informer.Options) { o.ResyncPeriod = 20 * time.Second })
		handlers := []*recorder{p.handle()}
		p.run()
		for range 150 {
			switch n := r.IntN(100); {
			case n < 4 && s.collection != nil:
				s.collection.Quarantine(errors.New("found by a test"))
			case n < 7:
				handlers = append(handlers, p.handleWith(pace(rand.New(rand.NewPCG(r.Uint64(), seed))), cache.HandlerOptions{}))
			case n < 9:
				w.server.EndWatches()
			default:
				w.change(name(r.IntN(130)), r.IntN(3) == 0)
			}
			if r.IntN(3) == 0 {
				time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
			}
		}
		time.Sleep(90 * time.Second)
		synctest.Wait()
		for _, h := range handlers {
			if !h.registration.HasSynced() {
				t.Error("a handler has not synced")
			}
			p.recorder = h
			p.converged()
		}
		if s := p.status(); s.ReadErr != nil {
			t.Error(s.ReadErr)
		}
		p.stop()
	})
}
