package indexer

import (
	"testing"

	"github.com/warmcache/warmcache/store/storetest"
)

func TestIndexer_Attach_ForeignRecordsAreKnownButNotServed(t *testing.T) {
	file := storetest.NewMemory()
	p := start(t, file, startOptions{})
	p.list("1", pod("deleted", "1", "x"), pod("kept", "1", "x"), pod("recreated", "1", "x"))

	p = start(t, file, startOptions{fingerprint: "f2"})
	if p.origin.RV != "" || p.origin.Reason == "" || p.origin.Totals.Count != 3 {
		t.Errorf("origin %+v", p.origin)
	}
	p.wantObjects()
	if len(p.keysIn("app", "x")) != 0 || p.LastStoreSyncResourceVersion() != "" {
		t.Error("something is served")
	}
	known := p.Known()
	if got := known.ListKeys(); len(got) != 3 {
		t.Errorf("known keys %v", got)
	}
	if item, exists, err := known.GetByKey("ns/kept"); item != nil || !exists || err != nil {
		t.Errorf("GetByKey: %v, %t, %v", item, exists, err)
	}
	if same, _ := known.Unchanged([]string{"ns/kept"}, []any{pod("kept", "1", "x")}); same[0] {
		t.Error("a foreign record counts as unchanged")
	}

	p.apply(Update{Incomplete: true, Changes: departing(
		remove("deleted"), put(withUID(pod("recreated", "5", "y"), "uid-2")), put(pod("new", "5", "z")))})
	p.wantHeader("1", false, mixedFingerprint)
	if got := known.ListKeys(); len(got) != 3 {
		t.Errorf("known keys %v", got)
	}
	p.apply(Update{Complete: true, RV: "5", Changes: departing(put(pod("kept", "1", "y")))})
	p.wantHeader("5", true, "f2")
	p.verify()
	if got := departedIDs(p); got != "ns/deleted uid-deleted, ns/recreated uid-recreated" {
		t.Errorf("departed: %s", got)
	}

	p = start(t, file, startOptions{fingerprint: "f2"})
	if p.origin.RV != "5" {
		t.Errorf("origin %+v", p.origin)
	}
	p.wantObjects(pod("kept", "1", "y"), withUID(pod("recreated", "5", "y"), "uid-2"), pod("new", "5", "z"))
}

func TestIndexer_Replace_DeletesForeignRecordsToo(t *testing.T) {
	file := storetest.NewMemory()
	start(t, file, startOptions{}).list("1", pod("a", "1", "x"))
	p := start(t, file, startOptions{fingerprint: "f2"})
	if err := p.Replace([]any{pod("b", "2", "y")}, "2"); err != nil {
		t.Fatal(err)
	}
	p.verify()
	p.wantHeader("2", true, "f2")
}

// Until the list has ended the header keeps the old fingerprint, so that a crash
// starts over instead of taking old records for new ones.
func TestIndexer_Restart_WithinAListOverForeignRecords(t *testing.T) {
	old := storetest.NewMemory()
	p := start(t, old, startOptions{})
	p.list("1", pod("a", "1", "x"), pod("b", "1", "x"))

	p = start(t, old, startOptions{fingerprint: "f2"})
	p.apply(Update{Incomplete: true, Changes: []Change{put(pod("a", "5", "y"))}})

	p = start(t, old, startOptions{fingerprint: "f2"})
	if p.origin.RV != "" {
		t.Errorf("origin %+v", p.origin)
	}
	p.wantObjects()
	if got := p.Known().ListKeys(); len(got) != 2 {
		t.Errorf("known keys %v", got)
	}
	p.apply(Update{Complete: true, RV: "6", Changes: []Change{put(pod("a", "5", "y")), remove("b")}})
	p = start(t, old, startOptions{fingerprint: "f2"})
	p.wantObjects(pod("a", "5", "y"))
	p.verify()

	// The program that wrote the file first does not resume it either.
	old2 := storetest.NewMemory()
	start(t, old2, startOptions{}).list("1", pod("a", "1", "x"))
	start(t, old2, startOptions{fingerprint: "f2"}).apply(Update{Incomplete: true, Changes: []Change{put(pod("a", "5", "y"))}})
	if p = start(t, old2, startOptions{}); p.origin.RV != "" {
		t.Errorf("origin %+v of a mixture", p.origin)
	}
}

// Without their index entries the records are no use to the program that wrote
// them, should it come back.
func TestIndexer_Load_ForeignRecordsAreIncomplete(t *testing.T) {
	file := storetest.NewMemory()
	start(t, file, startOptions{}).list("1", pod("a", "1", "x"))
	p := start(t, file, startOptions{fingerprint: "f2"})
	p.wantHeader("1", false, "f1")
	p.apply(Update{RV: "2"})
	if p = start(t, file, startOptions{}); p.origin.RV != "" {
		t.Errorf("origin %+v", p.origin)
	}
}

// A program that is interrupted in its first list, and the one before it comes
// back: neither may take the records of the other for its own.
func TestIndexer_Attach_MixedRecordsAreServedByNobody(t *testing.T) {
	file := storetest.NewMemory()
	start(t, file, startOptions{fingerprint: "f1"}).list("1", pod("a", "1", "x"), pod("b", "1", "x"))
	start(t, file, startOptions{fingerprint: "f2"}).apply(Update{Incomplete: true, Changes: []Change{put(pod("a", "1", "y"))}})
	for _, fingerprint := range []string{"f1", "f2"} {
		p := start(t, file, startOptions{fingerprint: fingerprint})
		p.wantObjects()
		if got := p.Known().ListKeys(); len(got) != 2 {
			t.Errorf("%s: known keys %v, want both", fingerprint, got)
		}
	}
}
