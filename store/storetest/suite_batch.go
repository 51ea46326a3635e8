package storetest

import (
	"errors"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmcache/warmcache/store"
)

// batchTests are about what a Batch does, in memory and after a commit.
var batchTests = []conformanceTest{
	{"Apply/VisibleAtOnce", testVisibleAtOnce},
	{"Apply/LaterOpWins", testLaterOpWins},
	{"Apply/DeleteAbsent", testDeleteAbsent},
	{"Apply/Clear", testClear},
	{"Apply/ClearKeepsGivenHeader", testClearKeepsGivenHeader},
	{"Apply/DropIndices", testDropIndices},
	{"Apply/Index", testIndexOnly},
	{"Apply/ClearAndDropComeBeforeOps", testClearComesFirst},
	{"Apply/IndexChangesAreIdempotent", testIndexIdempotent},
	{"Apply/Invalid", testInvalidBatch},
	{"Apply/Header", testHeader},
	{"Depart/Delete", testDepartDelete},
	{"Depart/Overwrite", testDepartOverwrite},
	{"Depart/BeforeCommit", testDepartBeforeCommit},
	{"Depart/WithinOneBatch", testDepartWithinBatch},
	{"Depart/AbsentKey", testDepartAbsent},
	{"Depart/ReplacesEarlier", testDepartReplaces},
	{"Depart/AfterClear", testDepartAfterClear},
	{"Departed/AttemptsAndRemove", testDepartedOps},
	{"Departed/Order", testDepartedOrder},
}

// byNode moves a key between values of the index "node".
func byNode(remove, add string) store.IndexChange {
	change := store.IndexChange{Name: "node"}
	if remove != "" {
		change.Remove = []string{remove}
	}
	if add != "" {
		change.Add = []string{add}
	}
	return change
}

func ops(ops ...store.Op) store.Batch { return store.Batch{Ops: ops} }

// objects is what Dump shows for pairs of key and content.
func objects(pairs ...string) []Entry {
	var entries []Entry
	for i := 0; i < len(pairs); i += 2 {
		entries = append(entries, Entry{pairs[i], string(Record(pairs[i+1]))})
	}
	return entries
}

func (s *suite) wantObjects(c store.Collection, pairs ...string) {
	s.Helper()
	if diff := cmp.Diff(objects(pairs...), Dump(s.T, c).Objects); diff != "" {
		s.Errorf("objects (-want +got):\n%s", diff)
	}
}

// wantNodes compares the index "node", given as "value: key key".
func (s *suite) wantNodes(c store.Collection, want ...string) {
	s.Helper()
	var got []string
	for _, value := range Dump(s.T, c, "node").Indices["node"] {
		got = append(got, value.Value+": "+strings.Join(value.Keys, " "))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("index (-want +got):\n%s", diff)
	}
}

// departed is one expected departed record.
type departed struct {
	key, uid, content string
	attempts          int
}

func (s *suite) wantDeparted(c store.Collection, want ...departed) {
	s.Helper()
	var expected []store.Departed
	for _, d := range want {
		expected = append(expected, store.Departed{Key: d.key, UID: d.uid, Attempts: d.attempts, Value: Record(d.content)})
	}
	if diff := Diff(Contents{Departed: expected}, Contents{Departed: Dump(s.T, c).Departed}); diff != "" {
		s.Errorf("departed records (-want +got):\n%s", diff)
	}
}

func testVisibleAtOnce(s *suite) {
	c := s.collection()
	s.apply(c, ops(Put("b", "1", byNode("", "n1")), Put("a", "2")))
	s.settled(c, func() {
		s.wantObjects(c, "a", "2", "b", "1")
		s.wantNodes(c, "n1: b")
	})
	s.apply(c, ops(Put("a", "3"), store.Op{Key: "b", Index: []store.IndexChange{byNode("n1", "")}}))
	s.settled(c, func() {
		s.wantObjects(c, "a", "3")
		s.wantNodes(c)
	})
}

func testLaterOpWins(s *suite) {
	c := s.collection()
	s.apply(c, ops(Put("a", "1"), Put("a", "2"), Put("b", "1"), store.Op{Key: "b"}, store.Op{Key: "c"}, Put("c", "1")))
	s.settled(c, func() { s.wantObjects(c, "a", "2", "c", "1") })
}

func testDeleteAbsent(s *suite) {
	c := s.collection()
	s.apply(c, ops(store.Op{Key: "a"}))
	s.settled(c, func() { s.wantObjects(c) })
}

// filled returns a collection in which everything is set, half of it committed.
func (s *suite) filled() store.Collection {
	s.Helper()
	c := s.collection()
	s.apply(c, store.Batch{
		Header: &store.Header{RV: "10", Complete: true},
		Ops:    []store.Op{Put("a", "1", byNode("", "n1")), Put("gone", "0")},
	}, ops(store.Op{Key: "gone", Depart: "uid-0"}))
	s.flush(c)
	s.apply(c, ops(Put("b", "2", byNode("", "n2"))))
	return c
}

func testClear(s *suite) {
	c := s.filled()
	s.apply(c, store.Batch{Clear: true})
	s.settled(c, func() {
		if diff := Diff(Contents{}, Dump(s.T, c, "node")); diff != "" {
			s.Errorf("cleared collection is not empty:\n%s", diff)
		}
	})
	s.wantTotals(c, store.Totals{})
}

func testClearKeepsGivenHeader(s *suite) {
	c := s.filled()
	s.apply(c, store.Batch{Clear: true, Header: &store.Header{RV: "20"}})
	s.settled(c, func() {
		want := Contents{Header: &store.Header{RV: "20"}}
		if diff := Diff(want, Dump(s.T, c, "node")); diff != "" {
			s.Errorf("cleared collection (-want +got):\n%s", diff)
		}
	})
}

func testDropIndices(s *suite) {
	c := s.filled()
	s.apply(c, ops(Put("a", "1", store.IndexChange{Name: "other", Add: []string{"x"}})))
	s.apply(c, store.Batch{DropIndices: []string{"node", "never-written"}})
	s.settled(c, func() {
		s.wantNodes(c)
		s.wantObjects(c, "a", "1", "b", "2")
		if got := Dump(s.T, c, "other").Indices["other"]; len(got) != 1 {
			s.Errorf("other index was dropped too: %v", got)
		}
	})
}

// testIndexOnly rebuilds an index without touching objects.
func testIndexOnly(s *suite) {
	c := s.filled()
	rebuild := func(value string) store.Batch {
		return store.Batch{
			DropIndices: []string{"node"},
			Index: []store.IndexOp{
				{Key: "a", Changes: []store.IndexChange{byNode("", value)}},
				{Key: "b", Changes: []store.IndexChange{byNode("", value)}},
			},
		}
	}
	s.apply(c, rebuild("n8"), rebuild("n9"))
	s.settled(c, func() {
		s.wantNodes(c, "n9: a b")
		s.wantObjects(c, "a", "1", "b", "2")
	})
	s.apply(c, store.Batch{Index: []store.IndexOp{{Key: "a", Changes: []store.IndexChange{byNode("n9", "")}}}})
	s.settled(c, func() { s.wantNodes(c, "n9: b") })
	if err := c.Apply(store.Batch{Index: []store.IndexOp{{}}}); !errors.Is(err, store.ErrInvalidBatch) {
		s.Errorf("empty key: got %v, want ErrInvalidBatch", err)
	}
}

func testClearComesFirst(s *suite) {
	c := s.filled()
	s.apply(c, store.Batch{Clear: true, Ops: []store.Op{Put("c", "3", byNode("", "n3"))}})
	s.settled(c, func() {
		s.wantObjects(c, "c", "3")
		s.wantNodes(c, "n3: c")
	})
	s.apply(c, store.Batch{DropIndices: []string{"node"}, Ops: []store.Op{Put("d", "4", byNode("", "n4"))}})
	s.settled(c, func() { s.wantNodes(c, "n4: d") })
	// A drop that has not been committed hides what was added before it, and
	// nothing that is added after it.
	s.apply(c,
		store.Batch{DropIndices: []string{"node"}},
		ops(Put("c", "3", byNode("", "n5"))),
		store.Batch{Clear: true},
		ops(Put("e", "5", byNode("", "n6"))))
	s.settled(c, func() {
		s.wantObjects(c, "e", "5")
		s.wantNodes(c, "n6: e")
	})
}

func testIndexIdempotent(s *suite) {
	c := s.collection()
	s.apply(c, ops(Put("a", "1", byNode("n0", "n1"))), ops(Put("a", "1", byNode("n0", "n1"))))
	s.settled(c, func() { s.wantNodes(c, "n1: a") })
	s.apply(c, ops(Put("a", "1", byNode("n0", "n1"))))
	s.settled(c, func() { s.wantNodes(c, "n1: a") })
	// Remove comes before Add, so that a value in both stays.
	s.apply(c, ops(Put("a", "1", byNode("n1", "n1"))))
	s.settled(c, func() { s.wantNodes(c, "n1: a") })
	s.apply(c, ops(Put("a", "1", byNode("n1", "")), Put("a", "1", byNode("n1", ""))))
	s.settled(c, func() { s.wantNodes(c) })
}

func testInvalidBatch(s *suite) {
	c := s.collection()
	long := strings.Repeat("x", store.MaxIndexValueLength+1)
	for name, bad := range map[string]store.Op{
		"empty key":           {Value: Record("1")},
		"long key":            Put(strings.Repeat("k", store.MaxKeyLength+1), "1"),
		"unsealed record":     {Key: "a", Value: []byte{}},
		"long index value":    Put("a", "1", byNode("", long)),
		"index without name":  Put("a", "1", store.IndexChange{Add: []string{"x"}}),
		"UID that is no UID ": {Key: "a", Depart: long},
	} {
		if err := c.Apply(ops(Put("good", "1"), bad)); !errors.Is(err, store.ErrInvalidBatch) {
			s.Errorf("%s: got %v, want ErrInvalidBatch", name, err)
		}
	}
	for _, bad := range []store.DepartedOp{
		{Key: "a", UID: "u", Attempts: -1},
		{Key: "a", UID: "u", Attempts: store.MaxAttempts + 1},
		{Key: "a", UID: "u", Age: -1},
		{Key: "a", UID: "u", Age: store.MaxAge + 1},
	} {
		if err := c.Apply(store.Batch{Departed: []store.DepartedOp{bad}}); !errors.Is(err, store.ErrInvalidBatch) {
			s.Errorf("%+v: got %v, want ErrInvalidBatch", bad, err)
		}
	}
	s.settled(c, func() { s.wantObjects(c) })
	widest := Put(strings.Repeat("k", store.MaxKeyLength), "1", byNode("", strings.Repeat("\x00", store.MaxIndexValueLength)))
	s.apply(c, ops(widest))
	s.settled(c, func() { s.wantObjects(c, widest.Key, "1") })
}

// testHeader has every field set, and a time that is neither in UTC nor without
// a fraction.
func testHeader(s *suite) {
	c := s.collection()
	err := c.View(func(tx store.Tx) error {
		_, err := tx.Header()
		return err
	})
	if !errors.Is(err, store.ErrNotFound) {
		s.Fatalf("header of a collection never written: got %v, want ErrNotFound", err)
	}
	header := store.Header{
		RV: "12", Complete: true, Fingerprint: "f", Cluster: "c", Schema: "s", Clean: true, NoBookmarks: true, Replays: true, Newest: store.ObjectRef{Key: "a/b", UID: "u", RV: "11"},
		Indices: map[string]string{"node": "fp", "owner": ""},
		Contact: time.Date(2026, 1, 2, 3, 4, 5, 678, time.FixedZone("x", 3600)),
	}
	given := header.Clone()
	s.apply(c, store.Batch{Header: &given})
	want := header.Clone()
	s.settled(c, func() {
		got := Dump(s.T, c).Header
		if diff := cmp.Diff(&want, got); diff != "" {
			s.Errorf("header (-want +got):\n%s", diff)
		}
		// What a Tx hands out is the caller's own.
		got.Indices["node"] = "changed"
	})
	s.apply(c, ops(Put("a", "1")))
	s.settled(c, func() {
		if got := Dump(s.T, c).Header; !cmp.Equal(&want, got) {
			s.Errorf("a batch without header changed it: %+v", got)
		}
	})
	s.apply(c, store.Batch{Header: &store.Header{}})
	s.settled(c, func() {
		if diff := cmp.Diff(&store.Header{}, Dump(s.T, c).Header); diff != "" {
			s.Errorf("zero header (-want +got):\n%s", diff)
		}
	})
}

func testDepartDelete(s *suite) {
	c := s.collection()
	s.apply(c, ops(Put("a", "1")))
	s.flush(c)
	s.apply(c, ops(store.Op{Key: "a", Depart: "uid-1"}))
	s.settled(c, func() {
		s.wantObjects(c)
		s.wantDeparted(c, departed{"a", "uid-1", "1", 0})
	})
}

func testDepartOverwrite(s *suite) {
	c := s.collection()
	s.apply(c, ops(Put("a", "1")))
	s.flush(c)
	op := Put("a", "2")
	op.Depart = "uid-1"
	s.apply(c, ops(op))
	s.settled(c, func() {
		s.wantObjects(c, "a", "2")
		s.wantDeparted(c, departed{"a", "uid-1", "1", 0})
	})
}

// testDepartBeforeCommit deletes an object that was never in the file: the
// departed record has to come from memory.
func testDepartBeforeCommit(s *suite) {
	c := s.collection()
	s.apply(c, ops(Put("a", "1")), ops(store.Op{Key: "a", Depart: "uid-1"}))
	s.settled(c, func() {
		s.wantObjects(c)
		s.wantDeparted(c, departed{"a", "uid-1", "1", 0})
	})
}

// testDepartWithinBatch departs two generations of a key in one batch; each op
// has to see what the one before it wrote.
func testDepartWithinBatch(s *suite) {
	c := s.collection()
	s.apply(c, ops(Put("a", "1")))
	s.flush(c)
	again := Put("a", "2")
	again.Depart = "uid-1"
	s.apply(c, store.Batch{
		Ops:      []store.Op{again, {Key: "a", Depart: "uid-2"}},
		Departed: []store.DepartedOp{{Key: "a", UID: "uid-2", Attempts: 1}},
	})
	s.settled(c, func() {
		s.wantObjects(c)
		s.wantDeparted(c, departed{"a", "uid-1", "1", 0}, departed{"a", "uid-2", "2", 1})
	})
}

func testDepartAbsent(s *suite) {
	c := s.collection()
	s.apply(c, ops(store.Op{Key: "never", Depart: "uid-1"}, Put("a", "1")))
	s.flush(c)
	// The second delete finds nothing, although the file still has the key.
	s.apply(c, ops(store.Op{Key: "a"}, store.Op{Key: "a", Depart: "uid-2"}))
	s.settled(c, func() { s.wantDeparted(c) })
}

func testDepartReplaces(s *suite) {
	c := s.collection()
	s.apply(c,
		ops(Put("a", "1")),
		store.Batch{
			Ops:      []store.Op{{Key: "a", Depart: "uid-1"}},
			Departed: []store.DepartedOp{{Key: "a", UID: "uid-1", Attempts: 2}},
		})
	s.flush(c)
	s.apply(c, ops(Put("a", "2"), store.Op{Key: "a", Depart: "uid-1"}))
	s.settled(c, func() { s.wantDeparted(c, departed{"a", "uid-1", "2", 0}) })
}

// testDepartAfterClear finds nothing to keep, although the file still has it.
func testDepartAfterClear(s *suite) {
	c := s.filled()
	s.apply(c, store.Batch{Clear: true, Ops: []store.Op{{Key: "a", Depart: "uid-1"}}})
	s.settled(c, func() { s.wantDeparted(c) })
}

func testDepartedOps(s *suite) {
	c := s.collection()
	s.apply(c, ops(Put("a", "1"), Put("b", "2")), ops(store.Op{Key: "a", Depart: "u"}, store.Op{Key: "b", Depart: "u"}))
	s.flush(c)
	s.apply(c, store.Batch{Departed: []store.DepartedOp{
		{Key: "a", UID: "u", Attempts: 2, Age: 90*time.Second + time.Millisecond},
		{Key: "b", UID: "u", Remove: true},
		{Key: "a", UID: "other", Attempts: 7},
		{Key: "never", UID: "u", Remove: true},
	}})
	s.settled(c, func() {
		want := []store.Departed{{Key: "a", UID: "u", Attempts: 2, Age: 90 * time.Second, Value: Record("1")}}
		if diff := Diff(Contents{Departed: want}, Contents{Departed: Dump(s.T, c).Departed}); diff != "" {
			s.Errorf("departed records (-want +got):\n%s", diff)
		}
	})
	s.apply(c, store.Batch{Departed: []store.DepartedOp{{Key: "b", UID: "u", Attempts: 1}, {Key: "a", UID: "u", Attempts: 3}}})
	s.settled(c, func() { s.wantDeparted(c, departed{"a", "u", "1", 3}) })
}

func testDepartedOrder(s *suite) {
	c := s.collection()
	// "a\x00b" sorts between "a" and "a-b": an encoding of the pair (key, UID)
	// that is not escaped gets this wrong.
	want := []departed{{"a", "u1", "1", 0}, {"a", "u2", "2", 0}, {"a\x00b", "u0", "3", 0}, {"a-b", "u0", "4", 0}}
	for i := range want {
		d := want[len(want)-1-i]
		s.apply(c, ops(Put(d.key, d.content), store.Op{Key: d.key, Depart: d.uid}))
		if i == 1 {
			s.flush(c)
		}
	}
	s.settled(c, func() { s.wantDeparted(c, want...) })
}
