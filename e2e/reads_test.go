package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/warmcache/warmcache/factory"
	"github.com/warmcache/warmcache/indexer"
	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
)

// readKinds are those whose listers are compared; nodes are in no namespace.
var readKinds = []string{"configmaps", "pods", "services", "deployments", "nodes"}

var readSelectors = []string{"", "team=a", "team!=a", "!team", "team in (a,b),team!=b"}

// TestReads_OnDisk_AnswerAsClientGos asks listers and indexers of factories, one in
// disk residency and client-go's, on a server on which much has happened: while they
// ran, and while ours did not.
func TestReads_OnDisk_AnswerAsClientGos(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := newReadWorld(t)
	theirs := informers.NewSharedInformerFactory(w.client, 0)
	ours, end := w.startOurs()
	defer w.start(theirs)()
	w.churn(seed, 4*time.Second, ours)
	w.wantSame("after changes", theirs, ours)
	for _, f := range []informers.SharedInformerFactory{theirs, ours} {
		w.addIndex(f, "uid", func(m metav1.Object) string { return string(m.GetUID())[:1] })
	}
	w.wantSame("with an index that was added", theirs, ours)
	end()

	w.churn(seed+1, 2*time.Second, theirs)
	ours, end = w.startOurs()
	defer end()
	w.addIndex(ours, "uid", func(m metav1.Object) string { return string(m.GetUID())[:1] })
	w.wantSame("after a restart", theirs, ours)
}

// readWorld is the namespaces in which something happens, and a file.
type readWorld struct {
	*subject
	namespaces []string
	client     kubernetes.Interface
}

func newReadWorld(t *testing.T) *readWorld {
	t.Helper()
	s := newSubject(t)
	return &readWorld{
		subject: s, client: clientFor(t, t.Name()),
		namespaces: []string{s.namespace, newNamespace(t, s.writer), newNamespace(t, s.writer)},
	}
}

// startOurs opens the file and starts a factory in disk residency.
func (w *readWorld) startOurs() (f informers.SharedInformerFactory, end func()) {
	t := w.t
	t.Helper()
	db := bolttest.Open(t, w.config.Path, bolt.Options{})
	f, err := factory.New(w.client, db, factory.WithListBelow(-1), factory.WithLogger(klog.New(nil)),
		factory.WithResidency(informer.Disk, indexer.MinMemoryBudget))
	if err != nil {
		t.Fatal(err)
	}
	stop := w.start(f)
	return f, func() {
		for _, kind := range readKinds {
			if s, _ := informer.StatusOf(w.informer(f, kind)); s.Residency != informer.Disk || s.ReadErrors > 0 {
				t.Errorf("%s: status %+v, want objects on disk, and no failed read", kind, s)
			}
		}
		stop()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// start starts the informers of a factory, with an index by team.
func (w *readWorld) start(f informers.SharedInformerFactory) (stop func()) {
	w.t.Helper()
	w.addIndex(f, "team", func(m metav1.Object) string { return m.GetLabels()["team"] })
	ctx, cancel := context.WithCancel(context.Background())
	f.StartWithContext(ctx)
	for kind, synced := range f.WaitForCacheSync(patiently(w.t).Done()) {
		if !synced {
			w.t.Errorf("%v has not synced", kind)
		}
	}
	return func() {
		cancel()
		f.Shutdown()
	}
}

func (w *readWorld) informer(f informers.SharedInformerFactory, kind string) cache.SharedIndexInformer {
	w.t.Helper()
	generic, err := f.ForResource(materials[kind].resource)
	if err != nil {
		w.t.Fatal(err)
	}
	return generic.Informer()
}

// addIndex adds an index of one value, or none if that is empty, to all informers.
func (w *readWorld) addIndex(f informers.SharedInformerFactory, name string, value func(metav1.Object) string) {
	w.t.Helper()
	index := func(obj any) ([]string, error) {
		m, err := meta.Accessor(obj)
		if err != nil || value(m) == "" {
			return nil, err
		}
		return []string{value(m)}, nil
	}
	for _, kind := range readKinds {
		if err := w.informer(f, kind).AddIndexers(cache.Indexers{name: index}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// churn changes objects for a while, during which others read with a factory.
func (w *readWorld) churn(seed uint64, lasts time.Duration, f informers.SharedInformerFactory) {
	w.t.Helper()
	config := plane.API.Config()
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		w.t.Fatal(err)
	}
	writers := &churn{client: client, prefix: w.namespace, namespaces: w.namespaces, kinds: readKinds, names: 40}
	writers.mu.done = map[string]int{}
	ctx, stop := context.WithTimeout(w.t.Context(), lasts)
	defer stop()
	var reading sync.WaitGroup
	for _, kind := range readKinds {
		reading.Go(func() { w.read(ctx, f, kind) })
	}
	writers.run(ctx, w.t, seed, 6, 5*time.Millisecond)()
	reading.Wait()
	w.t.Logf("changes: %v", writers.mu.done)
}

// read reads all the time. What a list has, has to match.
func (w *readWorld) read(ctx context.Context, f informers.SharedInformerFactory, kind string) {
	generic, err := f.ForResource(materials[kind].resource)
	if err != nil {
		w.t.Error(err)
		return
	}
	selector := labels.SelectorFromSet(labels.Set{"team": "a"})
	// The writers need the processors, too.
	for ticker := time.NewTicker(5 * time.Millisecond); ctx.Err() == nil; <-ticker.C {
		objs, err := generic.Lister().List(selector)
		if err != nil {
			w.t.Error(err)
		}
		items, err := generic.Informer().GetIndexer().ByIndex("team", "a")
		if err != nil {
			w.t.Error(err)
		}
		for _, obj := range objs {
			items = append(items, obj)
		}
		for _, item := range items {
			if m, err := meta.Accessor(item); err != nil || m.GetLabels()["team"] != "a" {
				w.t.Errorf("%s: asked for team a, got %v, %v", kind, item, err)
			}
		}
	}
}

// wantSame fails the test unless two factories come to answer all questions alike.
func (w *readWorld) wantSame(when string, theirs, ours informers.SharedInformerFactory) {
	w.t.Helper()
	var last string
	err := wait.PollUntilContextTimeout(w.t.Context(), 50*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		last = ""
		for _, kind := range readKinds {
			last += cmp.Diff(w.answers(theirs, kind), w.answers(ours, kind))
		}
		return last == "", nil
	})
	if err != nil {
		w.t.Fatalf("%s (-client-go +ours):\n%s", when, last)
	}
	for _, kind := range readKinds {
		w.wantSameIteration(kind, w.informer(ours, kind).GetIndexer())
	}
}

// answers are results of reads, by what was read.
type answers map[string]map[string]state

func (w *readWorld) answers(f informers.SharedInformerFactory, kind string) answers {
	w.t.Helper()
	generic, err := f.ForResource(materials[kind].resource)
	if err != nil {
		w.t.Fatal(err)
	}
	a, x := answers{}, generic.Informer().GetIndexer()
	a.askLister(kind, w.namespaces, generic.Lister())
	a.note(kind+": List", x.List(), nil)
	whole, err := statesOf(x.List())
	if err != nil {
		w.t.Fatal(err)
	}
	a[kind+": content"] = whole
	for _, key := range append(x.ListKeys(), "none", "none/none") {
		item, exists, err := x.GetByKey(key)
		if exists {
			a.note(kind+": GetByKey "+key, []any{item}, err)
		} else {
			a.note(kind+": GetByKey "+key, nil, err)
		}
	}
	for name := range x.GetIndexers() {
		for _, value := range append(x.ListIndexFuncValues(name), "none") {
			items, err := x.ByIndex(name, value)
			a.note(kind+": ByIndex "+name+" "+value, items, err)
			keys, err := x.IndexKeys(name, value)
			slices.Sort(keys)
			a.note(kind+": IndexKeys "+name+" "+value+" "+strings.Join(keys, " "), nil, err)
		}
	}
	for _, namespace := range w.namespaces {
		items, err := x.Index(cache.NamespaceIndex, &metav1.ObjectMeta{Namespace: namespace})
		a.note(kind+": Index "+namespace, items, err)
	}
	return a
}

func (a answers) askLister(kind string, namespaces []string, lister cache.GenericLister) {
	for _, text := range readSelectors {
		selector, err := labels.Parse(text)
		objs, listErr := lister.List(selector)
		a.noteObjects(fmt.Sprintf("%s: lister, %q", kind, text), objs, errors.Join(err, listErr))
		for _, namespace := range append(namespaces, "none") {
			objs, err := lister.ByNamespace(namespace).List(selector)
			a.noteObjects(fmt.Sprintf("%s: lister of %s, %q", kind, namespace, text), objs, err)
		}
	}
	for _, namespace := range namespaces {
		for i := range 40 {
			name := fmt.Sprintf("%s-%02d", namespaces[0], i)
			obj, err := lister.ByNamespace(namespace).Get(name)
			if err == nil {
				a.noteObjects(kind+": Get "+namespace+"/"+name, []runtime.Object{obj}, nil)
			} else {
				a.note(fmt.Sprintf("%s: Get %s/%s: not found: %v", kind, namespace, name, apierrors.IsNotFound(err)), nil, nil)
			}
		}
	}
}

func (a answers) noteObjects(read string, objs []runtime.Object, err error) {
	var items []any
	for _, obj := range objs {
		items = append(items, obj)
	}
	a.note(read, items, err)
}

// note notes which objects, in which version, are a result; what failed is another
// question than what did not.
func (a answers) note(read string, items []any, err error) {
	versions := map[string]state{}
	for _, item := range items {
		m, metaErr := meta.Accessor(item)
		if metaErr != nil {
			err = errors.Join(err, metaErr)
			continue
		}
		versions[cache.MetaObjectToName(m).String()] = state{UID: string(m.GetUID()), RV: m.GetResourceVersion()}
	}
	if err != nil {
		read += ": " + err.Error()
	}
	a[read] = versions
}

// wantSameIteration compares iterations with what the indexer answers.
func (w *readWorld) wantSameIteration(kind string, x cache.Indexer) {
	w.t.Helper()
	want, got := answers{}, answers{}
	compare := func(read string, q indexer.Query, items []any, err error) {
		want.note(read, items, err)
		var found []any
		for obj, err := range indexer.Iterate[runtime.Object](x, q) {
			if err != nil {
				w.t.Errorf("%s: %s: %v", kind, read, err)
				return
			}
			found = append(found, obj)
		}
		got.note(read, found, nil)
		if len(found) != len(items) {
			w.t.Errorf("%s: %s: an iteration has %d objects, want %d", kind, read, len(found), len(items))
		}
	}
	compare("all", indexer.Query{}, x.List(), nil)
	for _, namespace := range w.namespaces {
		items, err := x.ByIndex(cache.NamespaceIndex, namespace)
		compare("namespace "+namespace, indexer.Query{Namespace: namespace}, items, err)
	}
	items, err := x.ByIndex("team", "b")
	compare("index", indexer.Query{Index: "team", Value: "b"}, items, err)
	compare("selector", indexer.Query{Selector: labels.SelectorFromSet(labels.Set{"team": "b"})}, items, err)
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("%s (-indexer +iteration):\n%s", kind, diff)
	}
}
