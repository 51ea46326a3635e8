package indexer

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/store/storetest"
)

// versionWatcher is an index function that is called while a change is made, and
// notes the version that readers see meanwhile.
type versionWatcher struct {
	indexer *Indexer
	seen    []string
}

func (w *versionWatcher) values(any) ([]string, error) {
	if w.indexer != nil {
		w.seen = append(w.seen, w.indexer.LastStoreSyncResourceVersion())
	}
	return nil, nil
}

// Who reads the version first and the objects afterwards gets objects that are at
// least as new.
func TestIndexer_LastStoreSyncResourceVersion_IsNeverAheadOfTheObjects(t *testing.T) {
	w := &versionWatcher{}
	p := start(t, storetest.NewMemory(), startOptions{indexers: cache.Indexers{"watcher": w.values}})
	p.list("1", pod("a", "1", ""))
	w.indexer = p.Indexer
	for name, change := range map[string]func(*corev1.Pod) error{
		"Add":     func(o *corev1.Pod) error { return p.Add(o) },
		"Delete":  func(o *corev1.Pod) error { return p.Delete(o) },
		"Replace": func(o *corev1.Pod) error { return p.Replace([]any{o}, o.ResourceVersion) },
		"Apply": func(o *corev1.Pod) error {
			_, err := p.Apply(Update{Changes: []Change{put(o)}, RV: o.ResourceVersion})
			return err
		},
		"Transaction": func(o *corev1.Pod) error {
			if err := p.Transaction(cache.Transaction{Type: cache.TransactionTypeUpdate, Object: o}); err != nil {
				return err
			}
			return nil
		},
	} {
		if err := p.Replace([]any{pod("a", "1", "")}, "1"); err != nil {
			t.Fatal(err)
		}
		w.seen = nil
		if err := change(pod("a", "2", "")); err != nil {
			t.Fatal(err)
		}
		if len(w.seen) == 0 || slices.Contains(w.seen, "2") {
			t.Errorf("%s: versions %q were seen during the change", name, w.seen)
		}
		if got := p.LastStoreSyncResourceVersion(); got != "2" {
			t.Errorf("%s: version %q afterwards", name, got)
		}
	}
}

// client-go's indexer has no version when lists are not applied as a whole.
func TestIndexer_LastStoreSyncResourceVersion_NeedsNoFeatureGate(t *testing.T) {
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.AtomicFIFO, false)
	ours, theirs := New(Options{}), cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	ours.Bookmark("2")
	theirs.Bookmark("2")
	if got, want := ours.LastStoreSyncResourceVersion(), theirs.LastStoreSyncResourceVersion(); got != "2" || want != "" {
		t.Errorf("version %q, client-go has %q", got, want)
	}
}

// Readers see a Replace, a Transaction or an Apply as a whole.
func TestIndexer_ChangesAreSeenAsAWhole(t *testing.T) {
	const objects, rounds = 20, 100
	x := New(Options{Indexers: cache.Indexers{"node": byNode}})
	state := func(rv string) (list []any, txns []cache.Transaction, changes []Change) {
		for i := range objects {
			p := pod(podName(i), rv, "")
			list = append(list, p)
			txns = append(txns, cache.Transaction{Type: cache.TransactionTypeUpdate, Object: p})
			changes = append(changes, put(p))
		}
		return list, txns, changes
	}
	list, _, _ := state("0")
	if err := x.Replace(list, "0"); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range rounds {
			list, _, _ := state("1")
			_, txns, _ := state("2")
			_, _, changes := state("3")
			_ = x.Replace(list, "1")
			_ = x.Transaction(txns...)
			_, _ = x.Apply(Update{Changes: changes, RV: "3"})
		}
	}()
	for {
		list := x.List()
		versions := map[string]bool{}
		for _, obj := range list {
			versions[versionOf(obj)] = true
		}
		if len(list) != objects || len(versions) != 1 {
			t.Errorf("read %d objects of the versions %v", len(list), versions)
			<-done
			return
		}
		if values := x.ListIndexFuncValues("node"); len(values) != 1 {
			t.Errorf("the index has %v", values)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// An index that GetIndexers names can be asked.
func TestIndexer_GetIndexers_NamesWhatCanBeAsked(t *testing.T) {
	x := New(Options{})
	if err := x.Add(pod("a", "1", "")); err != nil {
		t.Fatal(err)
	}
	early := false
	err := x.AddIndexers(cache.Indexers{"new": func(any) ([]string, error) {
		_, early = x.GetIndexers()["new"] // while the objects are being indexed
		return []string{"v"}, nil
	}})
	if err != nil || early {
		t.Errorf("error %v, named while it was being built: %t", err, early)
	}
	if _, ok := x.GetIndexers()["new"]; !ok {
		t.Error("not named afterwards")
	}
}
