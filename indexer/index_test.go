package indexer

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

// moody returns an index function that fails for the pods that sick names.
func moody(sick map[string]bool, fail func() ([]string, error)) cache.IndexFunc {
	return func(obj any) ([]string, error) {
		if sick[obj.(*corev1.Pod).Name] {
			return fail()
		}
		return byApp(obj)
	}
}

var waysToFail = map[string]func() ([]string, error){
	"error":            func() ([]string, error) { return []string{"wrong"}, errors.New("test") },
	"panic":            func() ([]string, error) { panic("test") },
	"nil dereference":  func() ([]string, error) { return []string{(*corev1.Pod)(nil).Name}, nil },
	"panic with error": func() ([]string, error) { panic(errors.New("test")) },
	"value too long": func() ([]string, error) {
		return []string{"x", strings.Repeat("v", store.MaxIndexValueLength+1)}, nil
	},
}

func TestIndexer_FailingIndexFunc(t *testing.T) {
	for name, fail := range waysToFail {
		t.Run(name, func(t *testing.T) {
			file := storetest.NewMemory()
			sick := map[string]bool{"sick": true}
			indexers := cache.Indexers{"moody": moody(sick, fail), "app": byApp}
			p := start(t, file, startOptions{indexers: indexers})
			p.list("1", pod("well", "1", "x"), pod("sick", "1", "x"))
			if p.IndexErrors() == 0 {
				t.Error("the failure was not counted")
			}
			p.wantObjects(pod("well", "1", "x"), pod("sick", "1", "x"))
			wantKeys(t, p, "moody", "x", "ns/well")
			wantKeys(t, p, "app", "x", "ns/sick", "ns/well")

			p.apply(Update{RV: "2", Changes: []Change{put(pod("sick", "2", "y"))}})
			wantKeys(t, p, "app", "y", "ns/sick")
			delete(sick, "sick")
			p.apply(Update{RV: "3", Changes: []Change{put(pod("sick", "3", "z"))}})
			wantKeys(t, p, "moody", "z", "ns/sick")
			p.verify()
			sick["other"] = true
			p.apply(Update{RV: "4", Changes: []Change{put(pod("other", "4", "x"))}})
			p.apply(Update{RV: "5", Changes: []Change{remove("other")}})
			p.verify()

			sick["sick"] = true
			restarted := start(t, file, startOptions{indexers: indexers})
			restarted.wantObjects(pod("well", "1", "x"), pod("sick", "3", "z"))
			wantKeys(t, restarted, "app", "z", "ns/sick")
			wantKeys(t, restarted, "moody", "z")
		})
	}
}

// TestIndexer_AddIndexers_UnusableNames checks names that could not be stored.
func TestIndexer_AddIndexers_UnusableNames(t *testing.T) {
	x := New(Options{})
	for _, name := range []string{"", strings.Repeat("n", store.MaxKeyLength+1)} {
		if err := x.AddIndexers(cache.Indexers{name: byApp}); err == nil || len(x.GetIndexers()) != 0 {
			t.Errorf("a name of %d bytes was accepted: %v", len(name), x.GetIndexers())
		}
	}
}

func wantKeys(t *testing.T, p *process, index, value string, want ...string) {
	t.Helper()
	if got := p.keysIn(index, value); !slices.Equal(got, want) && len(got)+len(want) > 0 {
		t.Errorf("index %s has %v for %q, want %v", index, got, value, want)
	}
}

// A function that fails for an object that it has indexed leaves an entry of
// something that is gone. Nobody may get a nil object for it.
func TestIndexer_IndexFuncThatFailsOnDelete(t *testing.T) {
	sick := map[string]bool{}
	x := New(Options{Indexers: cache.Indexers{"moody": moody(sick, waysToFail["panic"])}, Logger: quiet()})
	for _, name := range []string{"a", "b"} {
		if err := x.Add(pod(name, "1", "x")); err != nil {
			t.Fatal(err)
		}
	}
	sick["a"] = true
	if err := x.Delete(pod("a", "2", "x")); err != nil {
		t.Fatal(err)
	}
	byIndex, err1 := x.ByIndex("moody", "x")
	index, err2 := x.Index("moody", pod("c", "1", "x"))
	indexKeys, err3 := x.IndexKeys("moody", "x")
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	if len(byIndex) != 1 || len(index) != 1 || !slices.Equal(indexKeys, []string{"ns/b"}) {
		t.Errorf("ByIndex %v, Index %v, IndexKeys %v; want only b", byIndex, index, indexKeys)
	}
}

// The object that is looked up is the caller's; its failure is no empty result.
func TestIndexer_Index_ReturnsTheErrorOfTheFunction(t *testing.T) {
	for name, fail := range waysToFail {
		x := New(Options{Indexers: cache.Indexers{"moody": moody(map[string]bool{"sick": true}, fail)}, Logger: quiet()})
		if items, err := x.Index("moody", pod("sick", "1", "x")); err == nil || len(items) != 0 {
			t.Errorf("%s: Index returned %v, %v", name, items, err)
		}
		if x.IndexErrors() != 0 {
			t.Errorf("%s: counted as a failure for a stored object", name)
		}
	}
}

// indexBatches returns the batches that were written since p started, which must
// touch indices and nothing else.
func indexBatches(t *testing.T, batches []store.Batch) (dropped []string, entries int) {
	t.Helper()
	for _, b := range batches {
		if b.Clear || len(b.Ops) > 0 || len(b.Departed) > 0 || b.Header == nil {
			t.Errorf("batch %+v", b)
		}
		dropped = append(dropped, b.DropIndices...)
		for _, op := range b.Index {
			for _, change := range op.Changes {
				if !slices.Contains(b.DropIndices, change.Name) || len(change.Remove) > 0 {
					t.Errorf("change %+v of an index that was not dropped", change)
				}
				entries += len(change.Add)
			}
		}
	}
	return dropped, entries
}

func TestIndexer_Load_BringsStoredIndicesUpToDate(t *testing.T) {
	before := startOptions{
		indexers: cache.Indexers{"app": byApp, "node": byNode},
		versions: map[string]string{"app": "1", "node": "1"},
	}
	for name, tc := range map[string]struct {
		after   startOptions
		dropped string
		entries int
	}{
		"unchanged": {before, "", 0},
		"changed": {startOptions{
			indexers: cache.Indexers{"app": byNode, "node": byNode},
			versions: map[string]string{"app": "2", "node": "1"},
		}, "app", 2},
		"added": {startOptions{
			indexers: cache.Indexers{"app": byApp, "node": byNode, "also node": byNode},
			versions: before.versions,
		}, "also node", 2},
		"namespaces need none": {startOptions{
			indexers: cache.Indexers{"app": byApp, "node": byNode, cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
			versions: before.versions,
		}, "", 0},
		"dropped": {startOptions{indexers: cache.Indexers{"app": byApp}, versions: before.versions}, "node", 0},
		"version taken away": {startOptions{
			indexers: before.indexers, versions: map[string]string{"app": "1"},
		}, "node", 2},
	} {
		t.Run(name, func(t *testing.T) {
			file := storetest.NewMemory()
			p := start(t, file, before)
			p.list("1", pod("a", "1", "x,y"), pod("b", "1", ""))
			written := &recorder{}
			tc.after.wrap = written.wrap
			p = start(t, file, tc.after)
			dropped, entries := indexBatches(t, written.batches)
			if got := strings.Join(dropped, ","); got != tc.dropped || entries != tc.entries {
				t.Errorf("rewrote %q with %d entries, want %q with %d", got, entries, tc.dropped, tc.entries)
			}
			p.verify()
			p.wantHeader("1", true, "f1")
			if p.origin.RV != "1" {
				t.Errorf("origin %+v: indices are no reason to list", p.origin)
			}
			written.batches = nil
			start(t, file, tc.after).verify()
			if len(written.batches) > 0 {
				t.Error("rewritten again at the next start")
			}
		})
	}
}

func TestIndexer_AddIndexers_AfterLoad(t *testing.T) {
	file := storetest.NewMemory()
	written := &recorder{}
	p := start(t, file, startOptions{wrap: written.wrap})
	p.list("1", pod("a", "1", "x"), pod("b", "1", "x"))
	written.batches = nil
	if err := p.AddIndexers(cache.Indexers{"node": byNode}); err != nil {
		t.Fatal(err)
	}
	if dropped, entries := indexBatches(t, written.batches); !slices.Equal(dropped, []string{"node"}) || entries != 2 {
		t.Errorf("rewrote %v with %d entries", dropped, entries)
	}
	wantKeys(t, p, "node", "node-1", "ns/a", "ns/b")
	p.verify()
	written.batches = nil
	if err := p.AddIndexers(nil); err != nil || len(written.batches) > 0 {
		t.Errorf("nothing to add: %v, %d batches", err, len(written.batches))
	}
	p.apply(Update{RV: "2", Changes: []Change{put(pod("a", "2", "y"))}})
	p.verify()
}

func TestIndexer_AddIndexers_ConflictChangesNothing(t *testing.T) {
	written := &recorder{}
	p := start(t, storetest.NewMemory(), startOptions{wrap: written.wrap})
	p.list("1", pod("a", "1", "x"))
	written.batches = nil
	if err := p.AddIndexers(cache.Indexers{"node": byNode, "app": byNode}); err == nil {
		t.Error("no error")
	}
	if len(p.GetIndexers()) != 1 || len(written.batches) > 0 {
		t.Errorf("indices %v, %d batches", p.GetIndexers(), len(written.batches))
	}
	wantKeys(t, p, "app", "x", "ns/a")
	if _, err := p.ByIndex("node", "node-1"); err == nil {
		t.Error("the index was added")
	}
	if err := p.AddIndexers(cache.Indexers{"node": byNode}); err != nil {
		t.Errorf("the name is taken: %v", err)
	}
	p.verify()
}

// Entries of foreign records cannot be removed with their objects, so they go at
// once.
func TestIndexer_Load_DropsIndicesOfForeignRecords(t *testing.T) {
	file := storetest.NewMemory()
	start(t, file, startOptions{}).list("1", pod("a", "1", "x"), pod("b", "1", "x"))
	p := start(t, file, startOptions{fingerprint: "f2"})
	if got := p.dump(); len(got.Indices) != 0 || len(got.Objects) != 2 {
		t.Errorf("the file holds %+v", got.Indices)
	}
	p.apply(Update{Incomplete: true, Changes: []Change{put(pod("a", "2", "x"))}})
	if err := p.AddIndexers(cache.Indexers{"node": byNode}); err != nil {
		t.Fatal(err)
	}
	p.apply(Update{Complete: true, RV: "2", Changes: []Change{remove("b")}})
	p.verify()
}

// After a program that was interrupted before its list, the one before it comes
// back, and finds its records without their entries.
func TestIndexer_Load_RebuildsIndicesThatAnotherProgramDropped(t *testing.T) {
	file := storetest.NewMemory()
	start(t, file, startOptions{}).list("1", pod("a", "1", "x"), pod("b", "1", "x"))
	start(t, file, startOptions{fingerprint: "f2"})
	p := start(t, file, startOptions{})
	p.apply(Update{Complete: true, RV: "2"})
	p.verify()
}

func TestNew_CopiesIndexVersions(t *testing.T) {
	versions := map[string]string{"app": "1"}
	x := New(Options{IndexVersions: versions})
	versions["app"] = "2"
	if err := x.AddIndexers(cache.Indexers{"app": byApp}); err != nil {
		t.Fatal(err)
	}
	if got := x.fingerprintsLocked()["app"]; got != "version 1" {
		t.Errorf("fingerprint %q", got)
	}
}
