package informer_test

import (
	"bytes"
	"context"
	"errors"
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
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/textlogger"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store"
)

// TestInformer_Contradictions checks events that do not go with the stored copy.
// The copy is tampered with, as a server that was restored and has since passed
// our version would do.
func TestInformer_Contradictions(t *testing.T) {
	for _, test := range []struct {
		name   string
		tamper func(w *world)
	}{
		{"added, but held", func(w *world) { w.pretend("1") }},
		{"added, but another is held", func(w *world) {
			w.delete("a")
			w.pretend(w.server.ResourceVersion())
			w.create("a")
		}},
		{"modified, but another is held", func(w *world) {
			w.delete("a")
			w.create("a")
			w.pretend(w.server.ResourceVersion())
			w.update("a", "new")
		}},
		{"modified, but not held", func(w *world) {
			w.pretend(w.server.ResourceVersion(), store.Op{Key: "default/a"})
			w.update("a", "new")
		}},
		{"deleted, but not held", func(w *world) {
			w.pretend(w.server.ResourceVersion(), store.Op{Key: "default/a"})
			w.delete("a")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.create("a", "b")
				w.start().synced().kill()
				test.tamper(w)
				p := w.start().synced()
				p.converged()
				if s := p.status(); p.lists() != 1 || !strings.Contains(s.ListReason, "contradict") {
					t.Errorf("%d lists, status %+v", p.lists(), s)
				}
				p.stop()
			})
		})
	}
}

// pretend makes the store say that it is at version rv, and changes objects in it.
func (w *world) pretend(rv string, ops ...store.Op) {
	w.t.Helper()
	header := *w.contents().Header
	header.RV = rv
	c, err := w.memory.Open().Collection(withForm(identity), "test")
	if err != nil {
		w.t.Fatal(err)
	}
	if err := c.Apply(store.Batch{Header: &header, Ops: ops}); err != nil {
		w.t.Fatal(err)
	}
}

// TestInformer_NoFalseContradictions checks sequences that look like one.
func TestInformer_NoFalseContradictions(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a", "b")
		w.start().synced().kill()
		w.delete("a")
		w.create("a")
		w.delete("a")
		w.create("a", "c")
		w.update("c", "new")
		w.delete("c")
		w.update("b", "new")
		w.delete("b")
		p := w.start().synced()
		p.converged()
		if p.lists() != 0 {
			t.Errorf("%d lists, %q", p.lists(), p.status().ListReason)
		}
		p.stop()
	})
}

// TestInformer_SecondHandlerShortensTheCheckPeriod checks the rule that also
// changes the period of handlers that were there before.
func TestInformer_SecondHandlerShortensTheCheckPeriod(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.prepare(func(o *informer.Options) { o.ResyncPeriod = time.Minute })
		count := func(period time.Duration) *int {
			n := 0
			if _, err := p.informer.AddEventHandlerWithResyncPeriod(cache.ResourceEventHandlerFuncs{
				UpdateFunc: func(_, _ any) { n++ },
			}, period); err != nil {
				t.Fatal(err)
			}
			return &n
		}
		first, second := count(30*time.Second), count(20*time.Second)
		p.run()
		<-p.informer.HasSyncedChecker().Done()
		time.Sleep(2*time.Minute + 100*time.Millisecond)
		synctest.Wait()
		if *first != 3 || *second != 6 {
			t.Errorf("%d and %d resyncs, want 3 and 6", *first, *second)
		}
		p.stop()
	})
}

func TestInformer_HasStarted(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		p := w.prepare()
		started := p.informer.(interface{ HasStarted() bool })
		if started.HasStarted() {
			t.Error("started before Run")
		}
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.informer.Run(stop)
		}()
		<-p.informer.HasSyncedChecker().Done()
		if !started.HasStarted() {
			t.Error("not started")
		}
		close(stop)
		<-done
	})
}

// TestInformer_Forms restarts informers of the other forms.
func TestInformer_Forms(t *testing.T) {
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	untyped := &unstructured.Unstructured{}
	untyped.SetGroupVersionKind(gvk)
	partial := &metav1.PartialObjectMetadata{}
	partial.SetGroupVersionKind(gvk)
	listWatch := func(list func(context.Context, metav1.ListOptions) (runtime.Object, error), watch func(context.Context, metav1.ListOptions) (watch.Interface, error)) cache.ListerWatcher {
		return &cache.ListWatch{ListWithContextFunc: list, WatchFuncWithContext: watch}
	}
	for form, example := range map[store.Form]runtime.Object{store.FormUnstructured: untyped, store.FormMetadata: partial} {
		t.Run(string(form), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				d, err := dynamic.NewForConfig(w.server.RESTConfig())
				if err != nil {
					t.Fatal(err)
				}
				m, err := metadata.NewForConfig(w.server.RESTConfig())
				if err != nil {
					t.Fatal(err)
				}
				lw := listWatch(
					func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
						return d.Resource(configMaps).List(ctx, o)
					}, d.Resource(configMaps).Watch)
				if form == store.FormMetadata {
					lw = listWatch(
						func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
							return m.Resource(configMaps).List(ctx, o)
						}, m.Resource(configMaps).Watch)
				}
				w.make = func(_ cache.ListerWatcher, o informer.Options) cache.SharedIndexInformer {
					return must(informer.New(lw, example, o))
				}
				w.create("a", "deleted")
				w.start().synced().kill()
				w.delete("deleted")
				w.update("a", "new")
				p := w.start().synced()
				w.wantEvents(p.recorder, "initial deleted", "delete deleted", "initial a")
				if p.lists() != 0 || !p.status().Persistent {
					t.Errorf("%d lists, status %+v", p.lists(), p.status())
				}
				if got := p.info().Identity.Form; got != form {
					t.Errorf("form %s", got)
				}
				p.stop()
			})
		})
	}
}

// TestInformer_Logs checks what an operator needs to find: why an informer does
// not persist or did not flush, under the name of the informer and its owner.
func TestInformer_Logs(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var log bytes.Buffer
		logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
		name, err := cache.NewInformerName("owner")
		if err != nil {
			t.Fatal(err)
		}
		defer name.Release()
		w.create("a")
		p := w.start(func(o *informer.Options) {
			o.Logger = &logger
			o.Identifier = name.WithResource(configMaps)
			o.Store = unflushable{o.Store}
		}).synced()
		p.stop()
		for _, want := range []string{"did not reach the disk", "no space left", `informer="owner v1/configmaps`} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log does not say %q:\n%s", want, log.String())
			}
		}
	})
}

// unflushable is a store whose disk is full.
type unflushable struct{ store.Store }

func (s unflushable) Collection(id store.Identity, owner string) (store.Collection, error) {
	c, err := s.Store.Collection(id, owner)
	return unflushableCollection{c}, err
}

type unflushableCollection struct{ store.Collection }

var errNoSpace = errors.New("no space left on device")

func (c unflushableCollection) Flush(context.Context) error { return errNoSpace }
func (c unflushableCollection) Close() error                { return errors.Join(c.Collection.Close(), errNoSpace) }

// TestDeparted_DiskFull checks that deletes are delivered although the attempt
// cannot be noted.
func TestDeparted_DiskFull(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gone("a")
		p := w.start(func(o *informer.Options) { o.Store = unflushable{o.Store} }).synced()
		w.wantEvents(p.recorder, "initial a", "delete a", "initial kept")
		p.stop()
	})
}

// TestDeparted_OtherCluster checks that deletes of another cluster are not
// delivered.
func TestDeparted_OtherCluster(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		cluster := func(name string) func(o *informer.Options) {
			return func(o *informer.Options) {
				o.Cluster = func(context.Context) (string, error) { return name, nil }
			}
		}
		w.create("a", "kept")
		p := w.start(cluster("one")).synced()
		w.delete("a")
		synctest.Wait()
		p.kill()
		if got := w.departed(); !slices.Equal(got, []string{"a 0"}) {
			t.Errorf("departed %v", got)
		}
		p = w.start(cluster("two")).synced()
		w.wantEvents(p.recorder, "initial kept")
		p.stop()
	})
}

// TestInformer_HandlerAddedDuringStop checks that it either works or is refused.
func TestInformer_HandlerAddedDuringStop(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.prepare()
		release := make(chan struct{})
		p.handleWith(func(string) { <-release }, cache.HandlerOptions{})
		p.run()
		<-p.informer.HasSyncedChecker().Done()
		synctest.Wait()
		p.cancel()
		synctest.Wait() // what feeds the handlers has stopped; one of them has not
		if _, err := p.informer.AddEventHandler(&recorder{state: map[string]string{}}); err == nil {
			t.Error("a handler was added that nobody will run")
		}
		close(release)
		<-p.done
	})
}
