package storetest

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/google/go-cmp/cmp"

	"github.com/warmcache/warmcache/store"
)

// lifecycleTests are about opening, closing and what survives them.
var lifecycleTests = []conformanceTest{
	{"Reopen/KeepsEverything", testReopen},
	{"Reopen/UnflushedIsMadeDurableByClose", testCloseFlushes},
	{"Reopen/CollectionInOneProcess", testReopenCollection},
	{"Collection/InUse", testInUse},
	{"Collection/InvalidIdentity", testInvalidIdentity},
	{"Collection/Separate", testSeparateCollections},
	{"Close/Collection", testCloseCollection},
	{"Close/CollectionCanBeRead", testReadAfterClose},
	{"Close/Store", testCloseStore},
	{"Close/BesideEverything", testCloseBesideEverything},
	{"Flush/Durability", testDurability},
	{"Flush/Context", testFlushContext},
	{"Informers/DescribesCommitted", testInformers},
	{"Forget/RemovesEverything", testForget},
	{"Forget/Errors", testForgetErrors},
	{"ReadOnly/ReadsAndRefuses", testReadOnly},
}

func testReopen(s *suite) {
	opened := s.open()
	c := s.collectionIn(opened, Pods())
	s.apply(c, store.Batch{
		Header: &store.Header{RV: "7", Complete: true, Indices: map[string]string{"node": "f"}},
		Ops:    []store.Op{Put("a", "1", byNode("", "n1")), Put("b", "2", byNode("", "n1"))},
	}, store.Batch{
		Ops:      []store.Op{{Key: "b", Depart: "u", Index: []store.IndexChange{byNode("n1", "")}}},
		Departed: []store.DepartedOp{{Key: "b", UID: "u", Attempts: 1}},
	})
	s.flush(c)
	before := Dump(s.T, c, "node")
	c = s.reopened(opened, Pods())
	after := Dump(s.T, c, "node")
	// Unlike Diff, this compares the time of the departed record too.
	if diff := cmp.Diff(before, after); diff != "" {
		s.Errorf("reopening changed it (-before +after):\n%s", diff)
	}
	s.wantTotals(c, after.Scanned)
	if rv := c.Durability().RV; rv != "7" {
		s.Errorf("Durability().RV after reopening: got %q, want 7", rv)
	}
	s.wantDurableTotals(c)
}

func testCloseFlushes(s *suite) {
	opened := s.open()
	c := s.collectionIn(opened, Pods())
	s.apply(c, ops(Put("a", "1")))
	c = s.reopened(opened, Pods())
	s.wantObjects(c, "a", "1")
}

func testReopenCollection(s *suite) {
	opened := s.open()
	c := s.collectionIn(opened, Pods())
	s.apply(c, ops(Put("a", "1")))
	if err := c.Close(); err != nil {
		s.Fatal(err)
	}
	c = s.collectionIn(opened, Pods())
	s.apply(c, ops(Put("b", "2")))
	s.settled(c, func() { s.wantObjects(c, "a", "1", "b", "2") })
}

func testInUse(s *suite) {
	opened := s.open()
	c := s.collectionIn(opened, Pods())
	if c.Identity() != Pods() {
		s.Errorf("Identity: got %v", c.Identity())
	}
	_, err := opened.Collection(Pods(), "second")
	if !errors.Is(err, store.ErrInUse) {
		s.Fatalf("second Collection: got %v, want ErrInUse", err)
	}
	for _, name := range []string{Pods().String(), owner, "second"} {
		if !strings.Contains(err.Error(), name) {
			s.Errorf("second Collection: %q does not name %q", err, name)
		}
	}
	s.collectionIn(opened, Deployments())
	if err := c.Close(); err != nil {
		s.Fatal(err)
	}
	again := s.collectionIn(opened, Pods())
	// Closing the first one again must not release the identity of the second.
	if err := c.Close(); err != nil {
		s.Errorf("second Close: %v", err)
	}
	if _, err := opened.Collection(Pods(), owner); !errors.Is(err, store.ErrInUse) {
		s.Errorf("Collection after a stale Close: got %v, want ErrInUse", err)
	}
	s.apply(again, ops(Put("a", "1")))
}

func testInvalidIdentity(s *suite) {
	opened := s.open()
	tooLong := Pods()
	tooLong.LabelSelector = strings.Repeat("x", store.MaxIdentityLength)
	for name, id := range map[string]store.Identity{"incomplete": {Version: "v1"}, "too long": tooLong} {
		if _, err := opened.Collection(id, owner); !errors.Is(err, store.ErrInvalidIdentity) {
			s.Errorf("%s: got %v, want ErrInvalidIdentity", name, err)
		}
	}
	longest := Pods()
	longest.LabelSelector = strings.Repeat("x", store.MaxIdentityLength-100)
	c := s.collectionIn(opened, longest)
	s.apply(c, ops(Put("a", "1", byNode("", "n1"))))
	s.settled(c, func() { s.wantNodes(c, "n1: a") })
}

func testSeparateCollections(s *suite) {
	opened := s.open()
	web, all := Pods(), Pods()
	web.Namespace = "web"
	a, b := s.collectionIn(opened, web), s.collectionIn(opened, all)
	s.apply(a, ops(Put("web/a", "1", byNode("", "n1"))))
	s.apply(b, ops(Put("web/a", "2", byNode("", "n2"))))
	s.settled(a, func() {
		s.wantObjects(a, "web/a", "1")
		s.wantNodes(a, "n1: web/a")
	})
	s.settled(b, func() { s.wantObjects(b, "web/a", "2") })
	s.apply(a, store.Batch{Clear: true})
	s.settled(b, func() { s.wantNodes(b, "n2: web/a") })
}

// wantClosed checks that c takes nothing any more.
func (s *suite) wantClosed(c store.Collection) {
	s.Helper()
	for name, err := range map[string]error{
		"Apply": c.Apply(ops(Put("late", "1"))),
		"Flush": c.Flush(s.Context()),
	} {
		if !errors.Is(err, store.ErrClosed) {
			s.Errorf("%s after Close: got %v, want ErrClosed", name, err)
		}
	}
	if err := c.Close(); err != nil {
		s.Errorf("Close after Close: %v", err)
	}
}

func testCloseCollection(s *suite) {
	c := s.collection()
	if err := c.Close(); err != nil {
		s.Fatal(err)
	}
	s.wantClosed(c)
}

// testReadAfterClose reads through a collection that is closed, until the store is:
// what it had, what another opening has made of it, and nothing once it is forgotten.
func testReadAfterClose(s *suite) {
	opened := s.open()
	c := s.collectionIn(opened, Pods())
	s.apply(c, ops(Put("a", "1")))
	if err := c.Close(); err != nil {
		s.Fatal(err)
	}
	s.wantObjects(c, "a", "1")
	again := s.collectionIn(opened, Pods())
	s.apply(again, ops(Put("b", "2")))
	s.flush(again)
	s.wantObjects(c, "a", "1", "b", "2")
	if err := errors.Join(again.Close(), opened.Forget(Pods())); err != nil {
		s.Fatal(err)
	}
	for _, closed := range []store.Collection{c, again} {
		s.wantObjects(closed)
	}
	if err := opened.Close(); err != nil {
		s.Fatal(err)
	}
	s.wantUnreadable(c)
}

func (s *suite) wantUnreadable(c store.Collection) {
	s.Helper()
	if err := c.View(func(store.Tx) error { return nil }); !errors.Is(err, store.ErrClosed) {
		s.Errorf("View after Close of the store: got %v, want ErrClosed", err)
	}
}

func testCloseStore(s *suite) {
	opened := s.open()
	c := s.collectionIn(opened, Pods())
	for range 2 {
		if err := opened.Close(); err != nil {
			s.Errorf("Close: %v", err)
		}
	}
	s.wantClosed(c)
	s.wantUnreadable(c)
	_, errCollection := opened.Collection(Pods(), owner)
	_, errInformers := opened.Informers()
	for name, err := range map[string]error{
		"Collection": errCollection, "Informers": errInformers, "Forget": opened.Forget(Pods()),
	} {
		if !errors.Is(err, store.ErrClosed) {
			s.Errorf("%s after Close: got %v, want ErrClosed", name, err)
		}
	}
}

// testCloseBesideEverything closes the store while it is read, written and
// flushed. Nothing may fail with anything but ErrClosed, and what a Flush has
// confirmed must be there afterwards.
func testCloseBesideEverything(s *suite) {
	opened := s.open()
	c := s.collectionIn(opened, Pods())
	s.apply(c, generation(0, 5))
	var group sync.WaitGroup
	busy := make(chan struct{}, 100)
	until := func(fn func() error) {
		group.Go(func() {
			var err error
			for err == nil {
				err = fn()
				select {
				case busy <- struct{}{}:
				default:
				}
			}
			if !errors.Is(err, store.ErrClosed) {
				s.Errorf("beside Close: got %v, want ErrClosed", err)
			}
		})
	}
	confirmed, n := 0, 0
	until(func() error {
		n++
		if err := c.Apply(generation(n, 5)); err != nil {
			return err
		}
		err := c.Flush(s.Context())
		if err == nil {
			confirmed = n
		}
		return err
	})
	until(func() error { _, err := readGeneration(c, 5); return err })
	until(func() error { _, err := opened.Informers(); return err })
	for range 20 {
		<-busy
	}
	if err := opened.Close(); err != nil {
		s.Errorf("Close: %v", err)
	}
	group.Wait()
	seen, err := readGeneration(s.collectionIn(s.open(), Pods()), 5)
	if err != nil || seen < confirmed {
		s.Errorf("reopened at generation %d (%v), but %d was flushed", seen, err, confirmed)
	}
}

func testDurability(s *suite) {
	c := s.collection()
	s.apply(c, store.Batch{Header: &store.Header{RV: "5"}, Ops: []store.Op{Put("a", "1")}})
	s.flush(c)
	d := c.Durability()
	if d.RV != "5" || d.Pending != 0 || d.Err != nil || d.Committed.IsZero() {
		s.Errorf("after Flush: %+v", d)
	}
	s.wantDurableTotals(c)
	s.apply(c, store.Batch{Ops: []store.Op{Put("a", "longer"), Put("b", "2")}})
	s.flush(c)
	s.wantDurableTotals(c)
	s.apply(c, store.Batch{Clear: true})
	s.flush(c)
	if rv := c.Durability().RV; rv != "" {
		s.Errorf("after a Clear that took the header: RV %q, want none", rv)
	}
	s.wantDurableTotals(c)
}

// wantDurableTotals compares what Durability says of the objects with what there
// is. Everything must have been flushed.
func (s *suite) wantDurableTotals(c store.Collection) {
	s.Helper()
	var want store.Totals
	err := c.View(func(tx store.Tx) (err error) {
		want, err = tx.Totals()
		return err
	})
	if got := c.Durability().Objects; err != nil || got != want {
		s.Errorf("Durability: objects %+v, %v, want %+v", got, err, want)
	}
}

func testFlushContext(s *suite) {
	c := s.collection()
	s.apply(c, ops(Put("a", "1")))
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	// An engine may be done before it looks at the context.
	if err := c.Flush(ctx); err != nil && !errors.Is(err, context.Canceled) {
		s.Errorf("Flush with an ended context: %v", err)
	}
	s.flush(c)
}

func testInformers(s *suite) {
	opened := s.open()
	if infos, err := opened.Informers(); err != nil || len(infos) != 0 {
		s.Errorf("empty store: %v, %v", infos, err)
	}
	pods, deployments := s.collectionIn(opened, Pods()), s.collectionIn(opened, Deployments())
	s.apply(pods,
		store.Batch{Header: &store.Header{RV: "5"}, Ops: []store.Op{Put("a", "1"), Put("b", "2")}},
		ops(store.Op{Key: "b", Depart: "u"}))
	s.apply(deployments, ops(Put("d", "1")))
	s.flush(pods)
	s.flush(deployments)
	if err := deployments.Close(); err != nil {
		s.Fatal(err)
	}
	var totals store.Totals
	totals.Add("a", Record("1"))
	want := store.Info{Identity: Pods(), Header: store.Header{RV: "5"}, Totals: totals, Departed: 1, InUse: true, Owner: owner}
	infos, err := opened.Informers()
	if err != nil || len(infos) != 2 {
		s.Fatalf("got %v, %v, want two", infos, err)
	}
	if infos[0].Identity != Deployments() || infos[0].InUse {
		s.Errorf("the first of two: %+v", infos[0])
	}
	if diff := cmp.Diff(want, infos[1]); diff != "" {
		s.Errorf("info (-want +got):\n%s", diff)
	}
}

func testForget(s *suite) {
	opened := s.open()
	c := s.collectionIn(opened, Pods())
	other := s.collectionIn(opened, Deployments())
	s.apply(other, ops(Put("d", "1")))
	s.apply(c, store.Batch{Header: &store.Header{RV: "5"}, Ops: []store.Op{Put("a", "1", byNode("", "n1")), Put("b", "1")}},
		ops(store.Op{Key: "b", Depart: "u"}))
	if err := errors.Join(c.Close(), opened.Forget(Pods())); err != nil {
		s.Fatal(err)
	}
	c = s.reopened(opened, Pods())
	if diff := Diff(Contents{}, Dump(s.T, c, "node")); diff != "" {
		s.Errorf("a forgotten collection is not empty:\n%s", diff)
	}
	s.apply(c, ops(Put("a", "1", byNode("", "n2"))))
	s.settled(c, func() { s.wantNodes(c, "n2: a") })
}

func testForgetErrors(s *suite) {
	opened := s.open()
	if err := opened.Forget(Pods()); !errors.Is(err, store.ErrNotFound) {
		s.Errorf("Forget of what is not there: got %v, want ErrNotFound", err)
	}
	c := s.collectionIn(opened, Pods())
	s.apply(c, ops(Put("a", "1")))
	if err := opened.Forget(Pods()); !errors.Is(err, store.ErrInUse) {
		s.Errorf("Forget of an open collection: got %v, want ErrInUse", err)
	}
	s.settled(c, func() { s.wantObjects(c, "a", "1") })
}

func testReadOnly(s *suite) {
	if s.OpenReadOnly == nil {
		s.Skip("this engine has no read-only mode")
	}
	opened := s.open()
	c := s.collectionIn(opened, Pods())
	s.apply(c, store.Batch{Header: &store.Header{RV: "5"}, Ops: []store.Op{Put("a", "1", byNode("", "n1"))}})
	s.flush(c)
	before := Dump(s.T, c, "node")
	if err := opened.Close(); err != nil {
		s.Fatal(err)
	}
	readOnly := s.OpenReadOnly(s.T)
	defer func() {
		if err := readOnly.Close(); err != nil {
			s.Errorf("Close: %v", err)
		}
	}()
	c = s.collectionIn(readOnly, Pods())
	if diff := Diff(before, Dump(s.T, c, "node")); diff != "" {
		s.Errorf("read-only (-want +got):\n%s", diff)
	}
	s.wantTotals(c, before.Scanned)
	if infos, err := readOnly.Informers(); err != nil || len(infos) != 1 {
		s.Errorf("Informers: %v, %v", infos, err)
	}
	for name, err := range map[string]error{
		"Apply": c.Apply(ops(Put("b", "1"))), "Forget": readOnly.Forget(Deployments()),
	} {
		if !errors.Is(err, store.ErrReadOnly) {
			s.Errorf("%s: got %v, want ErrReadOnly", name, err)
		}
	}
	if err := c.Flush(s.Context()); err != nil {
		s.Errorf("Flush with nothing to flush: %v", err)
	}
}
