package informer_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
)

// transformed prepares an informer with a transform.
func (w *world) transformed(transform cache.TransformFunc, change ...func(*informer.Options)) *process {
	w.t.Helper()
	p := w.prepare(append(change, func(o *informer.Options) { o.TransformVersion = "1" })...)
	if err := p.informer.SetTransform(transform); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// values is a handler that writes down, of every state it is given, the value.
type values struct {
	mu   sync.Mutex
	told []string
}

func (v *values) tell(word string, objs ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, obj := range objs {
		if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		cm := obj.(*corev1.ConfigMap)
		word += " " + cm.Name + "=" + cm.Data["value"]
	}
	v.told = append(v.told, word)
}

func (v *values) OnAdd(obj any, _ bool) { v.tell("add", obj) }
func (v *values) OnUpdate(old, obj any) { v.tell("update", old, obj) }
func (v *values) OnDelete(obj any)      { v.tell("delete", obj) }
func (v *values) take() (events []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	events, v.told = v.told, nil
	return events
}

// TestInformer_Transform_EveryState checks that handlers are given no state that
// was not transformed: not the old one of an update, nor the last one of a delete.
func TestInformer_Transform_EveryState(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.transformed(func(obj any) (any, error) {
			// client-go applies it to what a streamed list brings twice.
			if cm, ok := obj.(*corev1.ConfigMap); ok && !strings.HasSuffix(cm.Data["value"], "+") {
				cm.Data["value"] += "+"
			}
			return obj, nil
		})
		v := &values{}
		p.recorder = &recorder{registration: must(p.informer.AddEventHandler(v))}
		p.run()
		p.synced()
		w.update("a", "new")
		w.create("b")
		w.delete("a")
		synctest.Wait()
		want := []string{"add a=created+", "update a=created+ a=new+", "add b=created+", "delete a=new+"}
		if got := v.take(); !slices.Equal(got, want) {
			t.Errorf("told %v, want %v", got, want)
		}
		p.stop()
	})
}

// TestInformer_Transform_OnceAcrossRestarts checks a transform that must not be
// applied to its own result, through everything that leads objects past it: loads,
// resumed and reconciled starts, lists while running, departed objects, tombstones,
// resyncs and handlers that join late.
func TestInformer_Transform_OnceAcrossRestarts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var all []*values
		handle := func(p *process) cache.ResourceEventHandlerRegistration {
			all = append(all, &values{})
			return must(p.informer.AddEventHandler(all[len(all)-1]))
		}
		start := func() *process {
			p := w.transformed(stamp(nil), func(o *informer.Options) { o.ResyncPeriod = 10 * time.Second })
			p.recorder = &recorder{registration: handle(p)}
			p.run()
			return p.synced()
		}
		check := func(p *process) {
			t.Helper()
			synctest.Wait()
			for _, obj := range p.informer.GetStore().List() {
				if cm := obj.(*corev1.ConfigMap); strings.Count(cm.Data["value"], "+") != 1 {
					t.Errorf("the indexer has %s=%s", cm.Name, cm.Data["value"])
				}
			}
		}
		w.create("same", "changed", "gone", "gone later", "expired")
		start().kill()
		w.update("changed", "1")
		w.delete("gone")
		p := start() // resumes
		check(p)
		time.Sleep(time.Minute) // resyncs
		if p.lists() != 0 {
			t.Errorf("%d lists", p.lists())
		}
		p.kill()
		w.update("changed", "2")
		w.delete("gone later")
		w.server.Compact()
		p = start() // lists, because the version has expired
		check(p)
		w.whileDown(func() { w.update("changed", "3"); w.delete("expired") })
		time.Sleep(2 * time.Minute) // lists again
		check(p)
		<-handle(p).HasSyncedChecker().Done()
		p.stop()

		deletes, resyncs := 0, 0
		for _, v := range all {
			for _, event := range v.take() {
				words := strings.Fields(strings.ReplaceAll(event, "gone later", "gone"))
				for _, state := range words[1:] {
					if strings.Count(state, "+") != 1 {
						t.Errorf("a handler was told %s", event)
					}
				}
				deletes += strings.Count(event, "delete")
				resyncs += strings.Count(event, "update same")
			}
		}
		if deletes < 3 || resyncs < 5 {
			t.Errorf("%d deletes and %d resyncs are too few for this test", deletes, resyncs)
		}
	})
}

// TestInformer_Transform_NeverSeesTombstones checks what a transform may expect to
// be given when a list finds an object gone.
func TestInformer_Transform_NeverSeesTombstones(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a", "b")
		p := w.transformed(func(obj any) (any, error) {
			if _, ok := obj.(*corev1.ConfigMap); !ok {
				t.Errorf("asked to transform a %T", obj)
			}
			return obj, nil
		})
		p.recorder = p.handle()
		p.run()
		p.synced()
		w.whileDown(func() { w.delete("b"); w.update("a", "new") })
		time.Sleep(2 * time.Minute)
		w.wantEvents(p.recorder, "initial a", "initial b", "delete b", "update a")
		w.delete("a")
		w.wantEvents(p.recorder, "delete a")
		p.stop()
	})
}

// TestInformer_Transform_FailsAtTheStart checks that an informer has not synced
// before it could transform everything. client-go, when the list is streamed, drops
// the object and says that it has synced.
func TestInformer_Transform_FailsAtTheStart(t *testing.T) {
	bothModes(t, func(t *testing.T, w *world) {
		w.create("a", "b")
		var mended atomic.Bool
		p := w.transformed(func(obj any) (any, error) {
			if cm, ok := obj.(*corev1.ConfigMap); ok && cm.Name == "b" && !mended.Load() {
				return nil, errors.New("broken transform")
			}
			return obj, nil
		})
		var failed error
		if err := p.informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { failed = err }); err != nil {
			t.Fatal(err)
		}
		p.recorder = p.handle()
		p.run()
		time.Sleep(time.Minute)
		w.wantEvents(p.recorder)
		if p.informer.HasSynced() || failed == nil || !strings.Contains(failed.Error(), "broken transform") {
			t.Errorf("synced %v, error %v", p.informer.HasSynced(), failed)
		}
		mended.Store(true)
		p.synced()
		w.wantEvents(p.recorder, "initial a", "initial b")
		p.stop()
	})
}

// TestInformer_Transform_StripsVersions checks a transform that takes away what
// the versions of states are compared by. As in client-go a change is then taken
// for a resync, which reaches all handlers until the first one.
func TestInformer_Transform_StripsVersions(t *testing.T) {
	strip := func(obj any) (any, error) {
		if cm, ok := obj.(*corev1.ConfigMap); ok {
			cm.ResourceVersion, cm.UID = "", ""
		}
		return obj, nil
	}
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a", "b")
		p := w.transformed(strip)
		v := &values{}
		p.recorder = &recorder{registration: must(p.informer.AddEventHandler(v))}
		p.run()
		p.synced()
		v.take()
		w.update("a", "new")
		w.delete("b")
		synctest.Wait()
		if got, want := v.take(), []string{"update a=created a=new", "delete b=created"}; !slices.Equal(got, want) {
			t.Errorf("told %v, want %v", got, want)
		}
		if got, want := p.informer.LastSyncResourceVersion(), w.server.ResourceVersion(); got != want {
			t.Errorf("version %q, want %s", got, want)
		}
		p.stop()
	})
	t.Run("restart", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.create("a", "b", "c")
			p := w.transformed(strip)
			p.recorder = p.handle()
			p.run()
			p.synced().kill()
			w.update("a", "new")
			w.delete("b")
			w.delete("c")
			w.create("c")
			p = w.transformed(strip)
			p.recorder = p.handle()
			p.run()
			p.synced()
			w.wantEvents(p.recorder, "initial b", "delete b", "initial c", "delete c", "initial a", "initial c")
			if p.lists() != 0 {
				t.Errorf("%d lists, %q", p.lists(), p.status().ListReason)
			}
			p.stop()
		})
	})
}

// TestInformer_Transform_AnotherType checks a transform that keeps less than a
// whole object, in another type. That works, but cannot be persisted as objects of
// the example's type, so that disk residency has no place for them.
func TestInformer_Transform_AnotherType(t *testing.T) {
	toMetadata := func(obj any) (any, error) {
		if cm, ok := obj.(*corev1.ConfigMap); ok {
			return &metav1.PartialObjectMetadata{ObjectMeta: cm.ObjectMeta}, nil
		}
		return obj, nil
	}
	asClientGo(t, func(t *testing.T, w *world) {
		if w.onDisk {
			t.Skip("in disk residency an object that the codec cannot write has no place to be: it lists again and again, as docs/operations.md says")
		}
		w.create("a", "b")
		for _, value := range []string{"1", "2"} { // again, on what the first has left in the store
			p := w.transformed(toMetadata)
			p.recorder = p.handle()
			p.run()
			p.synced()
			w.wantEvents(p.recorder, "initial a", "initial b")
			w.update("a", value)
			w.delete("b")
			w.create("b")
			w.wantEvents(p.recorder, "update a", "delete b", "add b")
			for _, obj := range p.informer.GetStore().List() {
				if _, ok := obj.(*metav1.PartialObjectMetadata); !ok {
					t.Errorf("the store has a %T", obj)
				}
			}
			if s, ours := informer.StatusOf(p.informer); ours && (s.Persistent || s.Objects != 2) {
				t.Errorf("status %+v", s)
			}
			p.stop()
		}
	})
}

// TestInformer_Transform_Rename checks a transform that gives objects other names,
// under which they must be found.
func TestInformer_Transform_Rename(t *testing.T) {
	rename := func(obj any) (any, error) {
		if cm, ok := obj.(*corev1.ConfigMap); ok {
			cm.Name = strings.ToUpper(cm.Name)
		}
		return obj, nil
	}
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a", "b")
		p := w.transformed(rename)
		p.recorder = p.handle()
		p.run()
		p.synced()
		w.wantEvents(p.recorder, "initial A", "initial B")
		w.update("a", "new")
		w.delete("b")
		w.wantEvents(p.recorder, "update A", "delete B")
		if _, found, err := p.informer.GetStore().GetByKey("default/A"); !found || err != nil {
			t.Errorf("found %v, %v", found, err)
		}
		if keys := p.informer.GetStore().ListKeys(); !slices.Equal(keys, []string{"default/A"}) {
			t.Errorf("keys %v", keys)
		}
		p.stop()
	})
}
