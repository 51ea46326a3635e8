package storetest

import (
	"errors"

	"github.com/warmcache/warmcache/store"
)

// lostTests are about damage that is found while the store is open.
var lostTests = []conformanceTest{
	{"Lost/EverythingUntilClear", testLost},
	{"Lost/BeginsAnewOnDisk", testLostReopen},
	{"Lost/Again", testLostAgain},
	{"Lost/CollectionOpenedAfterwards", testLostThenOpened},
	{"Lost/ClosedCollection", testLostClosed},
}

var errDamage = errors.New("a checksum does not hold")

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// twoCollections have one object each, one of them on the disk.
func (s *suite) twoCollections() (opened store.Store, pods, deployments store.Collection) {
	s.Helper()
	opened = s.open()
	pods, deployments = s.collectionIn(opened, Pods()), s.collectionIn(opened, Deployments())
	s.apply(pods, store.Batch{
		Header: &store.Header{RV: "7", Complete: true},
		Ops:    []store.Op{Put("a", "1", byNode("", "n1"))},
	}, store.Batch{Ops: []store.Op{{Key: "a", Depart: "u", Index: []store.IndexChange{byNode("n1", "")}}, Put("b", "2", byNode("", "n1"))}})
	s.flush(pods)
	s.apply(deployments, ops(Put("d", "1")))
	return opened, pods, deployments
}

func (s *suite) wantLost(c store.Collection) {
	s.Helper()
	if !isClosed(c.Lost()) {
		s.Error("Lost is not closed")
	}
	for what, err := range map[string]error{
		"View":       c.View(func(store.Tx) error { return nil }),
		"Apply":      c.Apply(ops(Put("x", "1"))),
		"Flush":      c.Flush(s.Context()),
		"Durability": c.Durability().Err,
	} {
		if !errors.Is(err, store.ErrCorrupt) {
			s.Errorf("%s: got %v, want ErrCorrupt", what, err)
		}
	}
	if rv := c.Durability().RV; rv != "" {
		s.Errorf("Durability says that %q is on the disk", rv)
	}
}

func testLost(s *suite) {
	opened, pods, deployments := s.twoCollections()
	if isClosed(pods.Lost()) || isClosed(deployments.Lost()) {
		s.Fatal("lost from the beginning")
	}
	pods.Quarantine(errDamage)
	s.wantLost(pods)
	s.wantLost(deployments)
	if n := opened.Status().Quarantines; n > 1 {
		s.Errorf("%d quarantines, want 1 at most", n)
	}

	s.apply(pods, store.Batch{Clear: true, Header: &store.Header{RV: "8"}, Ops: []store.Op{Put("c", "3")}})
	s.settled(pods, func() {
		s.wantObjects(pods, "c", "3")
		if got := Dump(s.T, pods, "node"); len(got.Departed)+len(got.Indices) > 0 || got.Header == nil || got.Header.RV != "8" {
			s.Errorf("after a Clear there is %+v", got)
		}
		if isClosed(pods.Lost()) {
			s.Error("still lost after a Clear")
		}
	})
	s.wantLost(deployments)
	s.apply(pods, ops(Put("e", "4")))
	s.settled(pods, func() { s.wantObjects(pods, "c", "3", "e", "4") })
	s.apply(deployments, store.Batch{Clear: true})
	s.settled(deployments, func() { s.wantObjects(deployments) })
}

func testLostReopen(s *suite) {
	opened, pods, deployments := s.twoCollections()
	pods.Quarantine(errDamage)
	for _, c := range []store.Collection{pods, deployments} {
		s.apply(c, store.Batch{Clear: true, Ops: []store.Op{Put("new", "1")}})
	}
	s.flush(deployments)
	if n := opened.Status().Quarantines; n != 1 {
		s.Errorf("%d quarantines, want 1", n)
	}
	pods = s.reopened(opened, Pods())
	s.wantObjects(pods, "new", "1")
}

func testLostAgain(s *suite) {
	_, pods, deployments := s.twoCollections()
	for range 3 {
		pods.Quarantine(errDamage)
		// One that has found the same damage a little later.
		deployments.Quarantine(errDamage)
		s.wantLost(pods)
		for _, c := range []store.Collection{pods, deployments} {
			s.apply(c, store.Batch{Clear: true, Ops: []store.Op{Put("new", "1")}})
			s.wantObjects(c, "new", "1")
		}
	}
}

func testLostThenOpened(s *suite) {
	opened, pods, deployments := s.twoCollections()
	if err := deployments.Close(); err != nil {
		s.Fatal(err)
	}
	pods.Quarantine(errDamage)
	deployments = s.collectionIn(opened, Deployments())
	s.wantObjects(deployments)
	s.apply(deployments, ops(Put("new", "1")))
	s.settled(deployments, func() { s.wantObjects(deployments, "new", "1") })
	s.apply(pods, store.Batch{Clear: true})
}

// testLostClosed quarantines through a collection that is closed, which can still be
// read. It is lost for good, whatever another opening makes of the identity.
func testLostClosed(s *suite) {
	opened, pods, deployments := s.twoCollections()
	if err := pods.Close(); err != nil {
		s.Fatal(err)
	}
	pods.Quarantine(errDamage)
	s.wantLost(deployments)
	again := s.collectionIn(opened, Pods())
	s.apply(again, ops(Put("new", "1")))
	pods.Quarantine(errDamage)
	s.settled(again, func() { s.wantObjects(again, "new", "1") })
	if err := pods.View(func(store.Tx) error { return nil }); !errors.Is(err, store.ErrCorrupt) {
		s.Errorf("View of what is lost and closed: got %v, want ErrCorrupt", err)
	}
	if !isClosed(pods.Lost()) || !isClosed(pods.Verified()) {
		s.Error("Lost and Verified are not closed")
	}
	s.apply(deployments, store.Batch{Clear: true})
}
