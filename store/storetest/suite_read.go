package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/google/go-cmp/cmp"

	"github.com/warmcache/warmcache/store"
)

// readTests are about what a Tx shows.
var readTests = []conformanceTest{
	{"View/NotFound", testNotFound},
	{"View/ReturnsError", testViewError},
	{"View/KeyOrder", testKeyOrder},
	{"View/ScanFromAndStop", testScanFrom},
	{"View/IndexOrder", testIndexOrder},
	{"View/IndexFromAndStop", testIndexFrom},
	{"View/Snapshot", testSnapshot},
	{"View/AtomicUnderConcurrentApply", testAtomicViews},
	{"Totals/EqualScan", testTotals},
}

func (s *suite) view(c store.Collection, fn func(tx store.Tx) error) {
	s.Helper()
	if err := c.View(fn); err != nil {
		s.Fatalf("View: %v", err)
	}
}

func (s *suite) wantTotals(c store.Collection, want store.Totals) {
	s.Helper()
	s.view(c, func(tx store.Tx) error {
		got, err := tx.Totals()
		if got != want {
			s.Errorf("totals: got %+v, want %+v", got, want)
		}
		return err
	})
}

func testNotFound(s *suite) {
	c := s.collection()
	s.apply(c, ops(Put("a", "1"), Put("b", "2")), ops(store.Op{Key: "b"}))
	s.settled(c, func() {
		s.view(c, func(tx store.Tx) error {
			for _, key := range []string{"", "0", "aa", "b", "c"} {
				if value, err := tx.Get(key); !errors.Is(err, store.ErrNotFound) {
					s.Errorf("Get(%q): got %q, %v, want ErrNotFound", key, value, err)
				}
			}
			return nil
		})
		if got := Dump(s.T, c, "never-written").Indices; got != nil {
			s.Errorf("an index never written has values: %v", got)
		}
	})
}

func testViewError(s *suite) {
	c := s.collection()
	want := errors.New("mine")
	if err := c.View(func(store.Tx) error { return want }); !errors.Is(err, want) {
		s.Errorf("View: got %v, want the error of its function", err)
	}
}

// orderedKeys are in byte order, which is not the order of (namespace, name).
var orderedKeys = []string{"a", "a\x00", "a\x00\x01", "a\x00\xff", "a\x01", "a-b/x", "a/x", "a0/x", "ab/x", "b", "\xff", "\xff\xff"}

func testKeyOrder(s *suite) {
	c := s.collection()
	for i, n := range []int{5, 0, 9, 3, 11, 7, 1, 10, 2, 8, 4, 6} {
		s.apply(c, ops(Put(orderedKeys[n], "1")))
		if i%5 == 4 {
			s.flush(c)
		}
	}
	s.settled(c, func() {
		var got []string
		for _, o := range Dump(s.T, c).Objects {
			got = append(got, o.Key)
		}
		if diff := cmp.Diff(orderedKeys, got); diff != "" {
			s.Errorf("keys (-want +got):\n%s", diff)
		}
	})
}

func testScanFrom(s *suite) {
	c := s.collection()
	s.apply(c, ops(Put("b", "1"), Put("d", "1"), Put("e", "1")))
	s.flush(c)
	s.apply(c, ops(Put("a", "1"), Put("c", "1"), store.Op{Key: "d"}))
	s.settled(c, func() {
		for from, want := range map[string][]string{
			"": {"a", "b", "c"}, "a": {"a", "b", "c"}, "a\x00": {"b", "c", "e"}, "c": {"c", "e"}, "d": {"e"}, "f": nil,
		} {
			var got []string
			s.view(c, func(tx store.Tx) error {
				return tx.Scan(from, func(key, _ []byte) bool {
					got = append(got, string(key))
					return len(got) < 3
				})
			})
			if diff := cmp.Diff(want, got); diff != "" {
				s.Errorf("Scan(%q) (-want +got):\n%s", from, diff)
			}
		}
	})
}

func testIndexOrder(s *suite) {
	c := s.collection()
	var want []IndexValue
	for i, value := range append([]string{""}, orderedKeys...) {
		for j, key := range orderedKeys {
			s.apply(c, ops(Put(key, "1", store.IndexChange{Name: "x", Add: []string{value}})))
			if (i*7+j)%40 == 39 {
				s.flush(c)
			}
		}
		want = append(want, IndexValue{value, orderedKeys})
	}
	s.settled(c, func() {
		if diff := cmp.Diff(want, Dump(s.T, c, "x").Indices["x"]); diff != "" {
			s.Errorf("index (-want +got):\n%s", diff)
		}
	})
}

func testIndexFrom(s *suite) {
	c := s.collection()
	s.apply(c, ops(Put("a", "1", byNode("", "n1")), Put("b", "1", byNode("", "n1")), Put("c", "1", byNode("", "n2"))))
	s.flush(c)
	s.apply(c, ops(Put("aa", "1", byNode("", "n1")), Put("c", "1", byNode("n2", "n3")), Put("d", "1", byNode("", "n0"))))
	s.settled(c, func() {
		var keys, values []string
		s.view(c, func(tx store.Tx) error {
			collect := func(into *[]string) func([]byte) bool {
				return func(b []byte) bool {
					*into = append(*into, string(b))
					return len(*into) < 2
				}
			}
			return errors.Join(
				tx.IndexKeys("node", "n1", "a\x00", collect(&keys)),
				tx.IndexValues("node", "n00", collect(&values)))
		})
		if want := []string{"aa", "b"}; !slices.Equal(keys, want) {
			s.Errorf("IndexKeys: got %q, want %q", keys, want)
		}
		if want := []string{"n1", "n3"}; !slices.Equal(values, want) {
			s.Errorf("IndexValues: got %q, want %q", values, want)
		}
	})
}

// testSnapshot applies and flushes while a View is open. The View must not see
// it; whether Apply waits for the View is the engine's choice.
func testSnapshot(s *suite) {
	c := s.collection()
	s.apply(c, ops(Put("a", "1", byNode("", "n1")), Put("b", "1")))
	s.flush(c)
	s.apply(c, ops(Put("b", "2")))
	var before, after Contents
	var writer sync.WaitGroup
	s.view(c, func(tx store.Tx) (err error) {
		if before, err = DumpTx(tx, "node"); err != nil {
			return err
		}
		started := make(chan struct{})
		writer.Go(func() {
			close(started)
			err := c.Apply(store.Batch{Clear: true, Ops: []store.Op{Put("c", "3", byNode("", "n3"))}})
			if err := errors.Join(err, c.Flush(s.Context())); err != nil {
				s.Errorf("Apply and Flush beside a View: %v", err)
			}
		})
		<-started
		after, err = DumpTx(tx, "node")
		return err
	})
	writer.Wait()
	if diff := Diff(before, after); diff != "" {
		s.Errorf("a View changed (-before +after):\n%s", diff)
	}
	s.wantObjects(c, "c", "3")
}

// testAtomicViews lets one goroutine write generations, each in one batch, and
// others check that they never see parts of two.
func testAtomicViews(s *suite) {
	const keys, generations, readers = 20, 60, 4
	c := s.collection()
	s.apply(c, generation(0, keys))
	done := make(chan struct{})
	var group sync.WaitGroup
	for range readers {
		group.Go(func() {
			for last := 0; last < generations; {
				select {
				case <-done:
					return
				default:
				}
				seen, err := readGeneration(c, keys)
				if err == nil && seen < last {
					err = fmt.Errorf("generation %d after %d", seen, last)
				}
				if err != nil {
					s.Error(err)
					return
				}
				last = seen
			}
		})
	}
	for n := 1; n <= generations; n++ {
		s.apply(c, generation(n, keys))
		if n%10 == 0 {
			s.flush(c)
		}
	}
	close(done)
	group.Wait()
}

// generation is a batch that writes n into the header, all objects, and the
// index.
func generation(n, keys int) store.Batch {
	b := store.Batch{Header: &store.Header{RV: fmt.Sprint(n)}}
	for i := range keys {
		b.Ops = append(b.Ops, Put(fmt.Sprintf("key-%02d", i), fmt.Sprint(n), byNode(fmt.Sprint(n-1), fmt.Sprint(n))))
	}
	return b
}

func readGeneration(c store.Collection, keys int) (int, error) {
	var contents Contents
	err := c.View(func(tx store.Tx) (err error) {
		contents, err = DumpTx(tx, "node")
		return err
	})
	if err != nil {
		return 0, err
	}
	rv := contents.Header.RV
	for _, o := range contents.Objects {
		if o.Value != string(Record(rv)) {
			return 0, fmt.Errorf("header of generation %s, object %s has %q", rv, o.Key, o.Value)
		}
	}
	index := contents.Indices["node"]
	if len(contents.Objects) != keys || len(index) != 1 || index[0].Value != rv || len(index[0].Keys) != keys {
		return 0, fmt.Errorf("generation %s is mixed with another: %d objects, index %v", rv, len(contents.Objects), index)
	}
	var n int
	_, err = fmt.Sscan(rv, &n)
	return n, err
}

func testTotals(s *suite) {
	c := s.collection()
	s.wantTotals(c, store.Totals{})
	s.apply(c, ops(Put("a", "1"), Put("b", "22"), Put("a", "333")))
	s.flush(c)
	s.wantTotals(c, Dump(s.T, c).Scanned)
	// Also of what has not been committed.
	s.apply(c, ops(Put("a", "55555"), Put("d", "1"), store.Op{Key: "b"}))
	s.wantTotals(c, Dump(s.T, c).Scanned)
	s.apply(c, ops(Put("a", "4444"), Put("c", "1"), store.Op{Key: "b"}, store.Op{Key: "c"}, store.Op{Key: "never"}))
	s.wantTotals(c, Dump(s.T, c).Scanned)
	s.flush(c)
	s.wantTotals(c, Dump(s.T, c).Scanned)
	s.apply(c, ops(Put("e", "1")), store.Batch{Clear: true, Ops: []store.Op{Put("a", "1")}})
	s.wantTotals(c, Dump(s.T, c).Scanned)
	s.flush(c)
	s.wantTotals(c, Dump(s.T, c).Scanned)
}
