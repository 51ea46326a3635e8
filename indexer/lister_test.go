package indexer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/warmcache/warmcache/store/storetest"
)

// What client-go builds upon an indexer, over ours and over its own.

// labelled returns a pod with a label.
func labelled(namespace, name, tier string) *corev1.Pod {
	p := pod(name, "1", "x")
	p.Namespace, p.Labels = namespace, map[string]string{"tier": tier}
	return p
}

var listerPods = []any{
	labelled("n1", "a", "web"), labelled("n1", "b", "db"), labelled("n2", "a", "web"),
	labelled("n2", "c", ""), labelled("", "cluster", "web"),
}

var errNotThisOne = errors.New("not a pod")

// namespaceIndices are what may be found under the name of the namespace index.
var namespaceIndices = map[string]cache.Indexers{
	"none":  {"app": byApp},
	"right": {cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
	// It gives an error for the *metav1.ObjectMeta that listers ask with.
	"failing": {cache.NamespaceIndex: func(obj any) ([]string, error) {
		if _, ok := obj.(*corev1.Pod); !ok {
			return nil, errNotThisOne
		}
		return cache.MetaNamespaceIndexFunc(obj)
	}},
	// Listers believe what the index says.
	"wrong": {cache.NamespaceIndex: func(obj any) ([]string, error) {
		if p, ok := obj.(*corev1.Pod); ok {
			return []string{p.Labels["tier"]}, nil
		}
		return []string{"web"}, nil
	}},
	"empty": {cache.NamespaceIndex: func(any) ([]string, error) { return nil, nil }},
}

// twoIndexers returns ours, in memory or loaded from a file, and client-go's, with
// the listed objects.
func twoIndexers(t *testing.T, indexers cache.Indexers, persistent bool) (ours *Indexer, theirs cache.Indexer) {
	t.Helper()
	theirs = cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
	ours = New(Options{Indexers: indexers, Logger: quiet()})
	file := storetest.NewMemory()
	if persistent {
		ours = start(t, file, startOptions{indexers: indexers}).Indexer
	}
	if err := errors.Join(ours.Replace(slices.Clone(listerPods), "5"), theirs.Replace(slices.Clone(listerPods), "5")); err != nil {
		t.Fatal(err)
	}
	if persistent {
		ours = start(t, file, startOptions{indexers: indexers}).Indexer
	}
	return ours, theirs
}

func selectors(t *testing.T) []labels.Selector {
	t.Helper()
	all := []labels.Selector{labels.Everything(), labels.Nothing()}
	for _, text := range []string{"tier=web", "tier in (web,db)", "tier!=web", "!tier", "tier=", "absent"} {
		selector, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, selector)
	}
	return all
}

// collected runs list with an AppendFunc that takes pods only, as those of
// generated listers take one type, and describes the outcome.
func collected(list func(cache.AppendFunc) error) string {
	var keys []string
	err := list(func(obj any) {
		if p, ok := obj.(*corev1.Pod); ok {
			keys = append(keys, p.Namespace+"/"+p.Name+" "+p.Labels["tier"])
		}
	})
	slices.Sort(keys)
	return fmt.Sprintf("%q, error %v", keys, err)
}

// silenceKlog drops what listers log when an index is missing.
func silenceKlog(t *testing.T) {
	t.Helper()
	klog.SetLogger(*quiet())
	t.Cleanup(klog.ClearLogger)
}

func TestIndexer_Listers(t *testing.T) {
	silenceKlog(t)
	for name, indexers := range namespaceIndices {
		for _, persistent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, file %t", name, persistent), func(t *testing.T) {
				ours, theirs := twoIndexers(t, indexers, persistent)
				for _, selector := range selectors(t) {
					compareLists(t, selector, ours, theirs)
				}
				compareGets(t, ours, theirs)
			})
		}
	}
}

func compareLists(t *testing.T, selector labels.Selector, ours, theirs cache.Indexer) {
	t.Helper()
	compare := func(what string, list func(cache.Indexer, cache.AppendFunc) error) {
		t.Helper()
		got := collected(func(fn cache.AppendFunc) error { return list(ours, fn) })
		want := collected(func(fn cache.AppendFunc) error { return list(theirs, fn) })
		if got != want {
			t.Errorf("%s, selector %q:\ngot %s\nclient-go's has %s", what, selector, got, want)
		}
	}
	compare("ListAll", func(x cache.Indexer, fn cache.AppendFunc) error { return cache.ListAll(x, selector, fn) })
	compare("PodLister", func(x cache.Indexer, fn cache.AppendFunc) error {
		pods, err := corelisters.NewPodLister(x).List(selector)
		appendAll(fn, pods)
		return err
	})
	compare("GenericLister", func(x cache.Indexer, fn cache.AppendFunc) error {
		objs, err := genericPods(x).List(selector)
		appendAll(fn, objs)
		return err
	})
	for _, namespace := range []string{"", "n1", "n2", "web", "absent"} {
		compare("ListAllByNamespace "+namespace, func(x cache.Indexer, fn cache.AppendFunc) error {
			return cache.ListAllByNamespace(x, namespace, selector, fn)
		})
		compare("PodNamespaceLister "+namespace, func(x cache.Indexer, fn cache.AppendFunc) error {
			pods, err := corelisters.NewPodLister(x).Pods(namespace).List(selector)
			appendAll(fn, pods)
			return err
		})
		compare("GenericNamespaceLister "+namespace, func(x cache.Indexer, fn cache.AppendFunc) error {
			objs, err := genericPods(x).ByNamespace(namespace).List(selector)
			appendAll(fn, objs)
			return err
		})
	}
}

func genericPods(x cache.Indexer) cache.GenericLister {
	return cache.NewGenericLister(x, corev1.Resource("pods"))
}

func appendAll[T any](fn cache.AppendFunc, objs []T) {
	for _, obj := range objs {
		fn(obj)
	}
}

func compareGets(t *testing.T, ours, theirs cache.Indexer) {
	t.Helper()
	for _, name := range []string{"a", "cluster", "n1/a", "absent"} {
		got, gotErr := genericPods(ours).Get(name)
		want, wantErr := genericPods(theirs).Get(name)
		sameGet(t, "Get "+name, got, gotErr, want, wantErr)
		for _, namespace := range []string{"", "n1", "n2", "absent"} {
			got, gotErr := genericPods(ours).ByNamespace(namespace).Get(name)
			want, wantErr := genericPods(theirs).ByNamespace(namespace).Get(name)
			sameGet(t, "Get "+namespace+"/"+name, got, gotErr, want, wantErr)
			gotPod, gotErr := corelisters.NewPodLister(ours).Pods(namespace).Get(name)
			wantPod, wantErr := corelisters.NewPodLister(theirs).Pods(namespace).Get(name)
			sameGet(t, "pod "+namespace+"/"+name, gotPod, gotErr, wantPod, wantErr)
		}
	}
}

// sameGet compares the objects by their text: those from a file are copies.
func sameGet[T runtime.Object](t *testing.T, what string, got T, gotErr error, want T, wantErr error) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
		t.Errorf("%s: got %v, %v; client-go's has %v, %v", what, got, gotErr, want, wantErr)
	}
}

// A function that panics for what listers ask with takes a program on client-go's
// indexer down. Over ours the lister looks through all objects.
func TestIndexer_ListAllByNamespace_PanickingIndex(t *testing.T) {
	silenceKlog(t)
	x := New(Options{Indexers: cache.Indexers{cache.NamespaceIndex: byApp}, Logger: quiet()})
	if err := x.Replace(slices.Clone(listerPods), "1"); err != nil {
		t.Fatal(err)
	}
	got := collected(func(fn cache.AppendFunc) error {
		return cache.ListAllByNamespace(x, "n1", labels.Everything(), fn)
	})
	if want := `["n1/a web" "n1/b db"], error <nil>`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Objects of several types, and such without metadata, reach the AppendFunc as
// they are.
func TestIndexer_Listers_MixedObjects(t *testing.T) {
	other := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "n1", Name: "other", Labels: map[string]string{"tier": "web"}}}
	for name, obj := range map[string]any{"other type": other, "no metadata": cache.ExplicitKey("n1/bare")} {
		ours := New(Options{})
		theirs := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		for _, x := range []cache.Indexer{ours, theirs} {
			if err := errors.Join(x.Add(labelled("n1", "a", "web")), x.Add(obj)); err != nil {
				t.Fatal(err)
			}
		}
		for _, selector := range []labels.Selector{labels.Everything(), labels.SelectorFromSet(labels.Set{"tier": "web"})} {
			count := func(x cache.Indexer) string {
				types := map[string]int{}
				err := cache.ListAll(x, selector, func(obj any) { types[fmt.Sprintf("%T", obj)]++ })
				if err != nil {
					types = nil // how many came before the error is chance
				}
				return fmt.Sprint(types, err)
			}
			if got, want := count(ours), count(theirs); got != want {
				t.Errorf("%s, selector %q: got %s, client-go's has %s", name, selector, got, want)
			}
		}
	}
}

// A mutation cache puts a client's own writes in front of an indexer, whose
// functions it calls by GetIndexers.
func TestIndexer_MutationCache(t *testing.T) {
	ours := start(t, storetest.NewMemory(), startOptions{})
	theirs := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{"app": byApp})
	var got, want []string
	for _, side := range []struct {
		indexer cache.Indexer
		seen    *[]string
	}{{ours, &got}, {theirs, &want}} {
		mutations := cache.NewIntegerResourceVersionMutationCache(*quiet(), side.indexer, side.indexer, time.Hour, true)
		look := func() {
			// In this order: to get what is not in the indexer forgets it.
			items, byIndexErr := mutations.ByIndex("app", "x")
			_, unknown := mutations.ByIndex("unknown", "x")
			item, exists, err := mutations.GetByKey("ns/a")
			*side.seen = append(*side.seen, fmt.Sprint(versionOf(item), exists, err, keys(items), byIndexErr, unknown))
		}
		for _, step := range []func(){
			func() { mutations.Mutation(pod("a", "2", "x")) },
			func() { _ = side.indexer.Add(pod("a", "1", "y")); mutations.OnAddOrUpdate(pod("a", "1", "y")) },
			func() { _ = side.indexer.Update(pod("a", "3", "x")); mutations.OnAddOrUpdate(pod("a", "3", "x")) },
			func() { mutations.Mutation(pod("a", "2", "y")) },
			func() { mutations.Mutation(pod("a", "4", "x")) },
			func() { _ = side.indexer.Delete(pod("a", "5", "x")); mutations.OnDelete(pod("a", "5", "x")) },
			func() { mutations.Mutation(pod("a", "4", "x")) },
		} {
			step()
			look()
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got          %q\nclient-go has %q", got, want)
	}
}

// client-go's own reflector can fill the indexer.
func TestIndexer_IsAReflectorStore(t *testing.T) {
	p := start(t, storetest.NewMemory(), startOptions{})
	var store cache.ReflectorStore = p.Indexer
	if err := store.Replace([]any{pod("a", "1", "x"), pod("b", "1", "x")}, "2"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(store.Update(pod("a", "3", "y")), store.Delete(pod("b", "4", "x")), store.Resync()); err != nil {
		t.Fatal(err)
	}
	p.wantObjects(pod("a", "3", "y"))
	p.verify()
	if err := p.Flush(context.Background()); err != nil {
		t.Error(err)
	}
}
