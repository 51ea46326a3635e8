package bolt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
	"github.com/warmcache/warmcache/store/storetest"
)

// TestCheck_CleanMeansUnchanged damages a file at random. Check ends, and a file
// in which it finds nothing has what was written, index entries included.
func TestCheck_CleanMeansUnchanged(t *testing.T) {
	file, want := sample(t)
	random := newRand(t)
	path := filepath.Join(t.TempDir(), "cache.db")
	rounds, clean := 400, 0
	if testing.Short() {
		rounds = 60
	}
	for range rounds {
		damaged := bytes.Clone(file)
		at := random.IntN(len(file))
		var what string
		switch random.IntN(6) {
		case 0:
			damaged = damaged[:at]
			what = fmt.Sprintf("cut to %d bytes", at)
		case 1:
			from, to := random.IntN(len(file)/4096)*4096, at/4096*4096
			copy(damaged[to:to+4096], file[from:from+4096])
			what = fmt.Sprintf("page %d written to page %d", from/4096, to/4096)
		case 2:
			n := min(1+random.IntN(600), len(file)-at)
			clear(damaged[at : at+n])
			what = fmt.Sprintf("%d bytes of zeros at %d", n, at)
		default:
			// Half of them in page headers.
			if random.IntN(2) == 0 {
				at = at/4096*4096 + random.IntN(80)
			}
			bit := random.IntN(8)
			damaged[at] ^= 1 << bit
			what = fmt.Sprintf("bit %d of byte %d flipped", bit, at)
		}
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		report, err := bolt.Check(t.Context(), path, bolt.CheckOptions{})
		if err != nil {
			if !strings.Contains(err.Error(), "not a warmcache file") {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		if report.Problems == 0 {
			clean++
			checkUnchanged(t, what, path, want)
		}
	}
	t.Logf("%d damaged files, %d of which were clean", rounds, clean)
}

// checkUnchanged compares what is in a file with what was after one of the last
// commits: a damaged meta page looks like a torn one.
func checkUnchanged(t *testing.T, what, path string, want []storetest.Contents) {
	t.Helper()
	db, err := bolt.OpenReadOnly(path, bolt.Options{})
	if err != nil {
		t.Errorf("%s: clean, but: %v", what, err)
		return
	}
	got := storetest.Dump(t, collection(t, db), "node")
	if err := db.Close(); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	same := func(want storetest.Contents) bool { return storetest.Diff(want, got) == "" }
	if !slices.ContainsFunc(want, same) {
		t.Errorf("%s: clean, but changed:\n%s", what, storetest.Diff(want[len(want)-1], got))
	}
}

// TestDB_Check_WhileWriting checks snapshots of a file that is written to all the
// time.
func TestDB_Check_WhileWriting(t *testing.T) {
	db := open(t, busy)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i, id := range []store.Identity{storetest.Pods(), storetest.Deployments()} {
		c, err := db.Collection(id, "test")
		if err != nil {
			t.Fatal(err)
		}
		for j := range 300 {
			apply(t, c, storetest.Put(fmt.Sprintf("ns/%d", j), strings.Repeat("x", 3000)))
		}
		generator := storetest.NewGenerator(uint64(i))
		wg.Go(func() {
			for ctx.Err() == nil {
				b := generator.Batch()
				for j := range b.Ops {
					if b.Ops[j].Value != nil {
						b.Ops[j].Value = storetest.Record(strings.Repeat("x", 2000*j))
					}
				}
				if err := c.Apply(b); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 200 {
		report, err := db.Check(t.Context(), bolt.CheckOptions{Found: func(p bolt.Problem) bool { t.Error(p); return true }})
		if err != nil || t.Failed() {
			t.Errorf("%+v, %v", report, err)
			break
		}
	}
	cancel()
	wg.Wait()
}

// TestDB_Check_Truncated checks a file that is cut while it is open.
func TestDB_Check_Truncated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := collection(t, db)
	for i := range 300 {
		apply(t, c, storetest.Put(fmt.Sprint(i), strings.Repeat("x", 4000)))
	}
	if err := c.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	cut := false
	report, err := db.Check(t.Context(), bolt.CheckOptions{Progress: func(done, _ int64) {
		if !cut {
			cut = true
			if err := os.Truncate(path, done*4096); err != nil {
				t.Error(err)
			}
		}
	}})
	if err != nil || report.Problems == 0 || !cut {
		t.Errorf("%+v, %v", report, err)
	}
	if err := os.Truncate(path, 4*4096); err != nil {
		t.Fatal(err)
	}
	if report, err = db.Check(t.Context(), bolt.CheckOptions{}); err == nil && report.Problems == 0 {
		t.Error("nothing found in four pages")
	}
	_ = db.Close() // damaged, as the test wants it
}

func TestDB_Check_Ends(t *testing.T) {
	db := open(t, bolt.Options{})
	c := collection(t, db)
	for i := range 300 {
		apply(t, c, storetest.Put(fmt.Sprint(i), strings.Repeat("x", 4000)))
	}
	if err := c.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := db.Check(ctx, bolt.CheckOptions{Progress: func(_, _ int64) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("with its context: %v", err)
	}
	closed := make(chan error)
	_, err = db.Check(t.Context(), bolt.CheckOptions{Progress: func(_, _ int64) {
		if closed != nil {
			done := closed
			closed = nil
			go func() { done <- db.Close() }()
			for !db.Closed() {
				time.Sleep(time.Millisecond) //hygiene:allow time.Sleep: Close has set it when it waits for the check
			}
			t.Cleanup(func() {
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		}
	}})
	if !errors.Is(err, store.ErrClosed) {
		t.Errorf("with Close: %v", err)
	}
	if _, err = db.Check(t.Context(), bolt.CheckOptions{}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestCheck_Hooks checks what the functions of CheckOptions are called with.
func TestCheck_Hooks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	db := bolttest.Open(t, path, bolt.Options{})
	c := collection(t, db)
	apply(t, c, storetest.Put("a", "1"), storetest.Put("b", "2"), storetest.Put("c", "3"))
	apply(t, c, store.Op{Key: "b", Depart: "uid"})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	var records, found []string
	var done, total int64
	broken := errors.New("cannot be decoded")
	report, err := bolt.Check(t.Context(), path, bolt.CheckOptions{
		Record: func(id store.Identity, key string, sealed []byte) error {
			if content, err := store.Unseal(sealed); err != nil || id != storetest.Pods() {
				t.Errorf("%s, %s: %v", id, key, err)
			} else {
				records = append(records, key+string(content))
			}
			if key == "a" {
				return nil
			}
			return broken
		},
		Found: func(p bolt.Problem) bool {
			found = append(found, p.String())
			return errors.Is(p, broken) && errors.Is(p, store.ErrCorrupt) && p.Collection == storetest.Pods()
		},
		Progress: func(d, t int64) { done, total = d, t },
	})
	if err != nil || !slices.Equal(records, []string{"a1", "c3", "b2"}) || len(found) != 2 || report.Problems != 2 {
		t.Errorf("%+v, %v, records %q, found %q", report, err, records, found)
	}
	if done != total || total != report.Pages-report.FreePages {
		t.Errorf("progress %d of %d in %+v", done, total, report)
	}
	if infos := report.Collections; len(infos) != 1 || infos[0].Identity != storetest.Pods() || infos[0].Totals.Count != 2 || infos[0].Departed != 1 {
		t.Errorf("collections %+v", infos)
	}
	stopped := 0
	report, err = bolt.Check(t.Context(), path, bolt.CheckOptions{
		Record: func(store.Identity, string, []byte) error { return broken },
		Found:  func(bolt.Problem) bool { stopped++; return false },
	})
	if err != nil || stopped != 1 || report.Problems != 1 {
		t.Errorf("stopped after %d: %+v, %v", stopped, report, err)
	}
}

func TestCheck_Locked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	db := bolttest.Open(t, path, bolt.Options{})
	var locked *bolt.LockedError
	if _, err := bolt.Check(t.Context(), path, bolt.CheckOptions{}); !errors.As(err, &locked) || locked.Owner.PID != os.Getpid() {
		t.Errorf("got %v, want a LockedError", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	reader, err := bolt.OpenReadOnly(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, check := range map[string]func() (bolt.CheckReport, error){
		"beside a reader": func() (bolt.CheckReport, error) { return bolt.Check(t.Context(), path, bolt.CheckOptions{}) },
		"of the reader":   func() (bolt.CheckReport, error) { return reader.Check(t.Context(), bolt.CheckOptions{}) },
	} {
		if report, err := check(); err != nil || report.Pages == 0 || report.Problems != 0 {
			t.Errorf("%s: %+v, %v", name, report, err)
		}
	}
	if err := reader.Close(); err != nil {
		t.Error(err)
	}
	if _, err := bolt.Check(t.Context(), path+"x", bolt.CheckOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of no file: %v", err)
	}
}

// TestIndexTotals_CommittedTwice commits index changes again after a commit that
// reached the disk and failed: bolttest finds totals that counted them twice.
func TestIndexTotals_CommittedTwice(t *testing.T) {
	failing := true
	db := open(t, bolt.FailAfterCommits(bolt.Options{FlushInterval: time.Hour}, func() error {
		if failing {
			return errors.New("failed after the fact")
		}
		return nil
	}))
	c := collection(t, db)
	index := func(remove, add string) store.IndexChange {
		return store.IndexChange{Name: "node", Remove: []string{remove}, Add: []string{add}}
	}
	for _, b := range []store.Batch{
		{Ops: []store.Op{storetest.Put("a", "1", index("", "x")), storetest.Put("b", "1", index("", "x"))}},
		{Ops: []store.Op{storetest.Put("a", "2", index("x", "y")), {Key: "b", Index: []store.IndexChange{index("x", "z")}}, storetest.Put("b", "2")}},
		{DropIndices: []string{"node"}, Index: []store.IndexOp{{Key: "a", Changes: []store.IndexChange{index("y", "w")}}}},
		{Clear: true, Ops: []store.Op{storetest.Put("a", "3", index("", "v"))}, Header: &store.Header{Indices: map[string]string{"node": "1"}}},
	} {
		if err := c.Apply(b); err != nil {
			t.Fatal(err)
		}
		failing = true
		if err := c.Flush(t.Context()); err == nil {
			t.Fatal("the commit did not fail")
		}
		failing = false
		if err := c.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if report, err := db.Check(t.Context(), bolt.CheckOptions{Found: func(p bolt.Problem) bool { t.Error(p); return true }}); err != nil {
			t.Errorf("%+v, %v", report, err)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	const objects = 20_000
	path := filepath.Join(b.TempDir(), "cache.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		b.Fatal(err)
	}
	fill(b, collection(b, db), objects)
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		report, err := bolt.Check(b.Context(), path, bolt.CheckOptions{})
		if err != nil || report.Problems > 0 {
			b.Fatalf("%+v, %v", report, err)
		}
		b.SetBytes((report.Pages - report.FreePages) * 4096)
	}
}

// TestDB_Check_InUse tells collections that are open from those that are not.
func TestDB_Check_InUse(t *testing.T) {
	db := open(t, bolt.Options{})
	for _, id := range []store.Identity{storetest.Pods(), storetest.Deployments()} {
		c, err := db.Collection(id, "test")
		if err != nil {
			t.Fatal(err)
		}
		apply(t, c, storetest.Put("a", "1"))
		flush(t, c)
		if id == storetest.Deployments() {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	report, err := db.Check(t.Context(), bolt.CheckOptions{})
	if err != nil || len(report.Collections) != 2 {
		t.Fatalf("%+v, %v", report, err)
	}
	for _, info := range report.Collections {
		if want := info.Identity == storetest.Pods(); info.InUse != want {
			t.Errorf("%s: in use %v, want %v", info.Identity, info.InUse, want)
		}
	}
}
