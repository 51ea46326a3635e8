package informer_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/apitest"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
)

// inFile runs a test of informers that keep their objects in a file.
func inFile(t *testing.T, test func(t *testing.T, w *world, db *bolt.DB)) {
	t.Helper()
	inWorld(t, func(t *testing.T, w *world) {
		w.make = onDisk
		test(t, w, bolttest.Open(t, filepath.Join(t.TempDir(), "dir", "cache"), bolt.Options{}))
	})
}

// historian is a recorder that checks that what it is told of each object is a history,
// and that the store has got at least as far.
type historian struct {
	recorder
	t     *testing.T
	store cache.Store
}

// chronicle registers a historian.
func (p *process) chronicle(before func(event string)) *historian {
	p.w.t.Helper()
	h := &historian{t: p.w.t, store: p.informer.GetStore(), recorder: recorder{state: map[string]string{}, before: before}}
	h.registration = must(p.informer.AddEventHandler(h))
	return h
}

func (h *historian) OnAdd(obj any, isInInitialList bool) {
	h.check("add", obj, h.last(keyOf(obj)) == "")
	h.recorder.OnAdd(obj, isInInitialList)
}

func (h *historian) OnUpdate(old, obj any) {
	h.check("update", obj, h.last(keyOf(obj)) == describe(old))
	h.recorder.OnUpdate(old, obj)
}

func (h *historian) OnDelete(obj any) {
	uid, _, _ := strings.Cut(h.last(keyOf(obj)), "@")
	h.check("delete", obj, uid != "" && strings.HasPrefix(describe(obj), uid+"@"))
	h.recorder.OnDelete(obj)
}

func (h *historian) check(what string, obj any, legal bool) {
	key := keyOf(obj)
	if !legal {
		h.t.Errorf("%s of %s, %s, does not go on from %q", what, key, describe(obj), h.last(key))
	}
	item, exists, err := h.store.GetByKey(key)
	if err != nil {
		h.t.Error(err)
	}
	if exists && what != "delete" && number(versionOf(item)) < number(versionOf(obj)) {
		h.t.Errorf("%s of %s tells more than the store, which has %s", what, describe(obj), describe(item))
	}
}

// last is what the handler knows of an object.
func (h *historian) last(key string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state[key]
}

// versionOf is the resourceVersion of an object.
func versionOf(obj any) string {
	_, rest, _ := strings.Cut(describe(obj), "@")
	rv, _, _ := strings.Cut(rest, "=")
	return rv
}

// TestDisk_SlowHandler checks that a handler that does not return from its first object
// delays nobody, and knows everything in the end.
func TestDisk_SlowHandler(t *testing.T) {
	inFile(t, func(t *testing.T, w *world, db *bolt.DB) {
		const count = 600
		for n := range count {
			w.create(name(n))
		}
		for range 2 { // cold and warm
			p := w.prepareIn(db)
			opened := make(chan struct{})
			slow := p.chronicle(func(string) { <-opened })
			fast := p.chronicle(nil)
			p.run()
			<-p.informer.HasSyncedChecker().Done()
			<-fast.registration.HasSyncedChecker().Done()
			late := p.chronicle(nil)
			<-late.registration.HasSyncedChecker().Done()
			for n := range count {
				w.update(name(n), fmt.Sprint(rand.Uint32()))
			}
			w.delete(name(0), name(count-1))
			w.create(name(0), name(count-1))
			for _, r := range []*historian{fast, late} {
				p.recorder = &r.recorder
				p.converged()
			}
			if slow.registration.HasSynced() {
				t.Error("the registration of a handler that has not returned from its first object has synced")
			}
			close(opened)
			<-slow.registration.HasSyncedChecker().Done()
			p.recorder = &slow.recorder
			p.converged()
			p.stop()
		}
	})
}

// TestDisk_SlowHandlersHoldLittle checks that what handlers have not come to yet is not
// in memory.
func TestDisk_SlowHandlersHoldLittle(t *testing.T) {
	inFile(t, func(t *testing.T, w *world, db *bolt.DB) {
		const count, size, handlers = 1000, 20 << 10, 4
		for n := range count {
			cm := configMap(name(n), strings.Repeat("x", size))
			if err := w.server.Create(cm); err != nil {
				t.Fatal(err)
			}
		}
		p := w.prepareIn(db, func(o *informer.Options) { o.MemoryBudget = 1 << 20 })
		p.run()
		<-p.informer.HasSyncedChecker().Done()
		time.Sleep(time.Minute) // all is committed, and connections are idle
		opened := make(chan struct{})
		before := heap()
		for range handlers {
			must(p.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-opened }}))
		}
		synctest.Wait()
		grown := heap() - before
		if limit := int64(handlers * 4 << 20); grown > limit {
			t.Errorf("%d handlers at their first of %d objects of %d bytes hold %d bytes, more than %d", handlers, count, size, grown, limit)
		}
		t.Logf("%d handlers hold %d KiB of %d KiB", handlers, grown>>10, count*size>>10)
		close(opened)
		p.stop()
	})
}

// heap is what is reachable.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what the first has finalised
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// TestDisk_RandomChanges changes objects at random while handlers of all paces come,
// resync and go.
func TestDisk_RandomChanges(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("replay with -seed=%d", seed)
	inFile(t, func(t *testing.T, w *world, db *bolt.DB) {
		r := rand.New(rand.NewPCG(seed, seed))
		for n := range 500 {
			w.create(name(n))
		}
		for life := 0; life < 3 && !t.Failed(); life++ {
			p := w.prepareIn(db, func(o *informer.Options) { o.ResyncPeriod = 2 * time.Second })
			var handlers []*historian
			p.run()
			for range 200 {
				switch n := r.IntN(100); {
				case n < 4:
					handlers = append(handlers, p.chronicle(pace(rand.New(rand.NewPCG(r.Uint64(), seed)))))
				case n < 6 && len(handlers) > 1:
					remove(t, p.informer, handlers[0].registration)
					handlers = handlers[1:]
				default:
					w.change(name(r.IntN(600)), r.IntN(3) == 0)
				}
				time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
			}
			for _, h := range handlers {
				<-h.registration.HasSyncedChecker().Done()
			}
			time.Sleep(20 * time.Second)
			for _, h := range handlers {
				p.recorder = &h.recorder
				p.converged()
			}
			p.stop()
		}
	})
}

// change changes an object, or ends it.
func (w *world) change(name string, end bool) {
	_, err := w.server.Get(configMaps, "default", name)
	switch {
	case err != nil:
		w.create(name)
	case end:
		w.delete(name)
	default:
		w.update(name, fmt.Sprint(w.server.ResourceVersion()))
	}
}

// pace returns a function that takes some time now and then.
func pace(r *rand.Rand) func(string) {
	var mu sync.Mutex
	usual := time.Duration(1+r.IntN(20)) * time.Millisecond
	return func(string) {
		mu.Lock()
		pause := r.IntN(20) == 0
		mu.Unlock()
		if pause {
			time.Sleep(usual)
		}
	}
}

// TestDisk_StoppedInReplay ends informers in the middle of replays, and their stores
// after that.
func TestDisk_StoppedInReplay(t *testing.T) {
	inFile(t, func(t *testing.T, w *world, db *bolt.DB) {
		for n := range 600 {
			w.create(name(n))
		}
		for range 3 {
			p := w.prepareIn(db)
			var handlers []*historian
			for range 3 {
				handlers = append(handlers, p.chronicle(func(string) { time.Sleep(time.Millisecond) }))
			}
			p.run()
			<-p.informer.HasSyncedChecker().Done()
			handlers = append(handlers, p.chronicle(func(string) { time.Sleep(time.Millisecond) }))
			time.Sleep(100 * time.Millisecond)
			p.stop()
			for _, h := range handlers {
				if n := len(h.take()); n < 50 || n > 200 || h.registration.HasSynced() {
					t.Errorf("the handler was told of %d objects in 100 ms; synced %v", n, h.registration.HasSynced())
				}
			}
		}
	})
}

// TestDisk_DepartedDuringReplay checks that the delivery of a departed object has ended
// when its handlers have returned from it, although their replay has not.
func TestDisk_DepartedDuringReplay(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.make = onDisk
		w.gone("a", "b")
		p := w.prepare()
		opened := make(chan struct{})
		r := p.handleWith(func(event string) {
			if event == "initial kept" {
				<-opened
			}
		}, cache.HandlerOptions{})
		p.run()
		<-p.informer.HasSyncedChecker().Done()
		time.Sleep(time.Minute)
		w.wantEvents(r, "initial a", "delete a", "initial b", "delete b")
		w.delete("kept")
		synctest.Wait()
		if got, want := w.departed(), []string{"a 0", "b 0", "kept 0"}; !slices.Equal(got, want) {
			t.Errorf("departed %v, want %v", got, want)
		}
		close(opened)
		w.wantEvents(r, "initial kept", "delete kept")
		p.stop()
	})
}

// TestDisk_HandlerWaitsForObjects checks that a handler that is in a call that waits for
// stored objects does not keep the informer from stopping.
func TestDisk_HandlerWaitsForObjects(t *testing.T) {
	inFile(t, func(t *testing.T, w *world, db *bolt.DB) {
		w.create("a")
		p := w.prepareIn(db)
		closed := make(chan struct{})
		listed := -1
		must(p.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) {
			<-closed
			listed = len(p.informer.GetStore().List())
		}}))
		p.run()
		<-p.informer.HasSyncedChecker().Done()
		synctest.Wait() // the handler has been called
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		close(closed)
		synctest.Wait()
		if listed != -1 {
			t.Errorf("the handler was given %d objects of a store that is closed, while the informer runs", listed)
		}
		p.stop()
		if listed != 0 {
			t.Error("the handler has not returned")
		}
	})
}

// TestDisk_LostAgainWhileItIsFilled checks that objects that are lost again, before the
// list that is to replace them has arrived, are listed once more.
func TestDisk_LostAgainWhileItIsFilled(t *testing.T) {
	inWorldWith(t, apitest.Options{NoWatchList: true}, func(t *testing.T, w *world) {
		w.make = onDisk
		path := filepath.Join(t.TempDir(), "dir", "cache")
		db := bolttest.Open(t, path, bolt.Options{})
		const pages, page = 3, 500
		for n := range pages * page {
			w.create(name(n))
		}
		p := w.prepareIn(db)
		p.recorder = p.handle()
		p.run()
		p.synced()
		time.Sleep(time.Minute) // all is committed
		const pause = 10 * time.Second
		defer w.server.Inject(apitest.Fault{
			Verb: "list", Delay: pause, Times: pages - 1,
			Match: func(r apitest.Request) bool { return r.Query.Get("continue") != "" },
		}).Remove()
		removed := func() {
			if err := os.Remove(path); err != nil {
				t.Error(err)
			}
		}
		removed()
		w.update(name(0), "noticed") // by the commit of this
		time.Sleep(pause / 2)
		removed() // the next file, which has the first page
		time.Sleep(time.Minute)
		if err := p.status().ReadErr; err != nil {
			t.Fatal(err)
		}
		p.converged()
		p.stop()
	})
}

// TestDisk_LargeObjectsAreNotReadAhead checks that what waits for the disk is bounded in
// bytes, and not only in objects.
func TestDisk_LargeObjectsAreNotReadAhead(t *testing.T) {
	inFile(t, func(t *testing.T, w *world, db *bolt.DB) {
		const count, size, limit = 100, 512 << 10, 32 << 20
		for n := range count {
			if err := w.server.Create(configMap(name(n), strings.Repeat("x", size))); err != nil {
				t.Fatal(err)
			}
		}
		applied := make(chan struct{})
		p := w.prepareIn(db, func(o *informer.Options) {
			o.Indexers = cache.Indexers{"slow": func(any) ([]string, error) { <-applied; return nil, nil }}
		})
		var read atomic.Int64
		if err := p.informer.SetTransform(func(obj any) (any, error) { read.Add(1); return obj, nil }); err != nil {
			t.Fatal(err)
		}
		p.run()
		synctest.Wait()
		if n := read.Load(); n == 0 || n*size > limit {
			t.Errorf("%d objects of %d bytes were read before the first was applied", n, size)
		}
		close(applied)
		<-p.informer.HasSyncedChecker().Done()
		p.stop()
		if n := read.Load(); n != count {
			t.Errorf("%d objects were read, of %d", n, count)
		}
	})
}
