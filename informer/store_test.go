package informer_test

import (
	"context"
	"errors"
	goruntime "runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/apitest"
	"github.com/warmcache/warmcache/reflector"
	"github.com/warmcache/warmcache/store"
)

// countingStore counts the objects written, and can fail.
type countingStore struct {
	store.Store
	ops atomic.Int64
	// afterOps, if not 0, closes the store after so many.
	afterOps int64
}

func (s *countingStore) Collection(id store.Identity, owner string) (store.Collection, error) {
	c, err := s.Store.Collection(id, owner)
	return &countingCollection{c, s}, err
}

type countingCollection struct {
	store.Collection
	counts *countingStore
}

func (c *countingCollection) Apply(b store.Batch) error {
	n := c.counts.ops.Add(int64(len(b.Ops)))
	err := c.Collection.Apply(b)
	if c.counts.afterOps > 0 && n >= c.counts.afterOps {
		return errors.Join(err, c.counts.Close())
	}
	return err
}

func TestInformer_IdentityInUse(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a")
		first := w.start().synced()
		second := w.prepareIn(first.store)
		second.recorder = second.handle()
		second.run()
		second.synced()
		if s := second.status(); s.Persistent || !errors.Is(s.Durability.Err, store.ErrInUse) {
			t.Errorf("status of the second %+v", s)
		} else if strings.Count(s.Durability.Err.Error(), "informer_test.persistent (harness_test.go:") != 2 {
			t.Errorf("the error does not name both: %v", s.Durability.Err)
		}
		w.create("b")
		synctest.Wait()
		second.converged()
		second.stop()
		first.stop()
	})
}

// memoryOnly is a store without a file. Its collections do not say so.
type memoryOnly struct{ store.Store }

func (memoryOnly) Status() store.Status { return store.Status{Err: store.ErrLocked} }

func TestInformer_StoreInMemoryOnly_IsNotPersistent(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.prepareIn(memoryOnly{w.memory.Open()})
		want := func(when string) {
			t.Helper()
			if s := p.status(); s.Persistent || !errors.Is(s.Durability.Err, store.ErrLocked) {
				t.Errorf("%s: persistent %v, %v", when, s.Persistent, s.Durability.Err)
			}
		}
		want("before the start")
		p.recorder = p.handle()
		p.run()
		p.synced()
		want("running")
		p.stop()
		want("stopped")
	})
}

// TestInformer_StoreClosedWhileRunning checks that the informer goes on from
// memory, and that the next start resumes from before.
func TestInformer_StoreClosedWhileRunning(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.start().synced()
		if err := p.store.Close(); err != nil {
			t.Fatal(err)
		}
		w.create("b")
		w.delete("a")
		w.wantEvents(p.recorder, "initial a", "add b", "delete a")
		p.converged()
		if s := p.status(); s.Persistent || s.Durability.Err == nil {
			t.Errorf("status %+v", s)
		}
		p.stop()
		p = w.start().synced()
		w.wantEvents(p.recorder, "initial a", "delete a", "initial b")
		if p.lists() != 0 {
			t.Errorf("listed because %q", p.status().ListReason)
		}
		p.stop()
	})
}

// TestInformer_StoreClosedWhileRunning_OnDisk checks that an informer whose objects are in
// the store says that it cannot go on.
func TestInformer_StoreClosedWhileRunning_OnDisk(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.make = onDisk
		w.create("a")
		p := w.start().synced()
		if err := p.store.Close(); err != nil {
			t.Fatal(err)
		}
		w.create("b")
		w.wantEvents(p.recorder, "initial a")
		s := p.status()
		if s.Persistent || !errors.Is(s.Durability.Err, store.ErrClosed) || !errors.Is(s.ReadErr, store.ErrClosed) || s.Phase != reflector.PhaseStopped {
			t.Errorf("status %+v", s)
		}
		p.stop()
	})
}

// TestInformer_TwoInformersOneProcess checks that a stopped informer's identity
// can be taken over in the same process.
func TestInformer_TwoInformersOneProcess(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a")
		s := w.memory.Open()
		for range 2 {
			p := w.prepareIn(s)
			p.recorder = p.handle()
			p.run()
			if p.synced(); !p.status().Persistent {
				t.Errorf("status %+v", p.status())
			}
			p.stop()
		}
	})
}

// TestInformer_SelectorsDoNotShare checks that informers with different selectors
// in one store see their own objects only.
func TestInformer_SelectorsDoNotShare(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, n := range []string{"a", "b"} {
			cm := configMap(n, "created")
			cm.Labels = map[string]string{"name": n}
			if err := w.server.Create(cm); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			for _, n := range []string{"a", "b"} {
				w.selector = "name=" + n
				p := w.start(func(o *informer.Options) { o.Identity.LabelSelector = w.selector }).synced()
				w.wantEvents(p.recorder, "initial "+n)
				p.stop()
			}
		}
	})
}

// TestInformer_IncompleteListIsNotResumed interrupts the first list of a
// collection half way.
func TestInformer_IncompleteListIsNotResumed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const n = 2500 // three batches
		for i := range n {
			w.create(name(i))
		}
		p := w.start(func(o *informer.Options) { o.Store = &countingStore{Store: o.Store, afterOps: 1500} }).synced()
		p.kill()
		c := w.contents()
		if len(c.Objects) == 0 || len(c.Objects) >= n || c.Header.Complete {
			t.Fatalf("%d objects, header %+v; the list was not interrupted", len(c.Objects), c.Header)
		}
		w.delete(name(0), name(n-1))
		p = w.start().synced()
		if got := p.lists(); got != 1 {
			t.Errorf("%d lists", got)
		}
		p.converged()
		p.stop()
	})
}

// TestInformer_DamagedStore checks that damage found while loading leads to a list
// and nothing else.
func TestInformer_DamagedStore(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a", "b")
		w.start().synced().kill()
		c, err := w.memory.Open().Collection(withForm(identity), "test")
		if err != nil {
			t.Fatal(err)
		}
		record := []byte("damaged")
		if err := c.Apply(store.Batch{Ops: []store.Op{{Key: "default/a", Value: store.Seal(record)}}}); err != nil {
			t.Fatal(err)
		}
		p := w.start().synced()
		w.wantEvents(p.recorder, "initial a", "initial b")
		p.converged()
		if s := p.status(); !s.Persistent || s.Lists != 1 || !strings.Contains(s.ListReason, "damaged") {
			t.Errorf("status %+v", s)
		}
		p.stop()
		p = w.start().synced()
		if p.lists() != 0 {
			t.Error("listed again after the damage was repaired")
		}
		p.stop()
	})
}

func withForm(id store.Identity) store.Identity {
	id.Form = store.FormTyped
	return id
}

// TestInformer_StoppedWhileLoading checks that a stop before the copy has been
// read shows and writes nothing.
func TestInformer_StoppedWhileLoading(t *testing.T) {
	// With one processor the goroutine that loads goes on before anything else
	// learns of the stop.
	defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(1))
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a", "b")
		w.start().synced().kill()
		before := w.contents()
		for range 3 {
			var p *process
			p = w.prepare(func(o *informer.Options) {
				o.Store = &scannedStore{o.Store, func() {
					time.Sleep(10 * time.Second) // the reflector catches up: the versions are equal
					p.cancel()
				}}
			})
			p.recorder = p.handle()
			p.run()
			<-p.done
			w.wantEvents(p.recorder)
			if p.informer.HasSynced() {
				t.Fatal("synced from a copy that was not read")
			}
			if after := w.contents(); len(after.Objects) != len(before.Objects) || !after.Header.Complete {
				t.Fatalf("the store holds %+v", after)
			}
		}
	})
}

// scannedStore calls a function before each scan.
type scannedStore struct {
	store.Store
	before func()
}

func (s *scannedStore) Collection(id store.Identity, owner string) (store.Collection, error) {
	c, err := s.Store.Collection(id, owner)
	return &scannedCollection{c, s.before}, err
}

type scannedCollection struct {
	store.Collection
	before func()
}

func (c *scannedCollection) View(fn func(store.Tx) error) error {
	return c.Collection.View(func(tx store.Tx) error { return fn(scannedTx{tx, c.before}) })
}

type scannedTx struct {
	store.Tx
	before func()
}

func (t scannedTx) Scan(from string, fn func(key, value []byte) bool) error {
	t.before()
	return t.Tx.Scan(from, fn)
}

// TestInformer_ListsWithoutVersion checks a server that has no versions: each
// start lists, whatever the versions of its objects look like.
func TestInformer_ListsWithoutVersion(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a")
		w.start().synced().kill() // a version is stored
		unversioned := func(o *informer.Options) {}
		w.make = func(lw cache.ListerWatcher, o informer.Options) cache.SharedIndexInformer {
			return must(informer.New(noVersions(lw), &corev1.ConfigMap{}, o))
		}
		p := w.start(unversioned).synced()
		w.create("b")
		w.update("a", "new")
		synctest.Wait()
		p.converged()
		p.kill()
		if h := w.contents().Header; h.RV != "" || !h.Complete {
			t.Errorf("header %+v, want no version", h)
		}
		w.delete("a")
		p = w.start(unversioned).synced()
		// A watch from no version begins with what exists, which is a resync.
		w.wantEvents(p.recorder, "initial a", "delete a", "initial b", "resync b")
		if p.lists() != 1 {
			t.Errorf("%d lists", p.lists())
		}
		p.stop()
	})
}

// noVersions hides the versions of lists and bookmarks, as some aggregated API
// servers do.
func noVersions(lw cache.ListerWatcher) cache.ListerWatcher {
	inner := cache.ToListerWatcherWithContext(lw)
	return pagesOnly{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := inner.ListWithContext(ctx, o)
			if l, ok := list.(*corev1.ConfigMapList); ok {
				l.ResourceVersion = ""
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.AllowWatchBookmarks = false
			return inner.WatchWithContext(ctx, o)
		},
	}}
}

type pagesOnly struct{ *cache.ListWatch }

func (pagesOnly) IsWatchListSemanticsUnSupported() bool { return true }

// TestInformer_OtherCluster checks that the objects of another cluster are
// dropped, without deletes, before they are shown.
func TestInformer_OtherCluster(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a", "b")
		cluster := func(name string) func(o *informer.Options) {
			return func(o *informer.Options) {
				o.Cluster = func(context.Context) (string, error) { return name, nil }
			}
		}
		w.start(cluster("one")).synced().kill()
		w.delete("a")
		p := w.start(cluster("two")).synced()
		w.wantEvents(p.recorder, "initial b")
		p.converged()
		if p.lists() != 1 {
			t.Errorf("%d lists", p.lists())
		}
		p.kill()
		if h := w.contents().Header; h.Cluster != "two" {
			t.Errorf("header %+v", h)
		}
		p = w.start(cluster("two")).synced()
		if p.lists() != 0 {
			t.Error("listed again")
		}
		p.stop()
	})
}

// TestInformer_OtherClusterShownAsStale checks that handlers lose what the Stale
// policy has shown them of another cluster.
func TestInformer_OtherClusterShownAsStale(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a", "b")
		w.start(func(o *informer.Options) {
			o.Cluster = func(context.Context) (string, error) { return "one", nil }
		}).synced().kill()
		w.delete("a")
		var reachable atomic.Bool
		if err := w.server.Down(); err != nil {
			t.Fatal(err)
		}
		p := w.start(func(o *informer.Options) {
			o.Start = informer.Stale(5 * time.Second)
			o.Cluster = func(context.Context) (string, error) {
				if !reachable.Load() {
					return "", errors.New("connection lost")
				}
				return "two", nil
			}
		}).synced()
		w.wantEvents(p.recorder, "initial a", "initial b")
		reachable.Store(true)
		if err := w.server.Up(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		p.converged()
		if !p.status().Confirmed {
			t.Error("not confirmed")
		}
		p.stop()
	})
}

// TestInformer_OtherSchema checks that a list compares contents, not versions.
func TestInformer_OtherSchema(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a")
		schema := func(name string) func(o *informer.Options) {
			return func(o *informer.Options) {
				o.Schema = func(context.Context) (string, error) { return name, nil }
			}
		}
		w.start(schema("one")).synced().kill()
		for range 2 {
			p := w.start(schema("two")).synced()
			w.wantEvents(p.recorder, "initial a")
			p.converged()
			p.kill()
		}
		if got := w.contents().Header.Schema; got != "two" {
			t.Errorf("schema %q", got)
		}
	})
}

func TestInformer_ListBelow(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a")
		byDefault := func(o *informer.Options) { o.ListBelow = 0 }
		w.start().synced().stop()
		p := w.start(byDefault).synced()
		if p.lists() != 1 || !strings.Contains(p.status().ListReason, "cheaper") {
			t.Errorf("%d lists, %q", p.lists(), p.status().ListReason)
		}
		if w.contents().Header.Clean {
			t.Error("marked as gracefully stopped while it runs")
		}
		p.kill()
		p = w.start(byDefault).synced()
		if p.lists() != 0 {
			t.Error("listed after a crash; handlers may know an object that is not stored, and its delete would be lost")
		}
		p.stop()
		if !w.contents().Header.Clean {
			t.Error("not marked as gracefully stopped")
		}
	})
}

func TestInformer_SecretsAreNotPersistedUnlessAskedFor(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		secrets := func(o *informer.Options) { o.Identity.Resource = "secrets" }
		p := w.start(secrets).synced()
		if s := p.status(); s.Persistent || !errors.Is(s.Durability.Err, informer.ErrPlaintextSecrets) {
			t.Errorf("persistent %v, %v", s.Persistent, s.Durability.Err)
		}
		p.stop()
		p = w.start(secrets, func(o *informer.Options) { o.PlaintextSecrets = true }).synced()
		if s := p.status(); !s.Persistent {
			t.Errorf("not persisted although it was asked for: %v", s.Durability.Err)
		}
		p.stop()
	})
}

// TestInformer_SecretsAreRecognisedByTheirType checks that an identity that is a
// mistake does not bring Secrets to the disk.
func TestInformer_SecretsAreRecognisedByTheirType(t *testing.T) {
	unstructuredSecret := &unstructured.Unstructured{}
	unstructuredSecret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	for _, example := range []runtime.Object{&corev1.Secret{}, unstructuredSecret} {
		inWorld(t, func(t *testing.T, w *world) {
			// What is stored under the identity belongs to another informer.
			w.create("a")
			w.start().synced().stop()
			w.make = func(lw cache.ListerWatcher, o informer.Options) cache.SharedIndexInformer {
				return must(informer.New(lw, example, o))
			}
			p := w.prepare()
			p.run()
			synctest.Wait()
			if s := p.status(); s.Persistent || !errors.Is(s.Durability.Err, informer.ErrPlaintextSecrets) {
				t.Errorf("%T: persistent %v, %v", example, s.Persistent, s.Durability.Err)
			}
			p.stop()
			if got := len(w.contents().Objects); got != 1 {
				t.Errorf("%T: the other informer's collection has %d objects, want 1", example, got)
			}
		})
	}
}

// TestInformer_NoBookmarksIsRemembered checks that waiting in vain happens once.
func TestInformer_NoBookmarksIsRemembered(t *testing.T) {
	bothResidencies(t, func(t *testing.T, w *world) {
		w.server.Inject(apitest.Fault{Verb: "watch", NoBookmarks: true})
		w.create("a")
		w.start().synced().kill()
		for n, want := range []time.Duration{12 * time.Second, 0} {
			if err := w.server.Create(&corev1.Secret{ObjectMeta: configMap(name(n), "").ObjectMeta}); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			p := w.start().synced()
			if got := time.Since(start).Truncate(time.Second); got != want || p.lists() != 1 {
				t.Errorf("start %d took %s and %d lists, want %s and 1", n, got, p.lists(), want)
			}
			p.converged()
			p.kill()
		}
	})
}

// TestInformer_FilteredNewestWrite checks the case in which only the probe of the
// second round lets the server send a bookmark.
func TestInformer_FilteredNewestWrite(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.selector = "in=yes"
		selecting := func(o *informer.Options) { o.Identity.LabelSelector = w.selector }
		in := configMap("in", "created")
		in.Labels = map[string]string{"in": "yes"}
		if err := w.server.Create(in); err != nil {
			t.Fatal(err)
		}
		w.start(selecting).synced().kill()
		w.create("out")
		time.AfterFunc(time.Second, func() {
			// The probe after the first round finds a version that no object of
			// this resource has.
			if err := w.server.Create(&corev1.Secret{ObjectMeta: configMap("s", "").ObjectMeta}); err != nil {
				t.Error(err)
			}
		})
		p := w.start(selecting).synced()
		if p.lists() != 0 || !p.status().Confirmed {
			t.Errorf("%d lists, status %+v", p.lists(), p.status())
		}
		w.wantEvents(p.recorder, "initial in")
		p.stop()
	})
}

func TestInformer_OldServerWithoutStreamedLists(t *testing.T) {
	// The harness's server has them; this one refuses with 422.
	inWorldWith(t, apitest.Options{NoWatchList: true}, func(t *testing.T, w *world) {
		for n := range 1200 {
			w.create(name(n))
		}
		p := w.start().synced()
		p.converged()
		counts := w.server.Counts()
		if counts.Lists != 3 || p.status().Lists != 1 {
			t.Errorf("%d pages, status %+v", counts.Lists, p.status())
		}
		p.stop()
	})
}

// TestInformer_StaleAge checks that a state that is not confirmed has an age.
func TestInformer_StaleAge(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.start().synced()
		w.create("b")
		synctest.Wait()
		seen := time.Now()
		p.kill()
		time.Sleep(time.Hour)
		if err := w.server.Down(); err != nil {
			t.Fatal(err)
		}
		p = w.start(func(o *informer.Options) { o.Start = informer.Stale(time.Second) }).synced()
		if s := p.status(); !s.Contact.Equal(seen) || s.Confirmed || !s.Synced || s.PersistedRV != s.RV {
			t.Errorf("status %+v, want contact %s", s, seen)
		}
		p.stop()
		if err := w.server.Up(); err != nil {
			t.Fatal(err)
		}
	})
}

// garblingStore damages the records of departed objects as they are read.
type garblingStore struct{ store.Store }

func (s *garblingStore) Collection(id store.Identity, owner string) (store.Collection, error) {
	c, err := s.Store.Collection(id, owner)
	return &garblingCollection{c}, err
}

type garblingCollection struct{ store.Collection }

func (c *garblingCollection) View(fn func(store.Tx) error) error {
	return c.Collection.View(func(tx store.Tx) error { return fn(garblingTx{tx}) })
}

type garblingTx struct{ store.Tx }

func (t garblingTx) Departed(fn func(store.Departed) bool) error {
	return t.Tx.Departed(func(d store.Departed) bool {
		d.Value = []byte("garbage")
		return fn(d)
	})
}
