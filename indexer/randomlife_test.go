package indexer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/store"
)

// How the processes of a world begin and end, and what their objects look like.

// variant is an index function with its version.
type variant struct {
	version string
	fn      cache.IndexFunc
}

// byAppAnew is a later version of byApp.
func byAppAnew(obj any) ([]string, error) {
	values, err := byApp(obj)
	for i, value := range values {
		values[i] = "app " + value
	}
	return values, err
}

// byPickyApp does not like all pods, and is always right about that.
func byPickyApp(obj any) ([]string, error) {
	values, err := byApp(obj)
	if slices.Contains(values, "y") {
		panic("a pod it does not like")
	}
	return values, err
}

// randomIndices are the indices of random processes, each in several versions. What is
// named as the index of namespaces need not be one.
var randomIndices = map[string][]variant{
	"app":                {{"1", byApp}, {"2", byAppAnew}},
	"node":               {{"1", byNode}},
	"picky":              {{"1", byPickyApp}},
	cache.NamespaceIndex: {{"1", cache.MetaNamespaceIndexFunc}, {"1", cache.MetaNamespaceIndexFunc}, {"2", byNode}},
	"namespaces":         {{"1", cache.MetaNamespaceIndexFunc}},
}

// pod returns a random pod. Keys are few, so that they meet, and are each other's
// neighbours in several ways.
func (w *world) pod() *corev1.Pod {
	p := pod(pick(w, "x", "x.y", "x-y", "a", "b", "c", "d", "e"), w.nextRV(), pick(w, "", "x", "y", "x,y", "y,y", ",x", "n\x00/ü,x"))
	p.Namespace = pick(w, "", "a", "a-b", "a0", "ab", "b")
	p.Spec.NodeName = fmt.Sprint("node-", w.IntN(4))
	p.UID = types.UID("uid of " + keyOf(p))
	if w.chance(5) {
		p.UID = types.UID(fmt.Sprint("uid-", w.IntN(3)))
	}
	if w.chance(2) {
		p.Labels = map[string]string{"l": pick(w, "0", "1")}
	}
	if w.chance(10) {
		p.Annotations["padding"] = strings.Repeat("padding ", w.IntN(1000))
	}
	return p
}

func keyOf(p *corev1.Pod) string { return cache.MetaObjectToName(p).String() }

// open starts a process.
func (w *world) open() {
	w.variants = map[string]variant{}
	versions, indexers := map[string]string{}, cache.Indexers{}
	for _, name := range slices.Sorted(maps.Keys(randomIndices)) {
		v := pick(w, randomIndices[name]...)
		w.variants[name], versions[name] = v, v.version
		if w.chance(2) {
			indexers[name] = v.fn
		}
	}
	o := startOptions{
		indexers: indexers, versions: versions, fingerprint: w.fingerprint, codec: w.codec,
		residency: pick(w, w.residencies...), budget: pick[int64](w, 1, 2000, 10_000, 50_000, 1<<20),
	}
	w.note("start %v with %v, budget %d", o.residency, slices.Sorted(maps.Keys(indexers)), o.budget)
	w.process = attachTo(w, w.engine.open(w), o)
	isForeign := w.written != "" && w.written != w.fingerprint
	clear(w.foreign)
	if isForeign {
		for key := range w.stored {
			w.foreign[key] = true
		}
	}
	w.rebuild()
	w.checkOrigin(isForeign)
	if w.Residency() == Disk && w.chance(2) {
		w.beforeLoad()
	}
	w.load()
	w.version = ""
	if w.complete {
		w.version = w.persisted
	}
}

// checkOrigin compares where a watch may resume.
func (w *world) checkOrigin(isForeign bool) {
	if w.unsure && !isForeign {
		w.complete = w.origin.RV != ""
	}
	w.unsure = isForeign || w.unsure && w.persisted == ""
	want := ""
	if w.complete && !isForeign {
		want = w.persisted
	}
	if w.origin.RV != want || w.origin.Totals.Count != int64(len(w.stored)) {
		w.Fatalf("origin %+v, want version %q of %d objects", w.origin, want, len(w.stored))
	}
	if isForeign {
		w.complete = false
	}
}

// beforeLoad reads what can be read at once, in disk residency.
func (w *world) beforeLoad() {
	for range 5 {
		key := w.someKey()
		got, exists, err := w.GetByKey(key)
		want, wantExists, _ := w.want.GetByKey(key)
		if !equal(got, want) || exists != wantExists || err != nil {
			w.Fatalf("GetByKey(%s) before Load: %v, %t, %v; want %v", key, got, exists, err, want)
		}
	}
	w.same("ListKeys before Load", w.ListKeys(), w.want.ListKeys())
}

// rebuild makes client-go's indexer with what is served and can be asked.
func (w *world) rebuild() {
	indexers := cache.Indexers{}
	for name := range w.GetIndexers() {
		indexers[name] = w.tamed(name)
	}
	w.want = cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, indexers)
	for key, p := range w.stored {
		if !w.foreign[key] {
			_ = w.want.Add(p)
		}
	}
}

// tamed returns a function that client-go's indexer can be given.
func (w *world) tamed(name string) cache.IndexFunc { return tame(w.variants[name].fn) }

func (w *world) addIndexers() {
	ours, theirs := cache.Indexers{}, cache.Indexers{}
	for _, name := range slices.Sorted(maps.Keys(randomIndices)) {
		if w.chance(4) {
			ours[name], theirs[name] = w.variants[name].fn, w.tamed(name)
		}
	}
	w.note("AddIndexers %v", slices.Sorted(maps.Keys(ours)))
	if got, want := w.AddIndexers(ours), w.want.AddIndexers(theirs); (got == nil) != (want == nil) {
		w.Fatalf("AddIndexers: %v, client-go has %v", got, want)
	}
}

// restart ends the process, in one of the ways, and starts the next, which may be
// another program.
func (w *world) restart() {
	w.close()
	if w.chance(4) {
		w.fingerprint = pick(w, "f1", "f2")
	}
	w.open()
}

// close ends a process, or at least its store.
func (w *world) close() {
	if w.chance(2) {
		w.note("Detach")
		w.durable(w.Detach())
		w.afterDetach()
	}
	w.note("close")
	if e, ok := w.engine.(*boltEngine); ok {
		if err := e.db.Close(); err != nil {
			w.Fatal(err)
		}
	}
}

// afterDetach reads on, as handlers do that come to their end.
func (w *world) afterDetach() {
	for range 5 {
		w.read()
	}
	if w.Residency() == Disk {
		if _, err := w.Apply(Update{Changes: []Change{put(w.pod())}}); !errors.Is(err, store.ErrClosed) {
			w.Fatalf("Apply after Detach: %v", err)
		}
	}
}

// lose damages the file under a process that runs.
func (w *world) lose() {
	if len(w.foreign) > 0 {
		return
	}
	w.note("lose")
	w.collection.Quarantine(errors.New("test"))
	clear(w.departed)
	w.written, w.unsure = w.fingerprint, false
	if w.Residency() == Memory {
		w.Restore()
		return
	}
	for range 5 {
		key := w.someKey()
		got, exists, err := w.GetByKey(key)
		want, _, _ := w.want.GetByKey(key)
		if cached := err == nil && exists && equal(got, want); !cached && !errors.Is(err, ErrUnreadable) {
			w.Fatalf("GetByKey(%s) of what is lost: %v, %t, %v", key, got, exists, err)
		}
	}
	if rv, err := w.BeginAnew(); err != nil || rv != w.version {
		w.Fatalf("BeginAnew: %q, %v; the version was %q", rv, err, w.version)
	}
	if _, err := w.IndexKeys(w.someIndex(), "x"); err == nil {
		w.Fatal("IndexKeys before anything is listed: no error")
	}
	w.forget()
	w.persisted, w.complete = "", false
	w.applies(Update{Incomplete: true, Changes: w.someChanges(10)})
	if _, _, err := w.GetByKey("absent"); !errors.Is(err, ErrUnreadable) {
		w.Fatalf("GetByKey before all is listed: %v", err)
	}
	w.applies(Update{Complete: true, RV: w.nextRV(), Changes: w.someChanges(10)})
}
