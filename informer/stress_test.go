package informer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
)

// TestInformer_Stress does everything at once, for the race detector, and then
// compares.
func TestInformer_Stress(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		for n := range 200 {
			w.create(name(n))
		}
		p := w.prepare(func(o *informer.Options) { o.ResyncPeriod = time.Second })
		p.recorder = p.handle()
		p.run()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		repeat := func(every time.Duration, do func(n int)) {
			all.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					do(n)
					time.Sleep(time.Duration(rand.ExpFloat64() * float64(every)))
				}
			})
		}
		repeat(5*time.Millisecond, func(int) {
			key := name(rand.IntN(200))
			if _, err := w.server.Get(configMaps, "default", key); err != nil {
				w.create(key)
			} else if rand.IntN(3) == 0 {
				w.delete(key)
			} else {
				w.update(key, fmt.Sprint(rand.Uint32()))
			}
		})
		for range 3 {
			repeat(20*time.Millisecond, func(int) {
				r := p.handle()
				time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
				if err := cache.ShutDownEventHandler(p.informer, r.registration); err != nil {
					t.Error(err)
				}
				known := len(r.known())
				time.Sleep(10 * time.Millisecond)
				if len(r.known()) != known {
					t.Error("a handler was called after it was shut down")
				}
			})
		}
		repeat(50*time.Millisecond, func(n int) {
			if err := p.informer.AddIndexers(cache.Indexers{fmt.Sprint("index", n): byValue}); err != nil {
				t.Error(err)
			}
		})
		repeat(3*time.Millisecond, func(int) {
			informer.StatusOf(p.informer)
			p.informer.HasSynced()
			p.informer.LastSyncResourceVersion()
			p.informer.GetStore().List()
			if _, err := p.informer.GetIndexer().ByIndex(cache.NamespaceIndex, "default"); err != nil {
				t.Error(err)
			}
		})
		repeat(300*time.Millisecond, func(int) { w.server.EndWatches() })
		repeat(time.Second, func(int) { w.server.Compact() })
		time.Sleep(5 * time.Second)
		cancel()
		all.Wait()
		time.Sleep(5 * time.Minute)
		p.converged()
		p.stop()
	})
}
