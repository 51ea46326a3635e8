package informer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/warmcache/warmcache/informer"
)

// TestInformer_OneHandlerTwice checks that a handler registered twice is two
// registrations, each of which can be removed.
func TestInformer_OneHandlerTwice(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.prepare()
		r := &recorder{state: map[string]string{}}
		first := must(p.informer.AddEventHandler(r))
		second := must(p.informer.AddEventHandler(r))
		p.run()
		<-first.HasSyncedChecker().Done()
		<-second.HasSyncedChecker().Done()
		w.wantEvents(r, "initial a", "initial a")
		remove(t, p.informer, first)
		w.create("b")
		w.wantEvents(r, "add b")
		remove(t, p.informer, second)
		w.create("c")
		w.wantEvents(r)
		p.stop()
	})
}

func remove(t *testing.T, informer cache.SharedInformer, registration cache.ResourceEventHandlerRegistration) {
	t.Helper()
	if err := informer.RemoveEventHandler(registration); err != nil {
		t.Error(err)
	}
}

// TestInformer_RemoveFromAnotherInformer checks that a registration of another
// informer is not taken for one's own.
func TestInformer_RemoveFromAnotherInformer(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.prepare()
		r := p.handle()
		other := w.make(w.listWatch(), informer.Options{})
		remove(t, other, r.registration)
		p.run()
		<-r.registration.HasSyncedChecker().Done()
		remove(t, other, r.registration)
		w.create("b")
		w.wantEvents(r, "initial a", "add b")
		p.stop()
	})
}

// TestInformer_HandlerRemovesItself removes a handler while it is being called.
func TestInformer_HandlerRemovesItself(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a", "b", "c")
		p := w.prepare()
		var r *recorder
		r = p.handleWith(func(string) { remove(t, p.informer, r.registration) }, cache.HandlerOptions{})
		p.run()
		<-p.informer.HasSyncedChecker().Done()
		synctest.Wait()
		// client-go has one event on its way to the handler at any time.
		if n := len(r.take()); n < 1 || n > 2 {
			t.Errorf("%d events reached a handler that removed itself at the first", n)
		}
		p.stop()
	})
}

// TestInformer_RemoveDoesNotWait checks that RemoveEventHandler, unlike
// ShutDownEventHandler, returns while the handler still works.
func TestInformer_RemoveDoesNotWait(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.prepare()
		release := make(chan struct{})
		r := p.handleWith(func(string) { <-release }, cache.HandlerOptions{})
		p.run()
		synctest.Wait()
		remove(t, p.informer, r.registration)
		w.wantEvents(r)
		close(release)
		w.wantEvents(r, "initial a")
		p.stop()
	})
}

// TestInformer_HandlersComeAndGoDuringStop adds and removes handlers, under churn,
// until the informer refuses, for the race detector.
func TestInformer_HandlersComeAndGoDuringStop(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		p := w.start()
		var workers sync.WaitGroup
		for n := range 20 {
			w.create(name(n))
			workers.Go(func() {
				for {
					registration, err := p.informer.AddEventHandlerWithResyncPeriod(&recorder{state: map[string]string{}}, time.Second)
					if err != nil {
						if !strings.Contains(err.Error(), "stopped already") {
							t.Error(err)
						}
						return
					}
					time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
					if n%2 == 0 {
						remove(t, p.informer, registration)
					}
				}
			})
		}
		for n := range 200 {
			w.update(name(n%20), fmt.Sprint(n))
			time.Sleep(time.Millisecond)
		}
		p.stop()
		workers.Wait()
	})
}

// TestInformer_ResyncWarnings checks that whoever asks for resyncs that he does not
// get is told so, with the logger of the handler.
func TestInformer_ResyncWarnings(t *testing.T) {
	for _, test := range []struct {
		name           string
		period, wanted time.Duration
		started        bool
		warnings       int
	}{
		{"as asked for", time.Minute, time.Minute, false, 0},
		{"none", time.Minute, 0, true, 0},
		{"too short", time.Minute, time.Millisecond, false, 1},
		{"from an informer that does none", 0, time.Minute, false, 1},
		{"shorter than the informer's", time.Minute, 30 * time.Second, false, 0},
		{"shorter than the informer's, too late", time.Minute, 30 * time.Second, true, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			asClientGo(t, func(t *testing.T, w *world) {
				var log syncBuffer
				logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
				p := w.prepare(func(o *informer.Options) { o.ResyncPeriod = test.period })
				if test.started {
					p.run()
					<-p.informer.HasSyncedChecker().Done()
				}
				p.handleWith(nil, cache.HandlerOptions{Logger: &logger, ResyncPeriod: &test.wanted})
				if got := strings.Count(log.String(), "Warning"); got != test.warnings {
					t.Errorf("%d warnings, want %d:\n%s", got, test.warnings, log.String())
				}
				if test.started {
					p.stop()
				}
			})
		})
	}
}

// TestInformer_SlowHandlerIsLogged checks that it is, once it has fallen far behind.
func TestInformer_SlowHandlerIsLogged(t *testing.T) {
	bothModes(t, func(t *testing.T, w *world) {
		for n := range slowBacklog + 3 {
			w.create(fmt.Sprint("o", n))
		}
		var log syncBuffer
		logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
		p := w.prepare()
		p.handleWith(func(string) { time.Sleep(time.Second) }, cache.HandlerOptions{Logger: &logger})
		p.run()
		time.Sleep(time.Minute)
		synctest.Wait()
		want := 2 // The third has not enough behind it any more.
		if w.onDisk {
			want = 0 // Nothing waits but for the handler itself.
		}
		if got := strings.Count(log.String(), `handler="github.com/warmcache/warmcache/informer_test.recorder" duration="1s"`); got != want {
			t.Errorf("%d lines:\n%s", got, log.String())
		}
		p.stop()
	})
}

// slowBacklog is client-go's (shared_informer.go, initialBufferSize).
const slowBacklog = 1024

// TestInformer_HandlerCallsInformerDuringStop checks that a handler may still use
// the informer that waits for it. client-go holds a lock meanwhile, which
// RemoveEventHandler needs too.
func TestInformer_HandlerCallsInformerDuringStop(t *testing.T) {
	bothModes(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.prepare()
		stopping := make(chan struct{})
		other := p.handle()
		p.handleWith(func(string) {
			<-stopping
			remove(t, p.informer, other.registration)
			if _, err := p.informer.AddEventHandler(other); err == nil {
				t.Error("a handler was added to an informer that stops")
			}
			p.informer.GetStore().List()
			informer.StatusOf(p.informer)
		}, cache.HandlerOptions{})
		p.run()
		<-p.informer.HasSyncedChecker().Done()
		synctest.Wait()
		p.cancel()
		synctest.Wait() // everything waits for the handler
		close(stopping)
		<-p.done
	})
}

// TestInformer_StoppedInTheMiddle checks the end of a handler that has much left
// to do: the current call is waited for, the rest is dropped.
func TestInformer_StoppedInTheMiddle(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a", "b", "c", "d", "e")
		p := w.prepare()
		r := p.handleWith(func(string) { time.Sleep(time.Second) }, cache.HandlerOptions{})
		p.run()
		time.Sleep(1500 * time.Millisecond)
		p.stop()
		if n := len(r.take()); n < 2 || n > 3 {
			t.Errorf("%d of 5 events, want the one under way to be finished and the rest to be dropped", n)
		}
		time.Sleep(time.Minute)
		w.wantEvents(r)
		if r.registration.HasSynced() {
			t.Error("the handler has synced without the rest")
		}
	})
}

// TestInformer_AfterStop_Errors checks the texts that code for client-go looks
// for, as there is nothing else to look for.
func TestInformer_AfterStop_Errors(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		p := w.start().synced()
		p.stop()
		_, err := p.informer.AddEventHandler(&recorder{})
		if want := "was not added to shared informer because it has stopped already"; err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("AddEventHandler: %v, want ... %s", err, want)
		}
		err = p.informer.AddIndexers(cache.Indexers{"x": cache.MetaNamespaceIndexFunc})
		if want := "not added because it has stopped already"; err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("AddIndexers: %v, want ... %s", err, want)
		}
		if err := p.informer.SetTransform(nil); err == nil || err.Error() != "informer has already started" {
			t.Errorf("SetTransform: %v", err)
		}
		if started := p.informer.(interface{ HasStarted() bool }); !started.HasStarted() || !p.informer.IsStopped() {
			t.Error("a stopped informer has started and stopped")
		}
	})
}

// TestInformer_StartRace lets everything that must come before the start compete
// with it, for the race detector.
func TestInformer_StartRace(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.prepare()
		var all sync.WaitGroup
		for _, set := range []func() error{
			func() error { return p.informer.SetTransform(func(o any) (any, error) { return o, nil }) },
			func() error { return p.informer.SetWatchErrorHandler(func(*cache.Reflector, error) {}) },
		} {
			all.Go(func() {
				for set() == nil {
					time.Sleep(time.Millisecond)
				}
			})
		}
		all.Go(func() { p.recorder = p.handle() })
		time.Sleep(10 * time.Millisecond)
		p.run()
		all.Wait()
		p.synced()
		w.wantEvents(p.recorder, "initial a")
		p.stop()
	})
}

type namedHandler struct{ cache.ResourceEventHandler }

func (*recorder) OnAddOnly(any) {}

// TestInformer_HandlerNames checks what people read who wait for a handler.
func TestInformer_HandlerNames(t *testing.T) {
	name := func(m maker, handler cache.ResourceEventHandler) string {
		i := m((&world{}).listWatch(), informer.Options{})
		return must(i.AddEventHandler(handler)).HasSyncedChecker().Name()
	}
	r := &recorder{}
	for n, handler := range []cache.ResourceEventHandler{
		cache.ResourceEventHandlerFuncs{},
		cache.ResourceEventHandlerFuncs{AddFunc: func(any) {}},
		cache.ResourceEventHandlerFuncs{AddFunc: r.OnAddOnly, DeleteFunc: r.OnDelete},
		cache.ResourceEventHandlerFuncs{AddFunc: func(any) {}, UpdateFunc: r.OnUpdate, DeleteFunc: r.OnDelete},
		&cache.ResourceEventHandlerFuncs{UpdateFunc: r.OnUpdate},
		cache.ResourceEventHandlerDetailedFuncs{DeleteFunc: r.OnDelete},
		cache.FilteringResourceEventHandler{Handler: r},
		namedHandler{},
		&namedHandler{},
		(*namedHandler)(nil),
		struct{ namedHandler }{},
		nil,
	} {
		if got, want := name(inMemory, handler), name(stock, handler); got != want {
			t.Errorf("%d: %T is called\n%s\nwant\n%s", n, handler, got, want)
		}
	}
	if got, want := name(inMemory, (*cache.ResourceEventHandlerFuncs)(nil)), "*cache.ResourceEventHandlerFuncs"; !strings.HasSuffix(got, want) {
		t.Errorf("a nil pointer, for which client-go panics, is called %s", got)
	}
}

// TestInformer_HandlerPanics_AreLogged checks that panics are logged with the
// logger of the handler, which goes on with the next event after a pause, and that
// it does not count as synced.
func TestInformer_HandlerPanics_AreLogged(t *testing.T) {
	utilruntime.ReallyCrash = false
	defer func() { utilruntime.ReallyCrash = true }()
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a", "b", "c")
		var log syncBuffer
		logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
		p := w.prepare()
		var registrations []cache.ResourceEventHandlerRegistration
		for _, name := range []string{"one", "two"} {
			named := klog.LoggerWithName(logger, name)
			r := p.handleWith(func(string) { panic("broken handler") }, cache.HandlerOptions{Logger: &named})
			registrations = append(registrations, r.registration)
		}
		start := time.Now()
		p.run()
		<-p.informer.HasSyncedChecker().Done()
		for panics := 1; panics <= 3; panics++ {
			synctest.Wait()
			for _, name := range []string{"one", "two"} {
				line := `"Observed a panic" logger="` + name + `" panic="broken handler"`
				if got := strings.Count(log.String(), line); got != panics {
					t.Errorf("after %s %d panics of %s are logged, want %d", time.Since(start), got, name, panics)
				}
			}
			time.Sleep(time.Second)
		}
		for _, r := range registrations {
			if r.HasSynced() {
				t.Error("synced although the handler has returned from nothing")
			}
		}
		p.stop()
	})
}

// TestInformer_HandlerPanics_EndTheProcess checks the default, in a process of its
// own.
func TestInformer_HandlerPanics_EndTheProcess(t *testing.T) {
	for name := range makers {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestPanicChild$")
			cmd.Env = append(os.Environ(), "WARMCACHE_TEST_PANIC="+name)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "panic: broken handler") {
				t.Errorf("%v; output\n%s", err, out)
			}
		})
	}
}

func TestPanicChild(t *testing.T) {
	which := os.Getenv("WARMCACHE_TEST_PANIC")
	if which == "" {
		t.Skip("run by TestInformer_HandlerPanics_EndTheProcess")
	}
	inWorld(t, func(t *testing.T, w *world) {
		w.make = makers[which]
		w.create("a")
		p := w.prepare()
		p.handleWith(func(string) { panic("broken handler") }, cache.HandlerOptions{})
		p.run()
		time.Sleep(time.Minute)
		p.stop()
	})
}

// TestInformer_WaitForHelpers checks the helpers of client-go that wait for
// informers.
func TestInformer_WaitForHelpers(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.prepare()
		r := p.handleWith(func(string) { time.Sleep(time.Second) }, cache.HandlerOptions{})
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if cache.WaitFor(soon, "", p.informer.HasSyncedChecker()) || cache.WaitForCacheSync(soon.Done(), p.informer.HasSynced) {
			t.Error("an informer that does not run has synced")
		}
		p.run()
		if !cache.WaitForCacheSync(t.Context().Done(), p.informer.HasSynced) {
			t.Error("not synced")
		}
		if !cache.WaitFor(t.Context(), "", p.informer.HasSyncedChecker(), r.registration.HasSyncedChecker()) {
			t.Error("not synced")
		}
		if got := r.take(); !slices.Equal(got, []string{"initial a"}) {
			t.Errorf("synced after %v", got)
		}
		p.stop()
	})
}
