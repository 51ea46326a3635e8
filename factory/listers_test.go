package factory

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/apitest"
)

func (f typedFactory) lister(gvr schema.GroupVersionResource) cache.GenericLister {
	generic, err := f.ForResource(gvr)
	return must(generic, err).Lister()
}

func (f untypedFactory) lister(gvr schema.GroupVersionResource) cache.GenericLister {
	return f.ForResource(gvr).Lister()
}

// lists is a factory that makes listers, too.
type lists interface {
	anyFactory
	lister(gvr schema.GroupVersionResource) cache.GenericLister
}

// asked are results of reads, by what was read: objects, keys, or an error.
type asked map[string]any

// objects notes a result in the order of keys, which client-go does not have.
func (a asked) objects(read string, objs []runtime.Object, err error) {
	byKey := func(x, y runtime.Object) int { return strings.Compare(keyOf(x), keyOf(y)) }
	slices.SortFunc(objs, byKey)
	a[read] = objs
	if len(objs) == 0 {
		a[read] = "nothing" // nil and an empty list are the same to callers
	}
	a.failure(read, err)
}

func (a asked) failure(read string, err error) {
	if err != nil {
		a[read] = fmt.Sprintf("%v, not found: %v", err, apierrors.IsNotFound(err))
	}
}

func (a asked) object(read string, obj runtime.Object, err error) {
	a[read] = obj
	a.failure(read, err)
}

func (a asked) keys(read string, keys []string, err error) {
	slices.Sort(keys)
	a[read] = strings.Join(keys, " ")
	a.failure(read, err)
}

func (a asked) items(read string, items []any, err error) {
	var objs []runtime.Object
	for _, item := range items {
		objs = append(objs, item.(runtime.Object))
	}
	a.objects(read, objs, err)
}

func keyOf(obj any) string { return must(cache.MetaNamespaceKeyFunc(obj)) }

var selectors = []string{"", "app=web", "app!=web", "!app", "app in (web,db),tier=front"}

// askListers reads with the listers of a factory.
func (a asked) askListers(f lists) {
	for _, text := range selectors {
		selector := must(labels.Parse(text))
		for _, gvr := range []schema.GroupVersionResource{configMaps, nodes} {
			objs, err := f.lister(gvr).List(selector)
			a.objects(fmt.Sprintf("list %s %q", gvr.Resource, text), objs, err)
		}
		for _, namespace := range []string{"a", "a-b", "none", ""} {
			objs, err := f.lister(configMaps).ByNamespace(namespace).List(selector)
			a.objects(fmt.Sprintf("list in %q %q", namespace, text), objs, err)
		}
	}
	for _, namespace := range []string{"a", "none"} {
		for _, name := range []string{"plain", "missing"} {
			obj, err := f.lister(configMaps).ByNamespace(namespace).Get(name)
			a.object("get "+namespace+"/"+name, obj, err)
		}
	}
	for _, name := range []string{"n1", "missing"} {
		obj, err := f.lister(nodes).Get(name)
		a.object("get "+name, obj, err)
	}
}

// askTyped reads with the lister of a Go type.
func (a asked) askTyped(f typedFactory) {
	lister := f.Core().V1().ConfigMaps().Lister()
	for _, text := range selectors {
		found, err := lister.List(must(labels.Parse(text)))
		a.objects(fmt.Sprintf("typed list %q", text), asObjects(found), err)
		found, err = lister.ConfigMaps("a-b").List(must(labels.Parse(text)))
		a.objects(fmt.Sprintf("typed list in a-b %q", text), asObjects(found), err)
	}
	for _, name := range []string{"plain", "missing"} {
		found, err := lister.ConfigMaps("a").Get(name)
		a.object("typed get "+name, found, err)
	}
}

func asObjects[T runtime.Object](list []T) (objs []runtime.Object) {
	for _, obj := range list {
		objs = append(objs, obj)
	}
	return objs
}

// indexByLabel returns an index of the kind that controller-runtime makes for fields.
func indexByLabel(label string) cache.Indexers {
	return cache.Indexers{"field:" + label: func(obj any) ([]string, error) {
		m, err := meta.Accessor(obj)
		if err != nil || m.GetLabels()[label] == "" {
			return nil, err
		}
		value := m.GetLabels()[label]
		return []string{m.GetNamespace() + "/" + value, "__all_namespaces/" + value}, nil
	}}
}

// askIndexer reads as controller-runtime does, from the indexer itself.
func (a asked) askIndexer(f lists) {
	x := f.informer(configMaps).GetIndexer()
	a.items("indexer list", x.List(), nil)
	a.keys("indexer keys", x.ListKeys(), nil)
	for name := range x.GetIndexers() {
		values := x.ListIndexFuncValues(name)
		a.keys("values of "+name, values, nil)
		for _, value := range append(values, "none") {
			objs, err := x.ByIndex(name, value)
			a.items(name+" "+value, objs, err)
			keys, err := x.IndexKeys(name, value)
			a.keys("keys of "+name+" "+value, keys, err)
		}
	}
	for _, namespace := range []string{"a", "a-b", "none"} {
		objs, err := x.Index(cache.NamespaceIndex, &metav1.ObjectMeta{Namespace: namespace})
		a.items("index "+namespace, objs, err)
	}
	objs, err := x.ByIndex("no such index", "")
	a.items("unknown index", objs, err)
	for _, key := range []string{"a/plain", "a/missing", "missing", ""} {
		item, exists, err := x.GetByKey(key)
		a["by key "+key] = fmt.Sprint(exists)
		if exists {
			a.object("object by key "+key, item.(runtime.Object), err)
		}
	}
}

// wantSameReads compares what two factories answer.
func wantSameReads(t *testing.T, when string, theirs, ours lists) {
	t.Helper()
	want, got := asked{}, asked{}
	for f, a := range map[lists]asked{theirs: want, ours: got} {
		a.askListers(f)
		a.askIndexer(f)
		if typed, ok := f.(typedFactory); ok {
			a.askTyped(typed)
		}
	}
	if !reflect.DeepEqual(want, got) { // cmp is slow where nothing differs
		t.Errorf("%s (-client-go +ours):\n%s", when, cmp.Diff(want, got))
	}
}

// content are objects in namespaces whose order as tuples is not that of their keys.
func content() (objs []runtime.Object) {
	for _, namespace := range []string{"a", "a-b", "b"} {
		for name, l := range map[string]map[string]string{"plain": nil, "web": {"app": "web"}, "db": {"app": "db", "tier": "front"}} {
			objs = append(objs, annotated(namespace, name, "in "+namespace, l))
		}
		objs = append(objs, annotated(namespace, "long", strings.Repeat("long ", 5000), map[string]string{"tier": "back"}))
	}
	for _, name := range []string{"n1", "n2"} {
		objs = append(objs, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}})
	}
	return objs
}

func addIndexers(t *testing.T, f anyFactory, label string) {
	t.Helper()
	if err := f.informer(configMaps).AddIndexers(indexByLabel(label)); err != nil {
		t.Fatal(err)
	}
}

func annotated(namespace, name, text string, l map[string]string) *corev1.ConfigMap {
	m := configMap(name)
	m.Namespace, m.Labels, m.Annotations = namespace, l, map[string]string{"text": text}
	return m
}

// begin runs the informers of both resources.
func begin(t *testing.T, f anyFactory) (end func()) {
	t.Helper()
	addIndexers(t, f, "app")
	f.informer(nodes)
	stop := make(chan struct{})
	f.Start(stop)
	wantSynced(t, f.wait(stop), map[string]bool{"configmaps": true, "nodes": true})
	return func() {
		close(stop)
		f.Shutdown()
	}
}

// TestParity_Reads compares listers and indexers of our factories with those of
// client-go's, on one server.
func TestParity_Reads(t *testing.T) {
	for _, form := range []string{"typed", "dynamic", "metadata"} {
		for storage := range storages {
			t.Run(storage+form, func(t *testing.T) {
				inBubble(t, func(t *testing.T, server *apitest.Server) {
					all, s := contestants(t, server), settings{db: newStore()}
					compareReads(t, server, func() lists { return all["client-go "+form](s).(lists) },
						func() lists { return all[storage+form](s).(lists) }, storage == "disk ")
				})
			})
		}
	}
}

// compareReads compares with what was listed, after changes, and after a restart.
func compareReads(t *testing.T, server *apitest.Server, newTheirs, newOurs func() lists, onDisk bool) {
	t.Helper()
	create(t, server, content()...)
	theirs, ours := newTheirs(), newOurs()
	defer begin(t, theirs)()
	end := begin(t, ours)
	wantSameReads(t, "as listed", theirs, ours)
	if s := statusOf(ours.informer(configMaps)); (s.Residency == informer.Disk) != onDisk || (s.Cache.Objects > 0) != onDisk {
		t.Errorf("residency %v, %+v; on disk: want %v", s.Residency, s.Cache, onDisk)
	}

	changed, gone := configMap("plain"), configMap("web")
	changed.Namespace, changed.Labels = "a", map[string]string{"app": "web"}
	gone.Namespace = "a-b"
	if err := server.Update(changed); err != nil {
		t.Fatal(err)
	}
	if err := server.Delete(gone, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}); err != nil {
		t.Fatal(err)
	}
	addIndexers(t, theirs, "tier") // while they run
	addIndexers(t, ours, "tier")
	synctest.Wait()
	wantSameReads(t, "after changes", theirs, ours)
	end()

	ours = newOurs()
	addIndexers(t, ours, "tier")
	end = begin(t, ours)
	wantSameReads(t, "after a restart", theirs, ours)
	end()
}
