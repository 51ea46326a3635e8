package indexer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

func TestIndexer_Attach_NothingStored(t *testing.T) {
	file := storetest.NewMemory()
	p := start(t, file, startOptions{})
	if p.origin.RV != "" || p.origin.Reason == "" || p.origin.Totals != (store.Totals{}) {
		t.Errorf("origin %+v", p.origin)
	}
	if p.dump().Header != nil {
		t.Error("a header was written before anything was applied")
	}
	p.list("1", pod("a", "1", "x"))
	p.wantHeader("1", true, "f1")
	p.verify()
}

func TestIndexer_Load_GivesTheSameObjects(t *testing.T) {
	file := storetest.NewMemory()
	p := start(t, file, startOptions{})
	p.list("2", pod("a", "1", "x"), pod("b", "2", "x,y"))
	p.apply(Update{Changes: []Change{put(pod("c", "3", "y")), remove("a")}, RV: "4"})
	p.apply(Update{RV: "5"})
	p.verify()

	p = start(t, file, startOptions{})
	if p.origin.RV != "5" || p.origin.Reason != "" || p.origin.Totals.Count != 2 || p.origin.Totals.Bytes == 0 {
		t.Errorf("origin %+v", p.origin)
	}
	p.wantObjects(pod("b", "2", "x,y"), pod("c", "3", "y"))
	if got := p.LastStoreSyncResourceVersion(); got != "5" {
		t.Errorf("version %q", got)
	}
	if got := p.keysIn("app", "y"); len(got) != 2 {
		t.Errorf("index has %v", got)
	}
	p.verify()
}

func TestIndexer_Attach_OriginIsWhatWasApplied(t *testing.T) {
	file := storetest.NewMemory()
	p := start(t, file, startOptions{})
	yes, contact := true, time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("x", 3600))
	newest := store.ObjectRef{Key: "ns/a", UID: "u", RV: "1"}
	p.apply(Update{RV: "1", Complete: true, Cluster: "c1", Schema: "s1", NoBookmarks: &yes, Replays: &yes, Newest: &newest, Contact: contact})
	p.apply(Update{RV: "2"})
	if got := p.dump().Header.Contact; !got.Equal(contact) {
		t.Errorf("contact %s", got)
	}
	p = start(t, file, startOptions{})
	if p.origin.Cluster != "c1" || p.origin.Schema != "s1" || !p.origin.NoBookmarks || !p.origin.Replays || p.origin.Newest != newest {
		t.Errorf("origin %+v", p.origin)
	}
	no := false
	p.apply(Update{NoBookmarks: &no, Replays: &no, Newest: &store.ObjectRef{}})
	if got := start(t, file, startOptions{}).origin; got.NoBookmarks || got.Replays || got.Newest != (store.ObjectRef{}) {
		t.Errorf("origin %+v, want one with bookmarks, without replays and a newest object", got)
	}
}

func TestIndexer_Attach_IncompleteListIsNotResumed(t *testing.T) {
	file := storetest.NewMemory()
	p := start(t, file, startOptions{})
	p.list("1", pod("a", "1", ""), pod("b", "1", ""))
	p.apply(Update{Incomplete: true, Changes: []Change{remove("a"), put(pod("c", "5", ""))}})
	p.wantHeader("1", false, "f1")

	p = start(t, file, startOptions{})
	if p.origin.RV != "" || p.origin.Reason == "" || p.origin.Totals.Count != 2 {
		t.Errorf("origin %+v", p.origin)
	}
	if got := p.LastStoreSyncResourceVersion(); got != "" {
		t.Errorf("version %q of a mixture", got)
	}
	p.wantObjects(pod("b", "1", ""), pod("c", "5", ""))
	p.apply(Update{Complete: true, RV: "6", Changes: []Change{put(pod("b", "6", ""))}})
	if p = start(t, file, startOptions{}); p.origin.RV != "6" {
		t.Errorf("origin %+v after the list has ended", p.origin)
	}
}

func TestIndexer_Apply_ListWithoutVersionIsNotResumed(t *testing.T) {
	file := storetest.NewMemory()
	p := start(t, file, startOptions{})
	p.list("1", pod("a", "1", ""))
	p.list("", pod("a", "2", ""))
	if got := p.LastStoreSyncResourceVersion(); got != "" {
		t.Errorf("version %q", got)
	}
	if p = start(t, file, startOptions{}); p.origin.RV != "" || p.origin.Reason == "" {
		t.Errorf("origin %+v", p.origin)
	}
	p.wantObjects(pod("a", "2", ""))
}

// A crash may lose the last commits. After each number of them the file must hold
// exactly the objects of its version.
func TestIndexer_Restart_AfterEveryCommit(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	commits := &recorder{}
	p := start(t, storetest.NewMemory(), startOptions{indexers: allIndexers, wrap: commits.wrap})
	state := map[string]*corev1.Pod{}
	history := map[string]map[string]*corev1.Pod{}
	rv := 0
	change := func() Change {
		rv++
		name := fmt.Sprint("pod-", random.IntN(8))
		if random.IntN(3) == 0 {
			delete(state, name)
			return remove(name)
		}
		state[name] = pod(name, strconv.Itoa(rv), string(rune('a'+random.IntN(3))))
		return put(state[name])
	}
	for range 60 {
		var u Update
		for range random.IntN(4) {
			u.Changes = append(u.Changes, change())
		}
		rv++
		u.RV = strconv.Itoa(rv)
		switch random.IntN(8) {
		case 0: // a list in two parts
			p.apply(Update{Incomplete: true, Changes: u.Changes})
			u.Changes, u.Complete = []Change{change()}, true
		case 1:
			u.Complete = true
		}
		if rv < 4 {
			u.Complete = true
		}
		u.RV = strconv.Itoa(rv)
		history[u.RV] = maps.Clone(state)
		p.apply(u)
		p.verify()
	}

	for n := range len(commits.batches) + 1 {
		p := start(t, commits.replay(t, n), startOptions{indexers: allIndexers})
		p.verify()
		if h := p.dump().Header; (p.origin.RV != "") != (h != nil && h.Complete && h.RV != "") {
			t.Fatalf("after %d commits: origin %+v, header %+v", n, p.origin, h)
		}
		if p.origin.RV == "" {
			continue
		}
		var want []*corev1.Pod
		for _, pod := range history[p.origin.RV] {
			want = append(want, pod)
		}
		p.wantObjects(want...)
		if t.Failed() {
			t.Fatalf("after %d commits, at version %s", n, p.origin.RV)
		}
	}
}

func TestIndexer_Apply_ReturnsPreviousStates(t *testing.T) {
	p := start(t, storetest.NewMemory(), startOptions{})
	a1, a2, b := pod("a", "1", ""), pod("a", "2", ""), pod("b", "3", "")
	p.list("1", a1)
	got := p.apply(Update{RV: "3", Changes: []Change{put(a2), put(b), remove("a"), remove("b"), put(a1), remove("absent")}})
	want := []any{a1, nil, a2, b, nil, nil}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("previous state %d is %v, want %v", i, got[i], want[i])
		}
	}
	p.verify()
}

func TestIndexer_Apply_BeforeLoadIsRefused(t *testing.T) {
	file := storetest.NewMemory()
	start(t, file, startOptions{}).list("1", pod("a", "1", ""))
	p := attach(t, file, startOptions{})
	before := p.dump()
	if _, err := p.Apply(Update{RV: "2", Complete: true}); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("Apply returned %v, want ErrNotLoaded", err)
	}
	p.Bookmark("3")
	for name, err := range map[string]error{
		"Add": p.Add(pod("b", "2", "")), "Delete": p.Delete(pod("a", "2", "")), "Replace": p.Replace(nil, "2"),
	} {
		if !errors.Is(err, ErrNotLoaded) {
			t.Errorf("%s returned %v, want ErrNotLoaded", name, err)
		}
	}
	if err := p.Transaction(); err != nil {
		t.Errorf("an empty transaction failed: %v", err)
	}
	if diff := storetest.Diff(before, p.dump()); diff != "" || p.LastStoreSyncResourceVersion() != "" {
		t.Errorf("something was written:\n%s", diff)
	}
	if err := p.Load(context.Background()); err != nil {
		t.Fatal(err)
	}
	p.wantObjects(pod("a", "1", ""))
}

// A caller that changes an object in place, which it must not, does not damage
// the file.
func TestIndexer_Apply_LaterMutationsStayOutOfTheFile(t *testing.T) {
	file := storetest.NewMemory()
	p := start(t, file, startOptions{})
	a := pod("a", "1", "x")
	p.list("1", a)
	a.Annotations["apps"], a.ResourceVersion = "mutated", "99"
	p.apply(Update{RV: "2", Changes: []Change{put(pod("b", "2", "x"))}})
	p = start(t, file, startOptions{})
	p.wantObjects(pod("a", "1", "x"), pod("b", "2", "x"))
}

// An object alone does not tell that everything before it has been applied; a
// list and a bookmark do.
func TestIndexer_StoreWrites_PersistTheVersion(t *testing.T) {
	p := start(t, storetest.NewMemory(), startOptions{})
	if err := p.Replace([]any{pod("a", "1", "x")}, "2"); err != nil {
		t.Fatal(err)
	}
	p.wantHeader("2", true, "f1")
	for _, op := range []func(any) error{p.Add, p.Update, p.Delete} {
		if err := op(pod("b", "3", "x")); err != nil {
			t.Fatal(err)
		}
		p.wantHeader("2", true, "f1")
	}
	if err := p.Transaction(cache.Transaction{Type: cache.TransactionTypeAdd, Object: pod("b", "4", "x")}); err != nil {
		t.Fatal(err)
	}
	p.wantHeader("2", true, "f1")
	p.Bookmark("5")
	p.wantHeader("5", true, "f1")
	p.Bookmark("")
	p.wantHeader("5", true, "f1")
}
