package informer_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/apitest"
)

func TestInformer_HandlersBeforeAndAfterStart(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a", "b")
		p := w.prepare()
		before := p.handle()
		if p.informer.HasSynced() || before.registration.HasSynced() || p.informer.IsStopped() {
			t.Error("synced or stopped before the start")
		}
		p.run()
		during := p.handle()
		<-before.registration.HasSyncedChecker().Done()
		<-during.registration.HasSyncedChecker().Done()
		if !p.informer.HasSynced() || !before.registration.HasSynced() {
			t.Error("not synced")
		}
		w.wantEvents(before, "initial a", "initial b")
		w.wantEvents(during, "initial a", "initial b")
		w.create("c")
		synctest.Wait()
		after := p.handle()
		<-after.registration.HasSyncedChecker().Done()
		w.update("a", "new")
		w.delete("b")
		w.wantEvents(before, "add c", "update a", "delete b")
		w.wantEvents(during, "add c", "update a", "delete b")
		w.wantEvents(after, "initial a", "initial b", "initial c", "update a", "delete b")
		p.recorder = after
		p.converged()
		p.stop()
	})
}

// TestInformer_HasSyncedIsNeverEarly checks the registrations of handlers that
// take their time.
func TestInformer_HasSyncedIsNeverEarly(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a", "b", "c")
		p := w.prepare()
		slow := p.handleWith(func(string) { time.Sleep(time.Second) }, cache.HandlerOptions{})
		quick := p.handle()
		p.run()
		<-p.informer.HasSyncedChecker().Done()
		synctest.Wait()
		if !quick.registration.HasSynced() {
			t.Error("a quick handler waits for a slow one")
		}
		late := p.handleWith(func(string) { time.Sleep(time.Second) }, cache.HandlerOptions{})
		for n := range 3 {
			for _, r := range []*recorder{slow, late} {
				if r.registration.HasSynced() || cache.IsDone(r.registration.HasSyncedChecker()) {
					t.Errorf("synced after %d of 3 objects", n)
				}
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if !slow.registration.HasSynced() || !late.registration.HasSynced() {
			t.Error("not synced although everything was delivered")
		}
		p.stop()
	})
}

func TestInformer_HasSyncedWithoutObjects(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		p := w.start().synced()
		late := p.handle()
		<-late.registration.HasSyncedChecker().Done()
		w.create("a")
		w.wantEvents(late, "add a")
		p.stop()
	})
}

func TestInformer_HandlersGetEachChangeOnce(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		p := w.start().synced()
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for n := range 300 {
				w.create(name(n))
				time.Sleep(time.Millisecond)
			}
			close(stop)
		}()
		var joined []*recorder
		for joining := true; joining; {
			select {
			case <-stop:
				joining = false
			case <-time.After(10 * time.Millisecond):
				joined = append(joined, p.handle())
			}
		}
		<-done
		synctest.Wait()
		for _, r := range joined {
			events := r.take()
			for n, e := range events {
				events[n] = e[len(e)-len(name(0)):]
			}
			slices.Sort(events)
			if got := slices.Compact(slices.Clone(events)); len(got) != 300 || len(events) != 300 {
				t.Errorf("a handler that joined was told of %d objects in %d events", len(got), len(events))
			}
		}
		p.stop()
	})
}

// name makes names of one length.
func name(n int) string { return fmt.Sprintf("o%04d", n) }

func TestInformer_RemoveEventHandler(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.prepare()
		never := p.handle()
		kept := p.handle()
		if err := cache.ShutDownEventHandler(p.informer, never.registration); err != nil {
			t.Error(err)
		}
		p.run()
		<-kept.registration.HasSyncedChecker().Done()
		removed := p.handle()
		synctest.Wait()
		if err := cache.ShutDownEventHandler(p.informer, removed.registration); err != nil {
			t.Error(err)
		}
		if err := p.informer.RemoveEventHandler(removed.registration); err != nil {
			t.Errorf("removing twice: %v", err)
		}
		if err := p.informer.RemoveEventHandler(nil); err == nil {
			t.Error("a registration of another kind was removed")
		}
		w.create("b")
		w.wantEvents(never)
		w.wantEvents(removed, "initial a")
		w.wantEvents(kept, "initial a", "add b")
		p.stop()
		for _, r := range []*recorder{never, removed, kept} {
			if err := cache.ShutDownEventHandler(p.informer, r.registration); err != nil {
				t.Errorf("removing after the stop: %v", err)
			}
		}
	})
}

// TestInformer_RemoveDropsWhatWaits checks that a handler is not called after
// ShutDownEventHandler has returned, and that the call waits for the current one.
func TestInformer_RemoveDropsWhatWaits(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a", "b", "c")
		p := w.prepare()
		r := p.handleWith(func(string) { time.Sleep(time.Second) }, cache.HandlerOptions{})
		p.run()
		time.Sleep(1500 * time.Millisecond)
		if err := cache.ShutDownEventHandler(p.informer, r.registration); err != nil {
			t.Error(err)
		}
		// client-go has one event on its way to the handler at any time.
		if n := len(r.take()); n < 2 || n > 3 {
			t.Errorf("%d events, want the one under way to be finished and the rest to be dropped", n)
		}
		time.Sleep(time.Minute)
		w.wantEvents(r)
		p.stop()
	})
}

func TestInformer_AfterStop(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.start().synced()
		p.stop()
		if !p.informer.IsStopped() {
			t.Error("not stopped")
		}
		if _, err := p.informer.AddEventHandler(&recorder{}); err == nil {
			t.Error("a handler was added to a stopped informer")
		}
		if err := p.informer.AddIndexers(cache.Indexers{"x": cache.MetaNamespaceIndexFunc}); err == nil {
			t.Error("an index was added to a stopped informer")
		}
		if _, exists, err := p.informer.GetStore().GetByKey("default/a"); !exists || err != nil {
			t.Error("a stopped informer cannot be read")
		}
		w.create("b")
		w.wantEvents(p.recorder, "initial a")
		p.informer.RunWithContext(t.Context()) // returns at once
		w.wantEvents(p.recorder)
	})
}

func TestInformer_CannotRunTwice(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.start().synced()
		p.informer.Run(make(chan struct{})) // returns at once
		w.wantEvents(p.recorder, "initial a")
		w.create("b")
		w.wantEvents(p.recorder, "add b")
		p.stop()
	})
}

func TestInformer_SettersAfterStart(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		p := w.start().synced()
		defer p.stop()
		if err := p.informer.SetTransform(func(o any) (any, error) { return o, nil }); err == nil {
			t.Error("SetTransform after the start")
		}
		if err := p.informer.SetWatchErrorHandler(func(*cache.Reflector, error) {}); err == nil {
			t.Error("SetWatchErrorHandler after the start")
		}
		if err := p.informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err == nil {
			t.Error("SetWatchErrorHandlerWithContext after the start")
		}
	})
}

// TestInformer_StopWhileStarting checks that a stop at any moment ends everything.
func TestInformer_StopWhileStarting(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		for _, after := range []time.Duration{0, time.Microsecond, time.Second} {
			if err := w.server.Down(); err != nil {
				t.Fatal(err)
			}
			p := w.start()
			time.Sleep(after)
			p.stop()
			if p.informer.HasSynced() {
				t.Error("synced without a server")
			}
			if err := w.server.Up(); err != nil {
				t.Fatal(err)
			}
			p = w.start()
			time.Sleep(after)
			p.stop()
		}
	})
}

// TestInformer_HandlerPanics checks client-go's behaviour when crashes are
// configured not to end the process: the event is skipped after a second.
func TestInformer_HandlerPanics(t *testing.T) {
	utilruntime.ReallyCrash = false
	defer func() { utilruntime.ReallyCrash = true }()
	asClientGo(t, func(t *testing.T, w *world) {
		p := w.prepare()
		broken := p.handleWith(func(event string) {
			if event == "add a" {
				panic("broken handler")
			}
		}, cache.HandlerOptions{})
		other := p.handle()
		p.run()
		<-broken.registration.HasSyncedChecker().Done()
		<-other.registration.HasSyncedChecker().Done() // each takes its initial list itself
		w.create("a", "b")
		w.wantEvents(other, "add a", "add b")
		w.wantEvents(broken)
		time.Sleep(2 * time.Second)
		w.wantEvents(broken, "add b")
		p.stop()
	})
}

func TestInformer_WatchErrorHandler(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.server.Inject(apitest.Fault{Status: http.StatusForbidden})
		p := w.prepare()
		var failed []string
		err := p.informer.SetWatchErrorHandler(func(r *cache.Reflector, err error) {
			cache.DefaultWatchErrorHandler(t.Context(), r, err)
			if !apierrors.IsForbidden(err) || r.Name() == "" {
				t.Errorf("%s failed with %v", r.Name(), err)
			}
			failed = append(failed, r.TypeDescription())
		})
		if err != nil {
			t.Fatal(err)
		}
		p.run()
		time.Sleep(time.Second)
		p.stop()
		if len(failed) == 0 || failed[0] != "*v1.ConfigMap" {
			t.Errorf("failures of %v", failed)
		}
	})
}

type contextKey struct{}

// TestInformer_WatchErrorHandlerWithContext checks that the handler can tell which
// informer it is called for, how far that has got, and who runs it.
func TestInformer_WatchErrorHandlerWithContext(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.prepare(func(o *informer.Options) { o.ObjectDescription = "settings" })
		var failed []string
		err := p.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, _ error) {
			failed = append(failed, fmt.Sprint(r.TypeDescription(), " at ", r.LastSyncResourceVersion(), " run by ", ctx.Value(contextKey{})))
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), contextKey{}, "the test"), time.Minute)
		defer cancel()
		go func() {
			<-p.informer.HasSyncedChecker().Done()
			time.Sleep(10 * time.Second)
			w.server.Inject(apitest.Fault{Status: http.StatusForbidden})
			w.server.EndWatches()
		}()
		p.informer.RunWithContext(ctx)
		want := fmt.Sprint("settings at ", w.server.ResourceVersion(), " run by the test")
		if len(failed) == 0 || failed[0] != want {
			t.Errorf("failures of %q, want %q", failed, want)
		}
	})
}

// TestInformer_Controller checks what code for client-go reaches through
// GetController.
func TestInformer_Controller(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		p := w.prepare()
		p.recorder = p.handle()
		c := p.informer.GetController()
		if c.HasSynced() || c.LastSyncResourceVersion() != "" {
			t.Error("synced before the start")
		}
		c.Run(nil)                    // does nothing
		c.RunWithContext(t.Context()) // does nothing
		p.run()
		<-c.HasSyncedChecker().Done()
		if !c.HasSynced() || p.informer.LastSyncResourceVersion() == "" {
			t.Error("not synced")
		}
		if got, want := c.HasSyncedChecker().Name(), "SharedIndexInformer *v1.ConfigMap"; got != want {
			t.Errorf("name %q, want %q", got, want)
		}
		if got, want := p.recorder.registration.HasSyncedChecker().Name(), "SharedIndexInformer *v1.ConfigMap + event handler "; !strings.HasPrefix(got, want) {
			t.Errorf("name %q, want %q and the handler's", got, want)
		}
		p.stop()
	})
}

func TestStatusOf_ThroughWrappers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.start().synced()
		defer p.stop()
		typed := cache.NewTypedSharedIndexInformer[*corev1.ConfigMap](p.informer)
		if s, ok := informer.StatusOf(typed); !ok || !s.Synced || s.Objects != 1 {
			t.Errorf("status %+v, %v", s, ok)
		}
		if _, ok := informer.StatusOf(stock(w.listWatch(), informer.Options{})); ok {
			t.Error("client-go's informer has a status")
		}
		var told []string
		_, err := typed.AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[*corev1.ConfigMap]{
			AddFunc:    func(o *corev1.ConfigMap) { told = append(told, "add "+o.Name) },
			DeleteFunc: func(o cache.DeletedObject[*corev1.ConfigMap]) { told = append(told, "delete "+o.OptionalObj.Name) },
		})
		if err != nil {
			t.Fatal(err)
		}
		w.delete("a")
		synctest.Wait()
		if !slices.Equal(told, []string{"add a", "delete a"}) {
			t.Errorf("the typed handler was told %v", told)
		}
	})
}
