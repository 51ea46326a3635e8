package indexer

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

// What is shared between the indexer and its caller, and what the contract of
// cache.Indexer leaves to panics in client-go.

func TestIndexer_GetIndexers_ReturnsTheFunctionsAdded(t *testing.T) {
	x := New(Options{Indexers: cache.Indexers{"app": byApp}})
	if err := x.AddIndexers(cache.Indexers{"node": byNode}); err != nil {
		t.Fatal(err)
	}
	indexers := x.GetIndexers()
	for name, fn := range map[string]cache.IndexFunc{"app": byApp, "node": byNode} {
		if reflect.ValueOf(indexers[name]).Pointer() != reflect.ValueOf(fn).Pointer() {
			t.Errorf("GetIndexers returned another function for %q", name)
		}
	}
}

// client-go's indexer shares one map with whoever made it and whoever asks.
func TestIndexer_GetIndexers_IsACopy(t *testing.T) {
	given := cache.Indexers{"app": byApp}
	x := New(Options{Indexers: given})
	if err := x.AddIndexers(cache.Indexers{"node": byNode}); err != nil {
		t.Fatal(err)
	}
	if len(given) != 1 {
		t.Error("AddIndexers changed the map that New was given")
	}
	delete(given, "app")
	delete(x.GetIndexers(), "node")
	if got := x.GetIndexers(); len(got) != 2 {
		t.Errorf("%d indices, want 2: the map belongs to the indexer", len(got))
	}
	if got := New(Options{}).GetIndexers(); got == nil || len(got) != 0 {
		t.Errorf("got %v without indices, want an empty map", got)
	}
}

func TestIndexer_GetIndexers_DoesNotWaitForTheDisk(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	s := &spy{}
	p := start(t, storetest.NewMemory(), startOptions{wrap: s.around})
	p.list("1", pod("a", "1", "x"))
	s.onApply = func(store.Batch) error {
		close(entered)
		<-release
		return nil
	}
	var changing sync.WaitGroup
	changing.Go(func() { p.apply(Update{RV: "2"}) })
	<-entered
	if got := p.GetIndexers(); len(got) != 1 {
		t.Errorf("got %v", got)
	}
	close(release)
	changing.Wait()
}

func TestIndexer_AddIndexers_WithoutFunction(t *testing.T) {
	x := New(Options{Indexers: cache.Indexers{"app": byApp}})
	err := x.AddIndexers(cache.Indexers{"node": byNode, "none": nil})
	if err == nil || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("error %v, want one that names the index", err)
	}
	if got := x.GetIndexers(); len(got) != 1 {
		t.Errorf("indices %v, want none to be added", got)
	}
}

// New has no error to return; the objects stay out of such an index.
func TestNew_IndexWithoutFunction(t *testing.T) {
	x := New(Options{Indexers: cache.Indexers{"none": nil, "app": byApp}, Logger: quiet()})
	if err := x.Add(pod("a", "1", "x")); err != nil {
		t.Fatal(err)
	}
	if x.IndexErrors() == 0 {
		t.Error("not counted")
	}
	if items, err := x.Index("none", pod("a", "1", "x")); err == nil {
		t.Errorf("Index returned %v without an error", items)
	}
	if items, err := x.ByIndex("app", "x"); err != nil || len(items) != 1 {
		t.Errorf("the other index has %v, %v", items, err)
	}
}

func TestIndexer_Index_NilObject(t *testing.T) {
	x := New(Options{Indexers: cache.Indexers{"app": byApp}, Logger: quiet()})
	if items, err := x.Index("app", nil); err == nil || items != nil {
		t.Errorf("Index returned %v, %v", items, err)
	}
}

// A value that ListIndexFuncValues names has objects, even if the function failed
// to take one out again.
func TestIndexer_ListIndexFuncValues_HasNoValueWithoutObjects(t *testing.T) {
	sick := map[string]bool{}
	x := New(Options{Indexers: cache.Indexers{"moody": moody(sick, waysToFail["error"])}, Logger: quiet()})
	for _, p := range []*corev1.Pod{pod("a", "1", "x,y"), pod("b", "1", "y")} {
		if err := x.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	sick["a"] = true
	if err := x.Delete(pod("a", "2", "")); err != nil {
		t.Fatal(err)
	}
	if got := x.ListIndexFuncValues("moody"); !slices.Equal(got, []string{"y"}) {
		t.Errorf("values %q, want y only", got)
	}
}

func TestIndexer_Transaction_UnknownType(t *testing.T) {
	x := New(Options{})
	err := x.Transaction(
		cache.Transaction{Type: cache.TransactionTypeAdd, Object: pod("a", "1", "")},
		cache.Transaction{Object: pod("b", "2", "")})
	if err == nil {
		t.Fatal("no error")
	}
	if len(err.Errors) != 1 || !errors.Is(err.Errors[0], ErrTransactionType) || !slices.Equal(err.SuccessfulIndices, []int{0}) {
		t.Errorf("error %v, done %v", err, err.SuccessfulIndices)
	}
	if got := x.ListKeys(); !slices.Equal(got, []string{"ns/a"}) {
		t.Errorf("keys %v", got)
	}
}

// No server makes such objects, and the queue refuses them. As in client-go the
// indexer takes them from whoever adds them; the file, which cannot hold an empty
// key, is then left as it is.
func TestIndexer_Add_ObjectWithoutName(t *testing.T) {
	file := storetest.NewMemory()
	p := start(t, file, startOptions{})
	p.list("1", pod("a", "1", "x"))
	theirs := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{"app": byApp})
	if err := theirs.Add(pod("a", "1", "x")); err != nil {
		t.Fatal(err)
	}
	nameless := &corev1.Pod{}
	if err := errors.Join(p.Add(nameless), theirs.Add(nameless)); err != nil {
		t.Fatal(err)
	}
	got, want := slices.Sorted(slices.Values(p.ListKeys())), slices.Sorted(slices.Values(theirs.ListKeys()))
	if !slices.Equal(got, want) {
		t.Errorf("keys %q, client-go has %q", got, want)
	}
	if _, persistent := p.Durability(); persistent {
		t.Error("still written, without the object")
	}
	start(t, file, startOptions{}).wantObjects(pod("a", "1", "x"))
}

func TestIndexer_KeyErrorsUnwrap(t *testing.T) {
	x := New(Options{})
	_, _, err := x.Get("text")
	var keyError cache.KeyError
	if !errors.As(err, &keyError) || keyError.Obj != "text" || errors.Unwrap(keyError) == nil {
		t.Errorf("error %v, want a cache.KeyError of the object", err)
	}
}

// The slices that reads return are the caller's.
func TestIndexer_ReadsReturnTheirOwnSlices(t *testing.T) {
	x := New(Options{Indexers: cache.Indexers{"app": byApp}})
	if err := x.Add(pod("a", "1", "x")); err != nil {
		t.Fatal(err)
	}
	byIndex, _ := x.ByIndex("app", "x")
	index, _ := x.Index("app", pod("q", "1", "x"))
	for _, items := range [][]any{x.List(), byIndex, index} {
		items[0] = nil
	}
	indexKeys, _ := x.IndexKeys("app", "x")
	for _, strs := range [][]string{x.ListKeys(), indexKeys, x.ListIndexFuncValues("app")} {
		strs[0] = "overwritten"
	}
	byIndex, _ = x.ByIndex("app", "x")
	if x.List()[0] == nil || x.ListKeys()[0] != "ns/a" || byIndex[0] == nil || x.ListIndexFuncValues("app")[0] != "x" {
		t.Error("the caller changed the indexer")
	}
}

func TestIndexer_Replace_DoesNotKeepTheList(t *testing.T) {
	x := New(Options{})
	list := []any{pod("a", "1", "")}
	if err := x.Replace(list, "1"); err != nil {
		t.Fatal(err)
	}
	list[0] = nil
	if got := x.List(); len(got) != 1 || got[0] == nil {
		t.Errorf("objects %v", got)
	}
}

func TestIndexer_Replace_WithNothing(t *testing.T) {
	for name, list := range map[string][]any{"nil": nil, "empty": {}} {
		p := start(t, storetest.NewMemory(), startOptions{})
		p.list("1", pod("a", "1", "x"))
		if err := p.Replace(list, "2"); err != nil {
			t.Fatal(err)
		}
		if p.Len() != 0 || p.LastStoreSyncResourceVersion() != "2" || len(p.ListIndexFuncValues("app")) != 0 {
			t.Errorf("%s: %d objects, version %q, values %v", name, p.Len(), p.LastStoreSyncResourceVersion(), p.ListIndexFuncValues("app"))
		}
		p.verify()
	}
}

func TestIndexer_Resync_DoesNothing(t *testing.T) {
	x := New(Options{})
	if err := x.Resync(); err != nil {
		t.Error(err)
	}
}
