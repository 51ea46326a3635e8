package informer_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/warmcache/warmcache/informer"
)

// gone makes a collection in which the named objects were deleted while no process
// ran.
func (w *world) gone(names ...string) {
	w.t.Helper()
	w.create(names...)
	w.create("kept")
	w.start().synced().kill()
	w.delete(names...)
}

// TestDeparted_CrashBeforeDelivery checks that deletes that were found but not
// delivered come again.
func TestDeparted_CrashBeforeDelivery(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gone("a")
		found := w.server.ResourceVersion()
		if err := w.server.Create(&corev1.Secret{ObjectMeta: configMap("s", "").ObjectMeta}); err != nil {
			t.Fatal(err)
		}
		// Catching up finds the delete; the process dies before the proof.
		p := w.start()
		synctest.Wait()
		if p.informer.HasSynced() || p.info().Header.RV != found {
			t.Fatalf("synced, or header %+v", p.info().Header)
		}
		p.kill()
		p = w.start().synced()
		w.wantEvents(p.recorder, "initial a", "delete a", "initial kept")
		p.stop()
	})
}

// TestDeparted_CrashDuringDelivery checks that a delete whose delivery ended the
// process is tried three times.
func TestDeparted_CrashDuringDelivery(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gone("a")
		for attempt := 1; attempt <= 3; attempt++ {
			p := w.prepare()
			crashed := make(chan struct{})
			forever := make(chan struct{})
			p.handleWith(func(event string) {
				if event == "delete a" {
					close(crashed)
					<-forever
				}
			}, cache.HandlerOptions{})
			p.run()
			<-crashed
			time.Sleep(time.Minute) // sweeps find that the handler has not returned
			w.memory.Open()
			close(forever)
			p.stop()
			if got := w.departed(); !slices.Equal(got, []string{"a " + string(rune('0'+attempt))}) {
				t.Errorf("after %d attempts: departed %v", attempt, got)
			}
		}
		var log bytes.Buffer
		logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
		p := w.start(func(o *informer.Options) { o.Logger = &logger }).synced()
		w.wantEvents(p.recorder, "initial kept")
		if !strings.Contains(log.String(), "giving up") || !strings.Contains(log.String(), "default/a") {
			t.Errorf("log %s", log.String())
		}
		p.stop()
		if got := w.departed(); len(got) != 0 {
			t.Errorf("departed %v", got)
		}
	})
}

// TestDeparted_CrashDuringDelivery_SparesTheOthers checks that only the delete that
// ends the process is given up, and none of those that wait behind it.
func TestDeparted_CrashDuringDelivery_SparesTheOthers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gone("a", "b", "c")
		for _, want := range [][]string{{"a 1", "b 1", "c 1"}, {"a 0", "b 2", "c 1"}, {"a 0", "b 3", "c 1"}} {
			p := w.prepare()
			crashed, forever := make(chan struct{}), make(chan struct{})
			p.handleWith(func(event string) {
				if event == "initial b" {
					close(crashed)
					<-forever
				}
			}, cache.HandlerOptions{})
			p.run()
			<-crashed
			if want[0] != "a 1" {
				time.Sleep(time.Minute) // it is seen that a was dealt with
			}
			w.memory.Open()
			close(forever)
			p.stop()
			if got := w.departed(); !slices.Equal(got, want) {
				t.Errorf("departed %v, want %v", got, want)
			}
		}
		p := w.start().synced()
		w.wantEvents(p.recorder, "initial a", "delete a", "initial c", "delete c", "initial kept")
		p.stop()
	})
}

// TestDeparted_CrashDuringDelivery_OfOneHandler checks that a handler that is ahead of
// the one that ends the process does not use up the attempts of other records.
func TestDeparted_CrashDuringDelivery_OfOneHandler(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gone("a", "b", "c")
		for range 3 {
			p := w.prepare()
			p.handle()
			crashed, forever := make(chan struct{}), make(chan struct{})
			p.handleWith(func(event string) {
				if event == "initial a" {
					close(crashed)
					<-forever
				}
			}, cache.HandlerOptions{})
			p.run()
			<-crashed
			synctest.Wait()
			w.memory.Open()
			close(forever)
			p.stop()
		}
		if got := w.departed(); !slices.Equal(got, []string{"a 3", "b 1", "c 1"}) {
			t.Errorf("departed %v", got)
		}
		p := w.start().synced()
		w.wantEvents(p.recorder, "initial b", "delete b", "initial c", "delete c", "initial kept")
		p.stop()
	})
}

// TestDeparted_CrashAfterDelivery checks that a delete that a handler has returned
// from comes again after a crash, as it may only have been in a workqueue, and
// that its attempt is over.
func TestDeparted_CrashAfterDelivery(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gone("a")
		for range 5 {
			p := w.start().synced()
			w.wantEvents(p.recorder, "initial a", "delete a", "initial kept")
			time.Sleep(2 * time.Second)
			p.kill()
			if got := w.departed(); !slices.Equal(got, []string{"a 0"}) {
				t.Errorf("departed %v", got)
			}
		}
	})
}

// TestDeparted_InSteadyState checks that deletes that came by watch or list are
// kept, too.
func TestDeparted_InSteadyState(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("watched", "listed", "kept")
		p := w.start().synced()
		w.delete("watched")
		synctest.Wait()
		w.whileDown(func() { w.delete("listed") })
		time.Sleep(2 * time.Minute)
		p.converged()
		p.kill()
		p = w.start().synced()
		w.wantEvents(p.recorder, "initial listed", "delete listed", "initial watched", "delete watched", "initial kept")
		p.stop()
	})
}

// TestDeparted_Retention checks that records go some time after the handlers have
// returned, counting only the time that processes run.
func TestDeparted_Retention(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		retention := func(o *informer.Options) { o.DepartedRetention = time.Hour }
		w.gone("a")
		time.Sleep(24 * time.Hour) // nothing runs
		p := w.start(retention).synced()
		time.Sleep(50 * time.Minute)
		w.delete("kept")
		time.Sleep(9 * time.Minute)
		p.kill()
		if got := w.departed(); !slices.Equal(got, []string{"a 0", "kept 0"}) {
			t.Errorf("departed %v before the retention is over", got)
		}
		p = w.start(retention).synced()
		w.wantEvents(p.recorder, "initial a", "delete a", "initial kept", "delete kept")
		time.Sleep(61 * time.Minute)
		p.kill()
		if got := w.departed(); len(got) != 0 {
			t.Errorf("departed %v after the retention", got)
		}
	})
}

// TestDeparted_Retention_AcrossStops checks that the time that a record was kept
// before a stop counts: a process that is restarted often must not deliver the same
// deletes for ever.
func TestDeparted_Retention_AcrossStops(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		retention := func(o *informer.Options) { o.DepartedRetention = time.Hour }
		w.gone("a")
		for range 3 {
			p := w.start(retention).synced()
			w.wantEvents(p.recorder, "initial a", "delete a", "initial kept")
			time.Sleep(19 * time.Minute)
			p.stop()
			time.Sleep(24 * time.Hour) // nothing runs
		}
		p := w.start(retention).synced()
		w.wantEvents(p.recorder, "initial a", "delete a", "initial kept")
		w.create("b")
		synctest.Wait()
		w.delete("b")
		time.Sleep(4 * time.Minute)
		p.stop()
		if got := w.departed(); !slices.Equal(got, []string{"b 0"}) {
			t.Errorf("departed %v, want b, which is young", got)
		}
	})
}

// TestDeparted_SlowHandler checks that no record goes before every handler has
// returned.
func TestDeparted_SlowHandler(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gone("a")
		p := w.prepare()
		p.recorder = p.handle()
		p.handleWith(func(event string) {
			if event == "delete a" {
				time.Sleep(time.Hour)
			}
		}, cache.HandlerOptions{})
		p.run()
		p.synced()
		time.Sleep(50 * time.Minute)
		if n := p.info().Departed; n != 1 {
			t.Errorf("%d records while a handler works", n)
		}
		time.Sleep(12 * time.Minute)
		if n := p.info().Departed; n != 0 {
			t.Errorf("%d records afterwards", n)
		}
		p.stop()
	})
}

// TestDeparted_GracefulStop checks that a stop loses no delete, not even one that
// was handled: it may be in a workqueue.
func TestDeparted_GracefulStop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("handled", "slow", "unseen", "kept")
		p := w.prepare()
		p.recorder = p.handleWith(func(event string) {
			if event == "delete slow" {
				time.Sleep(time.Hour)
			}
		}, cache.HandlerOptions{})
		p.run()
		p.synced()
		w.delete("handled")
		synctest.Wait()
		w.delete("slow", "unseen")
		synctest.Wait()
		p.stop() // waits for the handler to return from the delete that it is in
		if got := w.departed(); !slices.Equal(got, []string{"handled 0", "slow 0", "unseen 0"}) {
			t.Errorf("departed %v", got)
		}
		p = w.start().synced()
		w.wantEvents(p.recorder, "initial handled", "delete handled", "initial slow", "delete slow",
			"initial unseen", "delete unseen", "initial kept")
		p.stop()
	})
}

// TestDeparted_WaitForHandlers checks leader election: informers start before
// there are handlers.
func TestDeparted_WaitForHandlers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gone("away")
		for _, end := range []func(*process){(*process).stop, (*process).kill} {
			p := w.prepare()
			p.run()
			<-p.informer.HasSyncedChecker().Done()
			time.Sleep(24 * time.Hour) // much longer than the retention
			end(p)                     // never became the leader
		}
		p := w.prepare()
		p.run()
		<-p.informer.HasSyncedChecker().Done()
		w.delete("kept")
		w.create("away") // a new one of that name
		time.Sleep(24 * time.Hour)
		first := p.handle()
		w.wantEvents(first, "initial away", "delete away", "initial kept", "delete kept", "initial away")
		if !first.registration.HasSynced() {
			t.Error("the late handler has not synced")
		}
		p.recorder = first
		p.converged()

		// Another handler of the same election, a little later.
		w.create("more")
		synctest.Wait()
		first.take()
		time.Sleep(time.Minute)
		second := p.handle()
		w.wantEvents(second, "initial away", "delete away", "initial kept", "delete kept", "initial away", "initial more")
		// From now on deletes are delivered as they come.
		w.delete("more")
		w.wantEvents(first, "delete more")
		w.wantEvents(second, "delete more")
		// One that comes much later is none of those that were there before.
		time.Sleep(time.Hour)
		third := p.handle()
		w.wantEvents(third, "initial away")
		p.stop()
		if got := w.departed(); len(got) != 0 {
			t.Errorf("departed %v", got)
		}
	})
}

// TestDeparted_SecondLateHandlerCrashes checks that attempts count although an
// earlier handler has dealt with the same delete.
func TestDeparted_SecondLateHandlerCrashes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gone("a")
		for _, want := range []string{"a 1", "a 2", "a 3"} {
			p := w.prepare()
			p.run()
			<-p.informer.HasSyncedChecker().Done()
			p.handleWith(func(string) {}, cache.HandlerOptions{})
			time.Sleep(time.Second) // the first handler is through
			forever := make(chan struct{})
			p.handleWith(func(event string) {
				if event == "delete a" {
					<-forever
				}
			}, cache.HandlerOptions{})
			time.Sleep(time.Minute)
			w.memory.Open()
			close(forever)
			p.stop()
			if got := w.departed(); !slices.Equal(got, []string{want}) {
				t.Errorf("departed %v, want %q", got, want)
			}
		}
		p := w.start().synced()
		w.wantEvents(p.recorder, "initial kept")
		p.stop()
	})
}

// TestDeparted_LateHandlerCrashes checks that attempts of late handlers count.
func TestDeparted_LateHandlerCrashes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gone("a")
		p := w.prepare()
		p.run()
		<-p.informer.HasSyncedChecker().Done()
		forever := make(chan struct{})
		p.handleWith(func(event string) {
			if event == "delete a" {
				<-forever
			}
		}, cache.HandlerOptions{})
		time.Sleep(time.Minute)
		w.memory.Open()
		close(forever)
		p.stop()
		if got := w.departed(); !slices.Equal(got, []string{"a 1"}) {
			t.Errorf("departed %v", got)
		}
	})
}

// TestDeparted_StopDuringLateDelivery checks that a stop that interrupts the
// delivery to late handlers keeps all records, and counts no attempt.
func TestDeparted_StopDuringLateDelivery(t *testing.T) {
	for name, slow := range map[string][]string{
		"before the last delete": {"initial b"},
		"of the second handler":  {"nothing", "delete a"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.gone("a", "b")
				p := w.prepare()
				p.run()
				<-p.informer.HasSyncedChecker().Done()
				for _, slowEvent := range slow {
					p.handleWith(func(event string) {
						if event == slowEvent {
							time.Sleep(time.Hour)
						}
					}, cache.HandlerOptions{})
					synctest.Wait()
				}
				p.stop() // waits for the handler to return from what it is in
				if got := w.departed(); !slices.Equal(got, []string{"a 0", "b 0"}) {
					t.Errorf("departed %v", got)
				}
				p = w.start().synced()
				w.wantEvents(p.recorder, "initial a", "delete a", "initial b", "delete b", "initial kept")
				p.stop()
			})
		})
	}
}

// TestDeparted_SelectedAgain checks that an object which a selector lets go, takes
// back and lets go again is not forgotten because of the first time.
func TestDeparted_SelectedAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.selector = "selected"
		label := func(labels map[string]string, write func(...runtime.Object) error) {
			x := configMap("x", "")
			x.Labels = labels
			if err := write(x); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		selected := map[string]string{"selected": ""}
		label(selected, w.server.Create)
		p := w.prepare()
		p.recorder = p.handleWith(func(event string) {
			if event == "add x" {
				time.Sleep(time.Hour)
			}
		}, cache.HandlerOptions{})
		p.run()
		p.synced()
		label(nil, w.server.Update)
		label(selected, w.server.Update)
		label(nil, w.server.Update)
		p.stop() // waits for the handler to return from OnAdd
		w.wantEvents(p.recorder, "initial x", "delete x", "add x")
		if got := w.departed(); !slices.Equal(got, []string{"x 0"}) {
			t.Errorf("departed %v", got)
		}
		p = w.start().synced()
		w.wantEvents(p.recorder, "initial x", "delete x")
		p.stop()

		// It is back, and not gone at all.
		label(selected, w.server.Update)
		p = w.start().synced()
		w.wantEvents(p.recorder, "initial x")
		p.stop()
		if got := w.departed(); len(got) != 0 {
			t.Errorf("departed %v", got)
		}
	})
}

// TestDeparted_RecreatedNameEndsAsPresent covers all ways in which a name can come
// back.
func TestDeparted_RecreatedNameEndsAsPresent(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("away", "steady", "listed")
		p := w.start().synced()
		w.delete("steady")
		w.create("steady")
		w.wantEvents(p.recorder, "initial away", "initial listed", "initial steady", "delete steady", "add steady")
		w.whileDown(func() {
			w.delete("listed")
			w.create("listed")
		})
		time.Sleep(2 * time.Minute)
		// As in client-go, a name that has changed hands unseen is an update. To a
		// process that has not seen it, it is a delete.
		w.wantEvents(p.recorder, "update listed")
		p.kill()
		w.delete("away")
		w.create("away")
		p = w.start().synced()
		w.wantEvents(p.recorder, "initial away", "delete away", "initial listed", "delete listed",
			"initial steady", "delete steady", "initial away", "initial listed", "initial steady")
		p.converged()
		p.stop()
	})
}

// TestDeparted_UnreadableRecord checks that a delete is told even if the last
// state is lost.
func TestDeparted_UnreadableRecord(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gone("a")
		p := w.start(func(o *informer.Options) { o.Indexers = nil }).synced()
		p.kill()
		quiet := klog.Background()
		p = w.prepare(func(o *informer.Options) {
			o.Logger = &quiet
			o.Store = &garblingStore{o.Store}
		})
		p.recorder = p.handle()
		p.run()
		p.synced()
		w.wantEvents(p.recorder, "delete unknown a", "initial kept")
		p.stop()
	})
}

// TestDeparted_MemoryOnly checks that an informer without a store keeps nothing.
func TestDeparted_MemoryOnly(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.make = inMemory
		w.create("a", "b")
		p := w.prepare()
		p.run()
		<-p.informer.HasSyncedChecker().Done()
		w.delete("a")
		synctest.Wait()
		late := p.handle()
		w.wantEvents(late, "initial b")
		p.stop()
	})
}

// TestDeparted_ReadYourWrites checks that what a handler is told it can read, and
// that a departed object is already gone.
func TestDeparted_ReadYourWrites(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gone("a")
		p := w.prepare()
		departed := true
		_, err := p.informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(obj any, _ bool) {
				key := keyOf(obj)
				_, exists, err := p.informer.GetStore().GetByKey(key)
				byIndex, _ := p.informer.GetIndexer().ByIndex(cache.NamespaceIndex, "default")
				present := key != "default/a" || !departed
				if err != nil || exists != present || slices.Contains(byIndex, obj) != present {
					t.Errorf("%s was added, found: %v", key, exists)
				}
			},
			UpdateFunc: func(_, obj any) {
				if now, _, _ := p.informer.GetStore().GetByKey(keyOf(obj)); now != obj {
					t.Errorf("%s was updated to %s, found %s", keyOf(obj), describe(obj), describe(now))
				}
			},
			DeleteFunc: func(obj any) {
				if _, exists, _ := p.informer.GetStore().GetByKey(keyOf(obj)); exists {
					t.Errorf("%s was deleted, but is there", keyOf(obj))
				}
				departed = false
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		p.run()
		<-p.informer.HasSyncedChecker().Done()
		synctest.Wait()
		for _, step := range []func(){
			func() { w.create("a") }, func() { w.update("a", "new") }, func() { w.delete("a") }, func() { w.create("a") },
		} {
			step()
			synctest.Wait()
		}
		p.stop()
	})
}

// TestDeparted_StopIsNoFailedAttempt checks that a delivery which graceful stops
// interrupt is never given up.
func TestDeparted_StopIsNoFailedAttempt(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		blockers := []string{"a0", "a1", "a2", "a3", "a4"}
		w.create(append(blockers, "b", "kept")...)
		w.start().synced().kill()
		w.delete("b")
		for _, blocker := range blockers {
			w.delete(blocker)
			p := w.prepare()
			reached, leave := make(chan struct{}), make(chan struct{})
			p.handleWith(func(event string) {
				if event == "delete "+blocker {
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
		}
		p := w.start().synced()
		var want []string
		for _, name := range append(blockers, "b") {
			want = append(want, "initial "+name, "delete "+name)
		}
		w.wantEvents(p.recorder, append(want, "initial kept")...)
		p.stop()
	})
}

// TestDeparted_RegistrationIsNotSyncedBefore checks that a handler which waits for
// its registration does not act on objects that are gone.
func TestDeparted_RegistrationIsNotSyncedBefore(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a")
		w.start().synced().kill()
		w.delete("a")
		p := w.prepare()
		leave := make(chan struct{})
		p.recorder = p.handleWith(func(event string) {
			if event == "delete a" {
				<-leave
			}
		}, cache.HandlerOptions{})
		p.run()
		<-p.informer.HasSyncedChecker().Done()
		synctest.Wait()
		if p.recorder.registration.HasSynced() {
			t.Error("synced while the handler has not returned from the delete")
		}
		close(leave)
		p.synced()
		w.wantEvents(p.recorder, "initial a", "delete a")
		p.stop()
	})
}
