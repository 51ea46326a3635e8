package informer_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
)

// TestInformer_RelistInSteadyState checks what handlers are told of changes that
// the watch has missed.
func TestInformer_RelistInSteadyState(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("changed", "deleted", "recreated")
		p := w.prepare()
		finalState := map[string]string{}
		deletes := cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
			tombstone, ok := obj.(cache.DeletedFinalStateUnknown)
			if !ok {
				t.Errorf("deleted %T, want a tombstone", obj)
				return
			}
			finalState[tombstone.Key] = tombstone.Obj.(*corev1.ConfigMap).Data["value"]
		}}
		if _, err := p.informer.AddEventHandler(deletes); err != nil {
			t.Fatal(err)
		}
		p.recorder = p.handle()
		p.run()
		p.synced()
		p.recorder.take()
		w.whileDown(func() {
			w.update("changed", "new")
			w.delete("deleted", "recreated")
			w.create("added", "recreated")
		})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		got := p.recorder.take()
		slices.Sort(got)
		if want := []string{"add added", "delete deleted", "update changed", "update recreated"}; !slices.Equal(got, want) {
			t.Errorf("told %v, want %v", got, want)
		}
		if want := map[string]string{"default/deleted": "created"}; !maps.Equal(finalState, want) {
			t.Errorf("last known states %v, want %v", finalState, want)
		}
		p.converged()
		p.stop()
	})
}

// TestInformer_UnchangedRelist checks that a list that brings nothing new is
// neither told nor written.
func TestInformer_UnchangedRelist(t *testing.T) {
	bothModes(t, func(t *testing.T, w *world) {
		w.create("a", "b")
		var writes *countingStore
		p := w.start(func(o *informer.Options) {
			writes = &countingStore{Store: o.Store}
			o.Store = writes
		}).synced()
		p.recorder.take()
		before := writes.ops.Load()
		w.whileDown(func() {
			if err := w.server.Create(&corev1.Secret{ObjectMeta: configMap("s", "").ObjectMeta}); err != nil {
				t.Fatal(err)
			}
		})
		time.Sleep(2 * time.Minute)
		w.wantEvents(p.recorder)
		if got := p.lists(); got != 2 {
			t.Errorf("%d lists, want 2", got)
		}
		if after := writes.ops.Load(); after != before {
			t.Errorf("%d objects written by an unchanged list", after-before)
		}
		p.converged()
		p.stop()
	})
}

// TestInformer_RestoredWhileRunning checks that the informer follows a server that
// goes back in time under it.
func TestInformer_RestoredWhileRunning(t *testing.T) {
	bothModes(t, func(t *testing.T, w *world) {
		w.create("a", "b")
		before := w.server.Snapshot()
		p := w.start().synced()
		w.create("c")
		w.update("a", "new")
		synctest.Wait()
		p.recorder.take()
		w.server.Restore(before)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		got := p.recorder.take()
		slices.Sort(got)
		if want := []string{"delete c", "update a"}; !slices.Equal(got, want) {
			t.Errorf("told %v, want %v", got, want)
		}
		p.converged()
		w.create("d")
		w.wantEvents(p.recorder, "add d")
		if got, want := p.status().RV, w.server.ResourceVersion(); got != want {
			t.Errorf("version %s, want the server's %s", got, want)
		}
		p.stop()
	})
}

// TestInformer_TransformFails checks that the version does not move past an object
// that could not be transformed.
func TestInformer_TransformFails(t *testing.T) {
	bothModes(t, func(t *testing.T, w *world) {
		w.create("a")
		var broken atomic.Bool
		p := w.prepare()
		if err := p.informer.SetTransform(func(obj any) (any, error) {
			if cm, ok := obj.(*corev1.ConfigMap); ok && broken.Load() && cm.Name == "b" {
				return nil, errors.New("broken transform")
			}
			return obj, nil
		}); err != nil {
			t.Fatal(err)
		}
		p.recorder = p.handle()
		p.run()
		p.synced()
		before := p.status().RV
		broken.Store(true)
		w.create("b", "c")
		time.Sleep(time.Minute)
		w.wantEvents(p.recorder, "initial a")
		if s := p.status(); s.RV != before || s.Err == nil {
			t.Errorf("status %+v, want version %s", s, before)
		}
		broken.Store(false)
		time.Sleep(2 * time.Minute)
		w.wantEvents(p.recorder, "add b", "add c")
		p.converged()
		p.stop()
	})
}

func TestInformer_Transform(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.prepare()
		if err := p.informer.SetTransform(stamp(nil)); err != nil {
			t.Fatal(err)
		}
		p.recorder = p.handle()
		p.run()
		p.synced()
		w.update("a", "new")
		w.create("b")
		synctest.Wait()
		for key, state := range p.recorder.known() {
			if !strings.HasSuffix(state, "+") || strings.HasSuffix(state, "++") {
				t.Errorf("%s was transformed to %s", key, state)
			}
		}
		p.stop()
	})
}

// stamp is a transform that shows how often it was applied to an object.
func stamp(calls map[string]int) cache.TransformFunc {
	return func(obj any) (any, error) {
		if cm, ok := obj.(*corev1.ConfigMap); ok {
			cm.Data = map[string]string{"value": cm.Data["value"] + "+"}
			if calls != nil {
				calls[cm.Name]++
			}
		}
		return obj, nil
	}
}

// TestInformer_StoredObjectsAreNotTransformedAgain covers a resumed and a
// reconciled start.
func TestInformer_StoredObjectsAreNotTransformedAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("same", "changed", "deleted")
		start := func(calls map[string]int, version string) *process {
			p := w.prepare(func(o *informer.Options) { o.TransformVersion = version })
			if err := p.informer.SetTransform(stamp(calls)); err != nil {
				t.Fatal(err)
			}
			p.recorder = p.handle()
			p.run()
			return p.synced()
		}
		start(nil, "1").kill()
		w.update("changed", "new")
		calls := map[string]int{}
		p := start(calls, "1")
		if p.lists() != 0 || !maps.Equal(calls, map[string]int{"changed": 1}) {
			t.Errorf("%d lists, transformed %v at a resumed start", p.lists(), calls)
		}
		for key, state := range p.recorder.known() {
			if strings.Count(state, "+") != 1 {
				t.Errorf("%s was transformed to %s", key, state)
			}
		}
		p.kill()
		w.delete("deleted")

		// Another transform lists everything, once, and still tells the delete.
		p = start(nil, "2")
		if p.lists() != 1 {
			t.Errorf("%d lists with another transform", p.lists())
		}
		if events := p.recorder.take(); !slices.Contains(events, "delete deleted") {
			t.Errorf("told %v", events)
		}
		if known := p.recorder.known(); len(known) != 2 {
			t.Errorf("handler knows %v", known)
		}
		p.kill()
		p = start(nil, "2")
		if p.lists() != 0 {
			t.Error("listed a second time because of the transform")
		}
		p.stop()
	})
}

// TestInformer_EqualVersionReachesOnlyResyncingHandlers checks client-go's rule
// for objects whose content changes under the same version.
func TestInformer_EqualVersionReachesOnlyResyncingHandlers(t *testing.T) {
	bothModes(t, func(t *testing.T, w *world) {
		w.create("a")
		var content atomic.Value
		content.Store("1")
		p := w.prepare(func(o *informer.Options) { o.ResyncPeriod = time.Hour })
		if err := p.informer.SetTransform(func(obj any) (any, error) {
			if cm, ok := obj.(*corev1.ConfigMap); ok {
				cm.Data = map[string]string{"value": content.Load().(string)}
			}
			return obj, nil
		}); err != nil {
			t.Fatal(err)
		}
		resyncing := p.handleWith(nil, cache.HandlerOptions{})
		other := p.handleWith(nil, cache.HandlerOptions{ResyncPeriod: new(time.Duration)})
		p.recorder = resyncing
		p.run()
		p.synced()
		time.Sleep(61 * time.Minute)
		w.wantEvents(resyncing, "initial a", "resync a")
		w.wantEvents(other, "initial a")
		content.Store("2")
		w.whileDown(func() {
			if err := w.server.Create(&corev1.Secret{ObjectMeta: configMap("s", "").ObjectMeta}); err != nil {
				t.Fatal(err)
			}
		})
		time.Sleep(2 * time.Minute)
		w.wantEvents(resyncing, "update a")
		w.wantEvents(other)
		p.stop()
	})
}

func TestInformer_Resync(t *testing.T) {
	const none = time.Duration(0)
	for _, test := range []struct {
		name          string
		period        time.Duration
		early, late   time.Duration
		wantE, wantL  int // resyncs within 2 minutes
		defaultPeriod bool
	}{
		{name: "none", period: none, early: none, late: none},
		{name: "the informer does none", period: none, early: time.Minute, late: time.Minute},
		{name: "per handler", period: 10 * time.Second, early: 10 * time.Second, late: 30 * time.Second, wantE: 12, wantL: 4},
		{name: "by default", period: 30 * time.Second, defaultPeriod: true, wantE: 4, wantL: 4},
		{name: "a handler before the start shortens the check period", period: time.Minute, early: 20 * time.Second, late: time.Minute, wantE: 6, wantL: 2},
		{name: "a handler after the start does not", period: time.Minute, early: time.Minute, late: 20 * time.Second, wantE: 2, wantL: 2},
		{name: "one second is the minimum", period: 10 * time.Second, early: time.Millisecond, late: none, wantE: 120},
		{name: "rounded up to the check period", period: 20 * time.Second, early: 30 * time.Second, late: none, wantE: 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			asClientGo(t, func(t *testing.T, w *world) {
				w.create("a")
				p := w.prepare(func(o *informer.Options) { o.ResyncPeriod = test.period })
				options := func(period time.Duration) cache.HandlerOptions {
					if test.defaultPeriod {
						return cache.HandlerOptions{}
					}
					return cache.HandlerOptions{ResyncPeriod: &period}
				}
				early := p.handleWith(nil, options(test.early))
				p.run()
				<-early.registration.HasSyncedChecker().Done()
				late := p.handleWith(nil, options(test.late))
				time.Sleep(2*time.Minute + 100*time.Millisecond)
				synctest.Wait()
				for r, want := range map[*recorder]int{early: test.wantE, late: test.wantL} {
					got := 0
					for _, e := range r.take() {
						if e == "resync a" {
							got++
						}
					}
					if got != want {
						t.Errorf("%d resyncs, want %d", got, want)
					}
				}
				p.stop()
			})
		})
	}
}

// TestInformer_ManyRelists checks that expired versions under churn lose nothing.
func TestInformer_ManyRelists(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		for n := range 30 {
			w.create(name(n))
		}
		p := w.start().synced()
		for round := range 10 {
			w.whileDown(func() {
				for n := range 30 {
					switch (n + round) % 3 {
					case 0:
						w.delete(name(n))
						w.create(name(n))
					case 1:
						w.update(name(n), string(rune('a'+round)))
					}
				}
			})
			time.Sleep(time.Minute)
		}
		time.Sleep(5 * time.Minute)
		p.converged()
		p.stop()
	})
}
