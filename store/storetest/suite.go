package storetest

import (
	"testing"

	"github.com/warmcache/warmcache/store"
)

// Harness is one file of the engine under test, or its equivalent.
type Harness struct {
	// Open opens the file, which is empty at first, and fails the test if that
	// is not possible. The suite closes what it opened before it opens again.
	Open func(t testing.TB) store.Store
	// OpenReadOnly opens the file for reading while nobody else has it open.
	// Nil if the engine has no such mode.
	OpenReadOnly func(t testing.TB) store.Store
}

// Run checks that an engine keeps the contract of package store. It calls open
// for every test, which must return a harness of its own each time.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	for _, group := range [][]conformanceTest{batchTests, readTests, lifecycleTests, lostTests} {
		for _, test := range group {
			t.Run(test.name, func(t *testing.T) {
				test.run(&suite{T: t, Harness: open(t)})
			})
		}
	}
}

type conformanceTest struct {
	name string
	run  func(s *suite)
}

// suite is one running conformance test.
type suite struct {
	*testing.T
	Harness
}

// Pods is an identity for tests.
func Pods() store.Identity {
	return store.Identity{Version: "v1", Resource: "pods", Form: store.FormTyped}
}

// Deployments is another identity for tests.
func Deployments() store.Identity {
	return store.Identity{Group: "apps", Version: "v1", Resource: "deployments", Form: store.FormUnstructured}
}

// Record returns a sealed record with the given content.
func Record(content string) []byte { return store.Seal([]byte(content)) }

// Put is an op that writes Record(content).
func Put(key, content string, index ...store.IndexChange) store.Op {
	return store.Op{Key: key, Value: Record(content), Index: index}
}

// owner is for whom the suite opens collections.
const owner = "the conformance suite"

// open opens the store for the rest of the test and closes it at the end.
func (s *suite) open() store.Store {
	s.Helper()
	opened := s.Open(s.T)
	s.Cleanup(func() {
		if err := opened.Close(); err != nil {
			s.Errorf("Close: %v", err)
		}
	})
	return opened
}

// collection opens the store and one collection in it.
func (s *suite) collection() store.Collection {
	s.Helper()
	return s.collectionIn(s.open(), Pods())
}

func (s *suite) collectionIn(opened store.Store, id store.Identity) store.Collection {
	s.Helper()
	c, err := opened.Collection(id, owner)
	if err != nil {
		s.Fatalf("Collection(%s): %v", id, err)
	}
	return c
}

func (s *suite) apply(c store.Collection, batches ...store.Batch) {
	s.Helper()
	for _, b := range batches {
		if err := c.Apply(b); err != nil {
			s.Fatalf("Apply: %v", err)
		}
	}
}

func (s *suite) flush(c store.Collection) {
	s.Helper()
	if err := c.Flush(s.Context()); err != nil {
		s.Fatalf("Flush: %v", err)
	}
}

// settled runs check on what was applied, twice: before and after a commit.
// What is visible must not depend on it.
func (s *suite) settled(c store.Collection, check func()) {
	s.Helper()
	check()
	if s.Failed() {
		s.Fatal("the above was seen before Flush")
	}
	s.flush(c)
	check()
}

// reopened closes opened and returns the collection of a fresh Open.
func (s *suite) reopened(opened store.Store, id store.Identity) store.Collection {
	s.Helper()
	if err := opened.Close(); err != nil {
		s.Fatalf("Close: %v", err)
	}
	return s.collectionIn(s.open(), id)
}
