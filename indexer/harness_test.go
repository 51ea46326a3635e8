package indexer

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/warmcache/warmcache/codec"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pod returns a pod "ns/name" with a UID of its name. The app label may name
// several apps, separated by commas, that the index "app" knows it by.
func pod(name, rv, apps string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, ResourceVersion: rv, UID: types.UID("uid-" + name),
			Annotations: map[string]string{"apps": apps},
		},
		Spec: corev1.PodSpec{NodeName: "node-" + rv},
	}
}

func withUID(p *corev1.Pod, uid string) *corev1.Pod {
	p.UID = types.UID(uid)
	return p
}

func byApp(obj any) ([]string, error) {
	apps := obj.(*corev1.Pod).Annotations["apps"]
	if apps == "" {
		return nil, nil
	}
	return strings.Split(apps, ","), nil
}

func byNode(obj any) ([]string, error) { return []string{obj.(*corev1.Pod).Spec.NodeName}, nil }

// allIndexers are every index that tests use.
var allIndexers = cache.Indexers{
	cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, "app": byApp, "node": byNode,
}

func podCodec(t testing.TB) *codec.Codec {
	t.Helper()
	c, err := codec.New(&corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// process is one run of a program with an indexer over a file.
type process struct {
	testing.TB
	*Indexer
	codec      Codec
	collection store.Collection
	origin     Origin
	attachErr  error
}

// startOptions are what differs between runs; the zero value has the index
// "app" and the fingerprint "f1".
type startOptions struct {
	indexers    cache.Indexers
	versions    map[string]string
	fingerprint string
	codec       Codec
	residency   Residency
	budget      int64
	// wrap puts something between the indexer and its collection.
	wrap func(store.Collection) store.Collection
}

// quiet returns a logger for tests in which errors are to be expected.
func quiet() *klog.Logger {
	logger := klog.Logger{} // discards
	return &logger
}

// attach starts a process that has not loaded its objects yet. The one before it,
// if any, is dead.
func attach(t testing.TB, file *storetest.Memory, o startOptions) *process {
	t.Helper()
	return attachTo(t, file.Open(), o)
}

// attachTo is attach for any store.
func attachTo(t testing.TB, s store.Store, o startOptions) *process {
	t.Helper()
	collection, err := s.Collection(storetest.Pods(), "test")
	if err != nil {
		t.Fatal(err)
	}
	if o.indexers == nil {
		o.indexers = cache.Indexers{"app": byApp}
	}
	if o.fingerprint == "" {
		o.fingerprint = "f1"
	}
	if o.codec == nil {
		o.codec = podCodec(t)
	}
	p := &process{
		TB: t, codec: o.codec, collection: collection,
		Indexer: New(Options{Indexers: o.indexers, IndexVersions: o.versions, Residency: o.residency, MemoryBudget: o.budget, Logger: quiet()}),
	}
	attached := collection
	if o.wrap != nil {
		attached = o.wrap(collection)
	}
	p.origin, p.attachErr = p.Attach(attached, o.codec, o.fingerprint)
	return p
}

// start starts a process and loads its objects, which must not fail.
func start(t testing.TB, file *storetest.Memory, o startOptions) *process {
	t.Helper()
	return attach(t, file, o).load()
}

// startOn is start for any store.
func startOn(t testing.TB, s store.Store, o startOptions) *process {
	t.Helper()
	return attachTo(t, s, o).load()
}

func (p *process) load() *process {
	p.Helper()
	if p.attachErr != nil {
		p.Fatalf("Attach: %v", p.attachErr)
	}
	if err := p.Load(context.Background()); err != nil {
		p.Fatalf("Load: %v", err)
	}
	return p
}

func put(p *corev1.Pod) Change { return Change{Key: "ns/" + p.Name, Object: p} }

func remove(name string) Change { return Change{Key: "ns/" + name} }

// departing marks changes as ones whose old state is to be kept.
func departing(changes ...Change) []Change {
	for i := range changes {
		changes[i].Depart = true
	}
	return changes
}

func (p *process) apply(u Update) []any {
	p.Helper()
	olds, err := p.Apply(u)
	if err != nil {
		p.Fatalf("Apply: %v", err)
	}
	return olds
}

// list applies a complete list.
func (p *process) list(rv string, pods ...*corev1.Pod) {
	p.Helper()
	u := Update{RV: rv, Complete: true}
	for _, pod := range pods {
		u.Changes = append(u.Changes, put(pod))
	}
	p.apply(u)
}

// dump returns what the file holds.
func (p *process) dump() storetest.Contents {
	p.Helper()
	names := p.GetIndexers()
	maps.Copy(names, allIndexers)
	return p.dumpWith(names)
}

// dumpWith is dump with some indices only.
func (p *process) dumpWith(indexers cache.Indexers) storetest.Contents {
	p.Helper()
	return storetest.Dump(p, p.collection, slices.Sorted(maps.Keys(indexers))...)
}

// verify compares the file with the objects in memory: records, entries of all
// indices, totals and, if it is to be complete, version and fingerprint.
func (p *process) verify() {
	p.Helper()
	p.verifyDump(p.dump())
}

func (p *process) verifyDump(got storetest.Contents) {
	p.Helper()
	want := storetest.Contents{Header: got.Header, Departed: got.Departed}
	entries := map[string]map[string][]string{}
	for _, key := range slices.Sorted(slices.Values(p.ListKeys())) {
		obj, _, _ := p.GetByKey(key)
		record, err := p.codec.Encode(obj.(*corev1.Pod))
		if err != nil {
			p.Fatal(err)
		}
		want.Objects = append(want.Objects, storetest.Entry{Key: key, Value: string(record)})
		want.Scanned.Add(key, record)
		for name, fn := range p.storedIndexers() {
			values, _ := tame(fn)(obj)
			for _, value := range slices.Compact(slices.Sorted(slices.Values(values))) {
				if entries[name] == nil {
					entries[name] = map[string][]string{}
				}
				entries[name][value] = append(entries[name][value], key)
			}
		}
	}
	for name, byValue := range entries {
		if want.Indices == nil {
			want.Indices = map[string][]storetest.IndexValue{}
		}
		for _, value := range slices.Sorted(maps.Keys(byValue)) {
			want.Indices[name] = append(want.Indices[name], storetest.IndexValue{Value: value, Keys: byValue[value]})
		}
	}
	if !reflect.DeepEqual(want, got) { // much faster than Diff
		p.Fatalf("the file differs from memory (-memory +file):\n%s", storetest.Diff(want, got))
	}
	if got.Header != nil {
		indexed := slices.Sorted(maps.Keys(got.Header.Indices))
		if want := slices.Sorted(maps.Keys(p.storedIndexers())); !slices.Equal(indexed, want) {
			p.Fatalf("the header vouches for the indices %v, want %v", indexed, want)
		}
	}
	if p.Len() != len(want.Objects) {
		p.Fatalf("Len is %d, want %d", p.Len(), len(want.Objects))
	}
	p.verifyTotals(want.Scanned)
}

// tame returns a function that has no value where fn fails.
func tame(fn cache.IndexFunc) cache.IndexFunc {
	return func(obj any) (values []string, err error) {
		defer func() {
			if recover() != nil {
				values = nil
			}
		}()
		if values, err = fn(obj); err != nil {
			return nil, nil
		}
		return values, nil
	}
}

// storedIndexers are those that have entries in the file.
func (p *process) storedIndexers() cache.Indexers {
	indexers := p.GetIndexers()
	maps.DeleteFunc(indexers, func(_ string, fn cache.IndexFunc) bool { return isNamespaceIndex(fn) })
	return indexers
}

func (p *process) verifyTotals(want store.Totals) {
	p.Helper()
	err := p.collection.View(func(tx store.Tx) error {
		got, err := tx.Totals()
		if got != want {
			p.Fatalf("totals %+v, want %+v", got, want)
		}
		return err
	})
	if err != nil {
		p.Fatal(err)
	}
}

// wantObjects compares all objects with pods.
func (p *process) wantObjects(pods ...*corev1.Pod) {
	p.Helper()
	want := map[string]any{}
	for _, pod := range pods {
		want["ns/"+pod.Name] = pod
	}
	got := map[string]any{}
	for _, obj := range p.List() {
		got["ns/"+obj.(*corev1.Pod).Name] = obj
	}
	if diff := cmp.Diff(want, got); diff != "" {
		p.Errorf("objects differ (-want +got):\n%s", diff)
	}
	if p.Len() != len(pods) {
		p.Errorf("Len is %d, want %d", p.Len(), len(pods))
	}
}

// wantHeader compares version and completeness in the file.
func (p *process) wantHeader(rv string, complete bool, fingerprint string) {
	p.Helper()
	h := p.dump().Header
	if h == nil {
		p.Fatal("the file has no header")
	}
	if h.RV != rv || h.Complete != complete || h.Fingerprint != fingerprint {
		p.Errorf("header has version %q, complete %t, fingerprint %q; want %q, %t, %q",
			h.RV, h.Complete, h.Fingerprint, rv, complete, fingerprint)
	}
}

func (p *process) keysIn(index, value string) []string {
	p.Helper()
	keys, err := p.IndexKeys(index, value)
	if err != nil {
		p.Fatal(err)
	}
	return keys
}

// spy stands between an indexer and its collection. Functions that are not set
// pass everything on.
type spy struct {
	store.Collection
	// onApply sees each batch; an error refuses it.
	onApply func(store.Batch) error
	// applied sees each batch that was taken, before Apply returns.
	applied func(store.Batch)
	// onView runs before each View; an error refuses it.
	onView func() error
	// tx damages what is read.
	tx func(store.Tx) store.Tx
}

func (s *spy) Apply(b store.Batch) error {
	if s.onApply != nil {
		if err := s.onApply(b); err != nil {
			return err
		}
	}
	err := s.Collection.Apply(b)
	if err == nil && s.applied != nil {
		s.applied(b)
	}
	return err
}

func (s *spy) View(fn func(store.Tx) error) error {
	if s.onView != nil {
		if err := s.onView(); err != nil {
			return err
		}
	}
	return s.Collection.View(func(tx store.Tx) error {
		if s.tx != nil {
			tx = s.tx(tx)
		}
		return fn(tx)
	})
}

// around returns the wrap option for s.
func (s *spy) around(c store.Collection) store.Collection {
	s.Collection = c
	return s
}

// recorder collects the batches that a collection has taken, so that a test can
// make the file as it was after each.
type recorder struct{ batches []store.Batch }

func (r *recorder) wrap(c store.Collection) store.Collection {
	return &spy{Collection: c, onApply: func(b store.Batch) error {
		r.batches = append(r.batches, b)
		return nil
	}}
}

// replay returns the file as a crash leaves it that lost all but n batches.
func (r *recorder) replay(t testing.TB, n int) *storetest.Memory {
	t.Helper()
	file := storetest.NewMemory()
	c, err := file.Open().Collection(storetest.Pods(), "test")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range r.batches[:n] {
		if err := c.Apply(b); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

func podName(i int) string { return fmt.Sprintf("pod-%04d", i) }
