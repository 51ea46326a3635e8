package indexer

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

// damage is what a file does to whoever reads it, until it is mended.
type damage struct {
	damagedTx
	// view is the error of a View, if there is one.
	view   error
	mended atomic.Bool
}

// options returns those of a process in disk residency that reads the damaged file.
func (d *damage) options() startOptions {
	s := &spy{onView: func() error {
		if d.mended.Load() {
			return nil
		}
		return d.view
	}}
	s.tx = func(tx store.Tx) store.Tx {
		if d.mended.Load() {
			return tx
		}
		damaged := d.damagedTx
		damaged.Tx = tx
		return damaged
	}
	return startOptions{residency: Disk, wrap: s.around, indexers: allIndexers}
}

// waysToBeUnreadable are kinds of damage, and whether the file is moved aside for them.
var waysToBeUnreadable = map[string]struct {
	damage func() *damage
	aside  bool
}{
	"a wrong checksum": {func() *damage {
		return &damage{damagedTx: damagedTx{value: onlyB(func(v []byte) []byte { v[len(v)/2] ^= 4; return v })}}
	}, true},
	"a record that nobody understands": {func() *damage {
		return &damage{damagedTx: damagedTx{value: onlyB(func([]byte) []byte { return store.Seal([]byte("no pod")) })}}
	}, false},
	"an error of the tree": {func() *damage {
		return &damage{damagedTx: damagedTx{get: fmt.Errorf("%w: test", store.ErrCorrupt), scan: fmt.Errorf("%w: test", store.ErrCorrupt)}}
	}, true},
	"an error of the disk": {func() *damage { return &damage{view: errors.New("input/output error")} }, true},
}

// readsWithErrors are the reads that return errors. Those that need not look at
// records are only sure to fail when damage is known.
var readsWithErrors = map[string]struct {
	read  func(p *process) error
	blind bool
}{
	"GetByKey": {read: func(p *process) error { _, _, err := p.GetByKey("ns/b"); return err }},
	"Get":      {read: func(p *process) error { _, _, err := p.Get(pod("b", "", "")); return err }},
	"ByIndex":  {read: func(p *process) error { _, err := p.ByIndex("app", "x"); return err }},
	"Index":    {read: func(p *process) error { _, err := p.Index("app", pod("q", "", "x")); return err }},
	"ByIndex of namespaces": {read: func(p *process) error {
		_, err := p.ByIndex(cache.NamespaceIndex, "ns")
		return err
	}},
	"IndexKeys": {blind: true, read: func(p *process) error { _, err := p.IndexKeys("app", "x"); return err }},
	"Objects":   {read: func(p *process) error { return errorOf(p.Objects(Query{})) }},
	"Objects of an index": {read: func(p *process) error {
		return errorOf(p.Objects(Query{Index: "app", Value: "x"}))
	}},
	"Objects with labels": {read: func(p *process) error {
		return errorOf(p.Objects(Query{Selector: labels.SelectorFromSet(labels.Set{"l": "1"})}))
	}},
	"Iterate": {read: func(p *process) error { return errorOf(Iterate[*corev1.Pod](p.Indexer, Query{Namespace: "ns"})) }},
	"Chunk": {read: func(p *process) error {
		c, err := p.Chunk("")
		for n := 0; err == nil && n < c.Len(); n++ {
			_, err = c.Object(n)
		}
		return err
	}},
}

// damagedFile returns a file with the pods a, b and c, and opens its store.
func damagedFile(t *testing.T) (*storetest.Memory, store.Store) {
	t.Helper()
	file := storetest.NewMemory()
	start(t, file, startOptions{indexers: allIndexers}).list("1", pod("a", "1", "x"), pod("b", "1", "x"), pod("c", "1", "y"))
	return file, file.Open()
}

func wantUnreadable(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, ErrUnreadable) {
		t.Errorf("%s: %v, want ErrUnreadable", what, err)
	}
}

func TestIndexer_Disk_DamageIsAnErrorOfReads(t *testing.T) {
	for name, way := range waysToBeUnreadable {
		for method, m := range readsWithErrors {
			t.Run(name+"/"+method, func(t *testing.T) {
				_, s := damagedFile(t)
				d := way.damage()
				d.mended.Store(true)
				p := startOn(t, s, d.options())
				d.mended.Store(false)
				if m.blind {
					_, _, err := p.GetByKey("ns/b")
					wantUnreadable(t, "GetByKey", err)
				}
				wantUnreadable(t, method, m.read(p))
				wantAside(t, p, s, way.aside)
				for other, m := range readsWithErrors {
					wantUnreadable(t, other+" afterwards", m.read(p))
				}
				wantAside(t, p, s, way.aside)
				if p.ReadErrors() == 0 {
					t.Error("not counted")
				}
			})
		}
	}
}

// wantAside checks that damage is known, and whether the file was moved aside for it.
func wantAside(t *testing.T, p *process, s store.Store, aside bool) {
	t.Helper()
	wantUnreadable(t, "ReadErr", p.ReadErr())
	if n := s.Status().Quarantines; (n == 1) != aside || n > 1 {
		t.Errorf("moved aside %d times, want it to be: %t", n, aside)
	}
	if !p.IsLost() || !p.AwaitLost(t.Context()) {
		t.Error("it does not have to begin anew")
	}
}

// What has no error to return waits for all of the next list.
func TestIndexer_Disk_ReadsWithoutErrorWaitForTheList(t *testing.T) {
	for name, way := range waysToBeUnreadable {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, s := damagedFile(t)
				d := way.damage()
				d.mended.Store(true)
				p := startOn(t, s, d.options())
				d.mended.Store(false)
				_, _, err := p.GetByKey("ns/b")
				wantUnreadable(t, "GetByKey", err)
				wait := waiters(p)
				wait.none(t, "while nothing is done about it")
				if rv, err := p.BeginAnew(); rv != "1" || err != nil {
					t.Fatalf("BeginAnew: %q, %v", rv, err)
				}
				if d.mended.Store(true); p.IsLost() || !p.AwaitLost(t.Context()) {
					t.Error("lost again, or found at once")
				}
				wait.none(t, "after BeginAnew")
				p.apply(Update{Incomplete: true, Changes: []Change{put(pod("b", "2", "x"))}})
				wait.none(t, "within a list")
				for method, m := range readsWithErrors {
					wantUnreadable(t, method+" within a list", m.read(p))
				}
				p.apply(Update{Complete: true, RV: "2", Changes: []Change{put(pod("c", "2", "z"))}})
				wait.all(t)
				if err := p.ReadErr(); err != nil || p.IsLost() {
					t.Errorf("afterwards: %v", err)
				}
				p.verify()
			})
		})
	}
}

// waiting are calls that have no error to return.
type waiting struct {
	objects chan []any
	keys    chan []string
	values  chan []string
	ready   chan bool
}

func waiters(p *process) waiting {
	w := waiting{make(chan []any, 1), make(chan []string, 1), make(chan []string, 1), make(chan bool, 1)}
	go func() { w.objects <- p.List() }()
	go func() { w.keys <- p.ListKeys() }()
	go func() { w.values <- p.ListIndexFuncValues("app") }()
	go func() { w.ready <- p.AwaitReadable(nil) }()
	return w
}

func (w waiting) none(t *testing.T, when string) {
	t.Helper()
	synctest.Wait()
	if len(w.objects)+len(w.keys)+len(w.values)+len(w.ready) > 0 {
		t.Fatalf("a call has returned %s", when)
	}
}

func (w waiting) all(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if len(w.objects)+len(w.keys)+len(w.values)+len(w.ready) < 4 {
		t.Fatal("a call has not returned")
	}
	objs, listed, values := <-w.objects, <-w.keys, <-w.values
	if want := []string{"ns/b", "ns/c"}; !slices.Equal(keys(objs), want) || !slices.Equal(listed, want) || !<-w.ready {
		t.Errorf("List has %v, ListKeys %v", keys(objs), listed)
	}
	if !slices.Equal(values, []string{"x", "z"}) {
		t.Errorf("ListIndexFuncValues has %v", values)
	}
}

// When the informer stops in the meantime, these calls have nothing to return: no part
// of something either.
func TestIndexer_Disk_ReadsWithoutErrorEndWithTheInformer(t *testing.T) {
	for name, way := range waysToBeUnreadable {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, s := damagedFile(t)
				d := way.damage()
				d.mended.Store(true)
				p := startOn(t, s, d.options())
				d.mended.Store(false)
				_, _, err := p.GetByKey("ns/b")
				wantUnreadable(t, "GetByKey", err)
				wait := waiters(p)
				wait.none(t, "while nothing is done about it")
				_ = p.Detach()
				synctest.Wait()
				if objs, keys, values, ready := <-wait.objects, <-wait.keys, <-wait.values, <-wait.ready; ready || len(objs)+len(keys)+len(values) > 0 {
					t.Errorf("List %v, ListKeys %v, ListIndexFuncValues %v, AwaitReadable %t", objs, keys, values, ready)
				}
			})
		})
	}
}

// A read that fails after it has seen some of the objects returns none of them, even if
// there is nothing to wait for any more.
func TestIndexer_Disk_NoPartAfterDetach(t *testing.T) {
	for name, read := range map[string]func(p *process) []string{
		"List":                              func(p *process) []string { return keys(p.List()) },
		"ListKeys":                          func(p *process) []string { return p.ListKeys() },
		"ListIndexFuncValues":               func(p *process) []string { return p.ListIndexFuncValues("app") },
		"ListIndexFuncValues of namespaces": func(p *process) []string { return p.ListIndexFuncValues(cache.NamespaceIndex) },
		"Known.ListKeys":                    func(p *process) []string { return p.Known().ListKeys() },
		"IndexKeys":                         func(p *process) []string { keys, _ := p.IndexKeys("app", "x"); return keys },
		"IndexKeys of namespaces":           func(p *process) []string { keys, _ := p.IndexKeys(cache.NamespaceIndex, "ns"); return keys },
	} {
		_, s := damagedFile(t)
		var broken atomic.Bool
		o := startOptions{residency: Disk, indexers: allIndexers}
		o.wrap = (&spy{tx: func(tx store.Tx) store.Tx {
			if broken.Load() {
				return halfTx{tx}
			}
			return tx
		}}).around
		p := startOn(t, s, o)
		if err := p.Detach(); err != nil {
			t.Fatal(err)
		}
		broken.Store(true)
		if got := read(p); len(got) > 0 {
			t.Errorf("%s has %v", name, got)
		}
	}
}

// halfTx fails after the first thing it has found.
type halfTx struct{ store.Tx }

var errHalf = fmt.Errorf("%w: test", store.ErrCorrupt)

func (t halfTx) Scan(from string, fn func(key, value []byte) bool) error {
	err := t.Tx.Scan(from, func(key, value []byte) bool { fn(key, value); return false })
	return errors.Join(err, errHalf)
}

func (t halfTx) IndexKeys(name, value, from string, fn func(key []byte) bool) error {
	err := t.Tx.IndexKeys(name, value, from, func(key []byte) bool { fn(key); return false })
	return errors.Join(err, errHalf)
}

func (t halfTx) IndexValues(name, from string, fn func(value []byte) bool) error {
	err := t.Tx.IndexValues(name, from, func(value []byte) bool { fn(value); return false })
	return errors.Join(err, errHalf)
}

// Who has begun to read what is lost by now must not condemn what has taken its place.
func TestIndexer_Disk_LateErrorDoesNotCondemn(t *testing.T) {
	_, s := damagedFile(t)
	entered, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	codec := picky{Codec: podCodec(t), decode: func(p *corev1.Pod) (err error) {
		once.Do(func() {
			close(entered)
			<-release
			err = fmt.Errorf("%w: test", store.ErrCorrupt)
		})
		return err
	}}
	p := startOn(t, s, startOptions{residency: Disk, codec: codec, indexers: allIndexers})
	late := make(chan error)
	go func() { _, _, err := p.GetByKey("ns/a"); late <- err }()
	<-entered
	p.collection.Quarantine(errors.New("test"))
	if _, err := p.BeginAnew(); err != nil {
		t.Fatal(err)
	}
	p.list("2", pod("a", "2", "x"))
	close(release)
	wantUnreadable(t, "the late read", <-late)
	if n := s.Status().Quarantines; n != 1 || p.ReadErr() != nil || p.IsLost() {
		t.Errorf("moved aside %d times, %v", n, p.ReadErr())
	}
	p.wantObjects(pod("a", "2", "x"))
}

// A loss that the engine has found is one before anybody has read, so that those who wait
// for the end of it do.
func TestIndexer_Disk_AwaitLost_IsUnreadableThen(t *testing.T) {
	_, s := damagedFile(t)
	p := startOn(t, s, startOptions{residency: Disk, indexers: allIndexers})
	p.collection.Quarantine(errors.New("test"))
	if !p.AwaitLost(t.Context()) {
		t.Fatal("not lost")
	}
	wantUnreadable(t, "ReadErr", p.ReadErr())
	stop := make(chan struct{})
	close(stop)
	if p.AwaitReadable(stop) {
		t.Error("readable")
	}
	if _, err := p.BeginAnew(); err != nil {
		t.Fatal(err)
	}
	p.list("2", pod("a", "2", "x"))
	if !p.AwaitReadable(nil) || p.IsLost() {
		t.Error("not readable after a list")
	}
}

// The same of who reads while there is nothing for others to read: a list.
func TestHealth_LateErrorOfAListThatWasLost(t *testing.T) {
	h := newHealth()
	condemned := 0
	condemn := func() { condemned++ }
	h.fail(store.ErrCorrupt, h.count(), condemn)
	h.begin(store.ErrCorrupt)
	list := h.count()
	h.fail(store.ErrCorrupt, list, condemn)
	h.begin(store.ErrCorrupt)
	h.fail(store.ErrCorrupt, list, condemn)
	if condemned != 2 || h.mustBegin() {
		t.Errorf("condemned %d times, want 2; has to begin anew: %t", condemned, h.mustBegin())
	}
}

// What is condemned is what was read, even if the collection is about to begin anew.
func TestHealth_CondemnsBeforeTheCollectionBeginsAnew(t *testing.T) {
	h := newHealth()
	h.fail(store.ErrCorrupt, h.count(), func() {
		if h.mu.TryLock() {
			h.mu.Unlock()
			t.Error("the collection may begin anew meanwhile, and be condemned instead of the one before")
		}
	})
}

// A store that is closed is no damage.
func TestIndexer_Disk_ClosedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, s := damagedFile(t)
		p := startOn(t, s, startOptions{residency: Disk, indexers: allIndexers})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for method, m := range readsWithErrors {
			if err := m.read(p); !errors.Is(err, store.ErrClosed) || errors.Is(err, ErrUnreadable) {
				t.Errorf("%s: %v, want ErrClosed", method, err)
			}
		}
		if _, err := p.Apply(Update{Changes: []Change{put(pod("a", "2", "x"))}}); !errors.Is(err, store.ErrClosed) {
			t.Errorf("Apply: %v", err)
		}
		if err := p.AddIndexers(cache.Indexers{"new": byApp}); !errors.Is(err, store.ErrClosed) {
			t.Errorf("AddIndexers: %v", err)
		}
		if p.ReadErr() != nil || p.IsLost() {
			t.Errorf("taken for damage: %v", p.ReadErr())
		}
		wait := waiters(p)
		if synctest.Wait(); len(wait.objects)+len(wait.keys)+len(wait.values) > 0 || len(wait.ready) != 1 {
			t.Error("a call has returned before the informer has stopped")
		}
		if err := p.Detach(); err != nil {
			t.Error(err)
		}
		if objs, keys, values := <-wait.objects, <-wait.keys, <-wait.values; len(objs)+len(keys)+len(values) > 0 {
			t.Errorf("List %v, ListKeys %v, ListIndexFuncValues %v", objs, keys, values)
		}
		start(t, file, startOptions{indexers: allIndexers}).wantObjects(pod("a", "1", "x"), pod("b", "1", "x"), pod("c", "1", "y"))
	})
}

func TestIndexer_Disk_ReadsGoOnAfterDetach(t *testing.T) {
	_, s := damagedFile(t)
	p := startOn(t, s, startOptions{residency: Disk, indexers: allIndexers})
	if err := p.Detach(); err != nil {
		t.Fatal(err)
	}
	p.wantObjects(pod("a", "1", "x"), pod("b", "1", "x"), pod("c", "1", "y"))
	for method, m := range readsWithErrors {
		if err := m.read(p); err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
	wantKeys(t, p, "app", "x", "ns/a", "ns/b")
	for what, err := range map[string]error{
		"Add":         p.Add(pod("a", "2", "x")),
		"Delete":      p.Delete(pod("a", "2", "x")),
		"Replace":     p.Replace(nil, "2"),
		"AddIndexers": p.AddIndexers(cache.Indexers{"new": byApp}),
	} {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", what, err)
		}
	}
	if p.LastStoreSyncResourceVersion() != "1" || p.ReadErr() != nil {
		t.Errorf("version %q, %v", p.LastStoreSyncResourceVersion(), p.ReadErr())
	}
}

// What another indexer writes is not hidden by what was read before.
func TestIndexer_Disk_NothingIsKeptAfterDetach(t *testing.T) {
	_, s := damagedFile(t)
	p := startOn(t, s, startOptions{residency: Disk, indexers: allIndexers})
	read := func() {
		for _, key := range p.ListKeys() {
			if _, exists, err := p.GetByKey(key); !exists || err != nil {
				t.Errorf("GetByKey(%s): %t, %v", key, exists, err)
			}
		}
	}
	read()
	if err := p.Detach(); err != nil {
		t.Fatal(err)
	}
	read()
	next := startOn(t, s, startOptions{residency: Disk, indexers: allIndexers})
	next.apply(Update{RV: "2", Changes: []Change{put(pod("a", "2", "y")), remove("b")}})
	if got, _, err := p.GetByKey("ns/a"); versionOf(got) != "2" || err != nil {
		t.Errorf("GetByKey: version %q, %v", versionOf(got), err)
	}
	if _, exists, err := p.GetByKey("ns/b"); exists || err != nil {
		t.Errorf("GetByKey of what is gone: %t, %v", exists, err)
	}
	if got := p.List(); len(got) != 2 || versionOf(got[0]) != "2" {
		t.Errorf("List: %d objects, the first of version %q", len(got), versionOf(got[0]))
	}
	if got := p.CacheStats(); got.Objects != 0 || got.Bytes != 0 {
		t.Errorf("%+v, want an empty cache", got)
	}
}

// An object that has more than the whole budget is served all the same.
func TestIndexer_Disk_OversizeObject(t *testing.T) {
	large := pod("large", "1", "x")
	large.Annotations["padding"] = string(bytes.Repeat([]byte("x"), 50_000))
	for _, kept := range []string{"written", "read"} {
		file := storetest.NewMemory()
		p := start(t, file, startOptions{residency: Disk, budget: 20_000})
		p.list("1", pod("small", "1", "x"))
		p.apply(Update{RV: "2", Changes: []Change{put(large)}})
		if kept == "read" {
			p = start(t, file, startOptions{residency: Disk, budget: 20_000})
		}
		for range 2 {
			for _, want := range []*corev1.Pod{large, pod("small", "1", "x")} {
				if got, exists, err := p.GetByKey("ns/" + want.Name); !equal(got, want) || !exists || err != nil {
					t.Errorf("GetByKey: %v, %t, %v", got, exists, err)
				}
			}
			p.wantObjects(large, pod("small", "1", "x"))
			wantKeys(t, p, "app", "x", "ns/large", "ns/small")
		}
		if s := p.CacheStats(); s.Objects != 1 || s.Bytes > s.Budget {
			t.Errorf("%s: %+v", kept, s)
		}
	}
}
