package indexer

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/store/storetest"
)

var residencies = []Residency{Memory, Disk}

// collect returns the keys of a sequence in its order.
func collect(t *testing.T, x *Indexer, q Query) (found []string) {
	t.Helper()
	for obj, err := range x.Objects(q) {
		if err != nil {
			t.Error(err)
			return nil
		}
		found = append(found, keyOf(obj.(*corev1.Pod)))
	}
	return found
}

func inNamespace(namespace, name string) *corev1.Pod {
	p := pod(name, "1", "x")
	p.Namespace = namespace
	return p
}

func TestIndexer_Objects_Namespaces(t *testing.T) {
	var list []any
	for _, namespace := range []string{"", "a", "a-b", "a0", "ab"} {
		list = append(list, inNamespace(namespace, "a"), inNamespace(namespace, "x"))
	}
	for _, residency := range residencies {
		p := start(t, storetest.NewMemory(), startOptions{residency: residency, indexers: allIndexers})
		if err := p.Replace(list, "1"); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			q    Query
			want []string
		}{
			{Query{}, []string{"a", "a-b/a", "a-b/x", "a/a", "a/x", "a0/a", "a0/x", "ab/a", "ab/x", "x"}},
			{Query{Namespace: "a"}, []string{"a/a", "a/x"}},
			{Query{Namespace: "a-b"}, []string{"a-b/a", "a-b/x"}},
			{Query{Namespace: "absent"}, nil},
			{Query{Index: cache.NamespaceIndex, Value: "a"}, []string{"a/a", "a/x"}},
			{Query{Index: cache.NamespaceIndex, Value: ""}, []string{"a", "x"}},
			{Query{Index: cache.NamespaceIndex, Value: "a", Namespace: "ab"}, nil},
			{Query{Index: "app", Value: "x", Namespace: "a0"}, []string{"a0/a", "a0/x"}},
			{Query{Index: "app", Value: "absent"}, nil},
		} {
			if got := collect(t, p.Indexer, tc.q); !slices.Equal(got, tc.want) {
				t.Errorf("%v, %+v: got %v, want %v", residency, tc.q, got, tc.want)
			}
		}
	}
}

// Labels are read from the envelope: only what matches is decoded.
func TestIndexer_Objects_SelectorDecodesNothingElse(t *testing.T) {
	var decoded atomic.Int64
	codec := picky{Codec: podCodec(t), decode: func(*corev1.Pod) error { decoded.Add(1); return nil }}
	file := storetest.NewMemory()
	var pods []*corev1.Pod
	for i := range 100 {
		p := pod(podName(i), "1", "x")
		p.Labels = map[string]string{"tens": fmt.Sprint(i / 10)}
		pods = append(pods, p)
	}
	start(t, file, startOptions{}).list("1", pods...)
	p := start(t, file, startOptions{residency: Disk, codec: codec})
	for _, q := range []Query{{}, {Index: "app", Value: "x"}, {Namespace: "ns"}} {
		decoded.Store(0)
		q.Selector = labels.SelectorFromSet(labels.Set{"tens": "3"})
		if got := collect(t, p.Indexer, q); len(got) != 10 || got[0] != "ns/"+podName(30) || decoded.Load() != 10 {
			t.Errorf("%+v: got %v, %d decoded", q, got, decoded.Load())
		}
	}
}

// The body may leave, and may change what it iterates over: nothing is held meanwhile.
func TestIndexer_Objects_BodyMayDoAnything(t *testing.T) {
	for _, residency := range residencies {
		views := 0
		s := &spy{onView: func() error { views++; return nil }}
		p := start(t, storetest.NewMemory(), startOptions{residency: residency, indexers: allIndexers, wrap: s.around})
		p.list("1", manyPods("1")...)
		for _, q := range []Query{{}, {Index: "app", Value: "x"}, {Index: cache.NamespaceIndex, Value: "ns"}} {
			var seen []string
			for obj, err := range p.Objects(q) {
				if err != nil {
					t.Fatal(err)
				}
				if seen = append(seen, keyOf(obj.(*corev1.Pod))); len(seen)%500 == 0 {
					p.apply(Update{RV: "2", Changes: []Change{put(pod(podName(len(seen)), "2", "x,"+fmt.Sprint(len(seen)))), remove("absent")}})
					if err := p.Flush(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			if !slices.IsSorted(seen) || len(slices.Compact(seen)) != severalParts {
				t.Errorf("%v, %+v: %d objects, sorted: %t", residency, q, len(seen), slices.IsSorted(seen))
			}
			views = 0
			for _, err := range p.Objects(q) {
				if err != nil {
					t.Error(err)
				}
				break
			}
			if views > 1 {
				t.Errorf("%v, %+v: %d views for one object", residency, q, views)
			}
		}
	}
}

// An object that has changed meanwhile is not yielded in a state that was not asked for.
func TestIndexer_Objects_HaveTheValueAskedFor(t *testing.T) {
	for _, residency := range residencies {
		p := start(t, storetest.NewMemory(), startOptions{residency: residency, indexers: allIndexers})
		p.list("1", manyPods("1")...)
		n := 0
		for obj, err := range p.Objects(Query{Index: "node", Value: "node-1"}) {
			if err != nil {
				t.Fatal(err)
			}
			if node := obj.(*corev1.Pod).Spec.NodeName; node != "node-1" {
				t.Fatalf("%v: %s is on %s", residency, keyOf(obj.(*corev1.Pod)), node)
			}
			if n++; n == 1 {
				p.list("2", manyPods("2")...)
			}
		}
	}
}

// Entries of objects that are gone, left by a function that failed, do not end a
// sequence early, however many there are.
func TestIndexer_Objects_BehindManyLeftovers(t *testing.T) {
	sick := map[string]bool{}
	indexers := cache.Indexers{"moody": moody(sick, waysToFail["error"])}
	p := start(t, storetest.NewMemory(), startOptions{residency: Disk, indexers: indexers})
	u := Update{Complete: true, RV: "1", Changes: []Change{put(pod("z", "1", "x"))}}
	var gone []Change
	for i := range lookRecords + 1 {
		u.Changes = append(u.Changes, put(pod(podName(i), "1", "x")))
		gone = append(gone, remove(podName(i)))
	}
	p.apply(u)
	for i := range lookRecords + 1 {
		sick[podName(i)] = true
	}
	p.apply(Update{RV: "2", Changes: gone})
	if got := collect(t, p.Indexer, Query{Index: "moody", Value: "x"}); !slices.Equal(got, []string{"ns/z"}) {
		t.Errorf("got %v", got)
	}
}

func TestIterate_Errors(t *testing.T) {
	for _, residency := range residencies {
		p := start(t, storetest.NewMemory(), startOptions{residency: residency})
		p.list("1", pod("a", "1", "x"), pod("b", "1", "x"))
		n := 0
		for service, err := range Iterate[*corev1.Service](p.Indexer, Query{}) {
			if n++; err == nil || service != nil {
				t.Errorf("%v: a pod was taken for the service %v", residency, service)
			}
		}
		if n != 1 {
			t.Errorf("%v: %d errors, want one, at the end", residency, n)
		}
		if err := errorOf(Iterate[*corev1.Pod](p.Indexer, Query{Index: "absent"})); err == nil {
			t.Errorf("%v: no error for an index that does not exist", residency)
		}
	}
	theirs := cache.NewStore(cache.MetaNamespaceKeyFunc)
	if err := errorOf(Iterate[*corev1.Pod](theirs, Query{})); !errors.Is(err, ErrForeignStore) {
		t.Errorf("a store of client-go: %v", err)
	}
}

// What readers get is shared. Who changes it all the same changes what others get, as
// with client-go's indexer, and never the file.
func TestIndexer_Disk_MutatedObjectsNeverReachTheFile(t *testing.T) {
	file := storetest.NewMemory()
	p := start(t, file, startOptions{residency: Disk, indexers: allIndexers})
	p.list("1", pod("a", "1", "x"), pod("b", "1", "x"))
	before := p.dump()
	first, _, _ := p.GetByKey("ns/a")
	second, _, _ := p.GetByKey("ns/a")
	if first != second {
		t.Error("two readers get two objects")
	}
	for obj, err := range p.Objects(Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		obj.(*corev1.Pod).Spec.Hostname = "changed"
	}
	for _, obj := range p.List() {
		obj.(*corev1.Pod).Labels = map[string]string{"changed": "yes"}
	}
	p.apply(Update{Changes: []Change{put(pod("c", "1", "y"))}})
	p.apply(Update{Changes: []Change{remove("c")}})
	if diff := storetest.Diff(before, p.dump()); diff != "" {
		t.Errorf("the file has changed:\n%s", diff)
	}
	start(t, file, startOptions{residency: Disk, indexers: allIndexers}).wantObjects(pod("a", "1", "x"), pod("b", "1", "x"))
}
