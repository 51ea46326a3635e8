package informer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"

	"github.com/warmcache/warmcache/informer"
)

// TestInformer_Updates_BeginWhereTheLastEnded checks the old states of updates, of a
// handler that itself changes what it is told of.
func TestInformer_Updates_BeginWhereTheLastEnded(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		p := w.prepare()
		last := map[string]*corev1.ConfigMap{}
		deleted := 0
		registration := must(p.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) {
				cm := obj.(*corev1.ConfigMap)
				last[cm.Name] = cm
				w.update(cm.Name, "1")
			},
			UpdateFunc: func(old, obj any) {
				cm := obj.(*corev1.ConfigMap)
				if describe(old) != describe(last[cm.Name]) {
					t.Errorf("an update of %s begins at %s, the last ended at %s", cm.Name, describe(old), describe(last[cm.Name]))
				}
				last[cm.Name] = cm
				switch cm.Data["value"] {
				case "1":
					w.update(cm.Name, "2")
				case "2":
					w.delete(cm.Name)
				}
			},
			DeleteFunc: func(obj any) {
				deleted++
				if cm := obj.(*corev1.ConfigMap); cm.Data["value"] != "2" {
					t.Errorf("%s was deleted", describe(cm))
				}
			},
		}))
		p.recorder = &recorder{registration: registration}
		w.create("a")
		p.run()
		p.synced()
		w.create("b", "c")
		synctest.Wait()
		if deleted != 3 {
			t.Errorf("%d of 3 objects reached their end", deleted)
		}
		p.stop()
	})
}

// TestInformer_ReadsShowWhatWasTold checks, at each call of a handler, that the
// store has got at least that far.
func TestInformer_ReadsShowWhatWasTold(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a", "b")
		p := w.prepare()
		version := func(obj any) int64 { return versionNumber(t, obj.(*corev1.ConfigMap).ResourceVersion) }
		reads := func(obj any) {
			found, exists, err := p.informer.GetStore().Get(obj)
			if err != nil || exists && version(found) < version(obj) {
				t.Errorf("told %s, found %v, %v", describe(obj), found, err)
			}
			if at := versionNumber(t, p.informer.LastSyncResourceVersion()); at < version(obj) {
				t.Errorf("told %s, at version %d", describe(obj), at)
			}
		}
		p.recorder = &recorder{registration: must(p.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    reads,
			UpdateFunc: func(_, obj any) { reads(obj) },
			DeleteFunc: func(obj any) {
				if found, exists, _ := p.informer.GetStore().Get(obj); exists {
					t.Errorf("told that %s is gone, found %s", describe(obj), describe(found))
				}
			},
		}))}
		p.run()
		p.synced()
		for _, value := range []string{"1", "2", "3"} {
			w.update("a", value)
			w.create("c" + value)
		}
		w.delete("a", "c1", "c3")
		synctest.Wait()
		p.stop()
	})
}

func versionNumber(t *testing.T, rv string) int64 {
	t.Helper()
	n := int64(0)
	for _, digit := range rv {
		if digit < '0' || digit > '9' {
			t.Fatalf("version %q is not a number", rv)
		}
		n = 10*n + int64(digit-'0')
	}
	return n
}

// TestInformer_Versions checks all the ways to ask for the version, after each kind
// of change.
func TestInformer_Versions(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a", "b")
		p := w.prepare()
		check := func(when, want string) {
			t.Helper()
			synctest.Wait()
			for what, got := range map[string]string{
				"informer":   p.informer.LastSyncResourceVersion(),
				"controller": p.informer.GetController().LastSyncResourceVersion(),
				"store":      p.informer.GetStore().LastStoreSyncResourceVersion(),
				"indexer":    p.informer.GetIndexer().LastStoreSyncResourceVersion(),
			} {
				if got != want {
					t.Errorf("%s: the %s is at %q, want %q", when, what, got, want)
				}
			}
		}
		check("before the start", "")
		p.recorder = p.handle()
		p.run()
		p.synced()
		check("list", w.server.ResourceVersion())
		w.create("c")
		check("add", w.server.ResourceVersion())
		w.update("a", "new")
		check("update", w.server.ResourceVersion())
		w.delete("b")
		check("delete", w.server.ResourceVersion())
		w.whileDown(func() { w.update("a", "newer") })
		time.Sleep(2 * time.Minute)
		check("list again", w.server.ResourceVersion())
		p.stop()
		check("after the stop", w.server.ResourceVersion())
	})
}

// TestInformer_RelistOrder checks that a list tells first what is gone, and then
// what differs, in its own order. client-go has no order among the latter when the
// list is streamed.
func TestInformer_RelistOrder(t *testing.T) {
	bothModes(t, func(t *testing.T, w *world) {
		w.create("b", "c", "d", "x", "y")
		p := w.start().synced()
		p.recorder.take()
		w.whileDown(func() {
			w.update("d", "new")
			w.update("b", "new")
			w.create("a", "z")
			w.delete("y", "x")
		})
		time.Sleep(2 * time.Minute)
		w.wantEvents(p.recorder, "delete x", "delete y", "add a", "update b", "update d", "add z")
		p.stop()
	})
}

// TestInformer_RelistAndResyncs checks what a list after a cut watch tells a handler
// that resyncs: what differs. client-go tells it everything.
func TestInformer_RelistAndResyncs(t *testing.T) {
	bothModes(t, func(t *testing.T, w *world) {
		w.create("same", "changed")
		p := w.prepare(func(o *informer.Options) { o.ResyncPeriod = time.Hour })
		resyncing := p.handle()
		other := p.handleWith(nil, cache.HandlerOptions{ResyncPeriod: new(time.Duration)})
		p.run()
		time.Sleep(61 * time.Minute)
		synctest.Wait()
		if n := len(resyncing.take()); n != 4 {
			t.Errorf("%d events, want 2 objects and their resync", n)
		}
		w.wantEvents(other, "initial changed", "initial same")
		w.whileDown(func() { w.update("changed", "new"); w.create("added") })
		time.Sleep(2 * time.Minute)
		w.wantEvents(resyncing, "add added", "update changed")
		w.wantEvents(other, "add added", "update changed")
		p.stop()
	})
}

// TestInformer_ResyncsAcrossLists checks that lists do not put resyncs off. client-go
// begins to count anew at each.
func TestInformer_ResyncsAcrossLists(t *testing.T) {
	bothModes(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.start(func(o *informer.Options) { o.ResyncPeriod = 10 * time.Minute }).synced()
		for round := range 3 {
			p.recorder.take()
			time.Sleep(5 * time.Minute)
			w.whileDown(func() { w.update("a", fmt.Sprint(round)) })
			time.Sleep(3 * time.Minute)
			w.wantEvents(p.recorder, "update a")
			time.Sleep(2*time.Minute + time.Millisecond)
			w.wantEvents(p.recorder, "resync a")
		}
		p.stop()
	})
}

// TestInformer_NegativeResyncPeriod checks that it means none. client-go takes it for
// a period shorter than the informer's.
func TestInformer_NegativeResyncPeriod(t *testing.T) {
	bothModes(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.prepare(func(o *informer.Options) { o.ResyncPeriod = time.Minute })
		never := -time.Second
		r := p.handleWith(nil, cache.HandlerOptions{ResyncPeriod: &never})
		p.handle()
		p.run()
		time.Sleep(5 * time.Minute)
		w.wantEvents(r, "initial a")
		p.stop()
	})
}

// TestInformer_NoExample checks an informer that does not say what type it expects:
// it takes any.
func TestInformer_NoExample(t *testing.T) {
	for name, m := range map[string]func(cache.ListerWatcher) cache.SharedIndexInformer{
		"client-go": func(lw cache.ListerWatcher) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformer(lw, nil, 0, cache.Indexers{})
		},
		"ours": func(lw cache.ListerWatcher) cache.SharedIndexInformer {
			return must(informer.New(lw, nil, informer.Options{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.create("a")
				foreign := &corev1.Secret{ObjectMeta: configMap("a", "").ObjectMeta}
				foreign.ResourceVersion = "1000"
				w.make = func(lw cache.ListerWatcher, _ informer.Options) cache.SharedIndexInformer {
					return m(tampered(lw, foreign))
				}
				p := w.start().synced()
				w.update("a", "new")
				w.wantEvents(p.recorder, "initial a", "update a")
				if found, _, err := p.informer.GetStore().GetByKey("default/a"); found != any(foreign) || err != nil {
					t.Errorf("found %v, %v", found, err)
				}
				if got, want := p.informer.HasSyncedChecker().Name(), "SharedIndexInformer <nil>"; got != want {
					t.Errorf("name %q, want %q", got, want)
				}
				p.stop()
			})
		})
	}
}

// tampered is a ListerWatcher whose watches show another object than the server
// sent, once.
func tampered(lw cache.ListerWatcher, instead runtime.Object) cache.ListerWatcher {
	done := false
	inner := cache.ToListerWatcherWithContext(lw)
	return &cache.ListWatch{
		ListWithContextFunc: inner.ListWithContext,
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := inner.WatchWithContext(ctx, o)
			if err != nil {
				return nil, err
			}
			events := make(chan watch.Event)
			proxy := watch.NewProxyWatcher(events)
			go func() {
				defer w.Stop()
				defer close(events)
				for e := range w.ResultChan() {
					if e.Type == watch.Modified && !done {
						done, e.Object = true, instead
					}
					select {
					case events <- e:
					case <-proxy.StopChan():
						return
					}
				}
			}()
			go func() { <-proxy.StopChan(); w.Stop() }()
			return proxy, nil
		},
	}
}

// TestInformer_ForeignObjects checks that an object of another type, or of another
// kind where the Go type does not tell, reaches nobody, and that the change that it
// stands for is not lost. client-go goes on without it.
func TestInformer_ForeignObjects(t *testing.T) {
	expected, other := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	expected.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	other.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	other.SetNamespace("default")
	other.SetName("a")
	for name, test := range map[string]struct {
		example, foreign runtime.Object
		dynamic          bool
	}{
		"type": {example: &corev1.ConfigMap{}, foreign: &corev1.Secret{ObjectMeta: configMap("a", "").ObjectMeta}},
		"kind": {example: expected, foreign: other, dynamic: true},
	} {
		t.Run(name, func(t *testing.T) {
			bothModes(t, func(t *testing.T, w *world) {
				inner := w.make
				w.make = func(lw cache.ListerWatcher, o informer.Options) cache.SharedIndexInformer {
					if test.dynamic {
						lw = dynamicListWatch(t, w)
					}
					return inner(tampered(lw, test.foreign), o)
				}
				if test.dynamic {
					inner = func(lw cache.ListerWatcher, o informer.Options) cache.SharedIndexInformer {
						return must(informer.New(lw, test.example, o))
					}
				}
				w.create("a")
				p := w.prepare()
				p.recorder = p.handle()
				p.run()
				p.synced()
				before := p.status().RV
				w.update("a", "1")
				w.wantEvents(p.recorder, "initial a")
				if s := p.status(); s.RV != before || s.Err == nil {
					t.Errorf("status %+v", s)
				}
				time.Sleep(2 * time.Minute)
				w.wantEvents(p.recorder, "update a")
				if s := p.status(); s.Lists != 2 || s.Err != nil || s.RV != w.server.ResourceVersion() {
					t.Errorf("status %+v", s)
				}
				p.stop()
			})
		})
	}
}

func dynamicListWatch(t *testing.T, w *world) cache.ListerWatcher {
	t.Helper()
	client, err := dynamic.NewForConfig(w.server.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	resource := client.Resource(configMaps)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return resource.List(ctx, o)
		},
		WatchFuncWithContext: resource.Watch,
	}
}

// TestInformer_Tables checks that a client that asks for tables, which hold rows
// instead of objects, is an error and not an empty collection.
func TestInformer_Tables(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		table := &metav1.Table{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "Table"}}
		table.ResourceVersion = "1"
		lw := &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return table, nil },
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				return nil, errors.New("no watches")
			},
		}
		i := w.make(lw, informer.Options{Store: w.memory.Open(), Identity: identity})
		var failed error
		if err := i.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { failed = err }); err != nil {
			t.Fatal(err)
		}
		p := &process{w: w, informer: i, done: make(chan struct{})}
		p.run()
		time.Sleep(time.Minute)
		synctest.Wait()
		if i.HasSynced() || failed == nil || !strings.Contains(strings.ToLower(failed.Error()), "table") {
			t.Errorf("synced %v, error %v", i.HasSynced(), failed)
		}
		p.stop()
	})
}

// TestInformer_FakeControllerSource checks informers on the source that tests of
// client-go and of many controllers use. It knows neither streamed lists nor limits
// nor bookmarks, and lets versions expire.
func TestInformer_FakeControllerSource(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		source := cachetesting.NewFakeControllerSource()
		defer source.Shutdown()
		source.Add(configMap("a", "1"))
		source.Add(configMap("b", "1"))
		i := w.make(source, informer.Options{Store: w.memory.Open(), Identity: identity})
		p := &process{w: w, informer: i, done: make(chan struct{})}
		p.recorder = p.handle()
		p.run()
		p.synced()
		w.wantEvents(p.recorder, "initial a", "initial b")
		source.Modify(configMap("a", "2"))
		source.Add(configMap("c", "1"))
		source.Delete(configMap("b", "1"))
		w.wantEvents(p.recorder, "update a", "add c", "delete b")
		source.ModifyDropWatch(configMap("a", "3"))
		source.AddDropWatch(configMap("d", "1"))
		source.DeleteDropWatch(configMap("c", "1"))
		w.wantEvents(p.recorder)
		source.ResetWatch()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		got := p.recorder.take()
		slices.Sort(got) // it lists in no order
		if want := []string{"add d", "delete c", "update a"}; !slices.Equal(got, want) {
			t.Errorf("told %v, want %v", got, want)
		}
		p.stop()
	})
}
