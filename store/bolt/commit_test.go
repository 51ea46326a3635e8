package bolt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
	"github.com/warmcache/warmcache/store/storetest"
)

// disk fails or delays commits.
type disk struct {
	err   atomic.Pointer[error]
	delay chan struct{}
	tries atomic.Int64
}

func (d *disk) fail(err error) { d.err.Store(&err) }

func (d *disk) heal() { d.err.Store(nil) }

func (d *disk) commit() error {
	d.tries.Add(1)
	if d.delay != nil {
		<-d.delay
	}
	if err := d.err.Load(); err != nil {
		return *err
	}
	return nil
}

func open(t testing.TB, o bolt.Options) *bolt.DB {
	t.Helper()
	return bolttest.Open(t, filepath.Join(t.TempDir(), "cache.db"), o)
}

func collection(t testing.TB, s store.Store) store.Collection {
	t.Helper()
	c, err := s.Collection(storetest.Pods(), "test")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func apply(t testing.TB, c store.Collection, ops ...store.Op) {
	t.Helper()
	if err := c.Apply(store.Batch{Ops: ops}); err != nil {
		t.Fatal(err)
	}
}

func logTo(b io.Writer) *klog.Logger {
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(b)))
	return &logger
}

func TestCommitter_FlushInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := collection(t, open(t, bolt.Options{FlushInterval: time.Minute}))
		apply(t, c, storetest.Put("a", "1"))
		time.Sleep(time.Minute - time.Second)
		apply(t, c, storetest.Put("b", "1"))
		synctest.Wait()
		if d := c.Durability(); d.Pending == 0 || !d.Committed.IsZero() {
			t.Errorf("committed before the interval ended: %+v", d)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if d := c.Durability(); d.Pending != 0 || d.Committed.IsZero() {
			t.Errorf("the interval of the oldest change has ended: %+v", d)
		}
	})
}

func TestCommitter_CountAndBytes(t *testing.T) {
	for name, c := range map[string]struct {
		options bolt.Options
		size    int
	}{
		"count": {bolt.Options{FlushInterval: time.Hour, MaxDirty: 3}, 1},
		"bytes": {bolt.Options{FlushInterval: time.Hour, MaxDirtyBytes: 3000}, 950},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				coll := collection(t, open(t, c.options))
				content := strings.Repeat("x", c.size)
				apply(t, coll, storetest.Put("a", content), storetest.Put("b", content))
				synctest.Wait()
				if d := coll.Durability(); d.Pending == 0 {
					t.Errorf("committed too early: %+v", d)
				}
				// Overwriting does not count twice.
				apply(t, coll, storetest.Put("a", content))
				synctest.Wait()
				if d := coll.Durability(); d.Pending == 0 {
					t.Errorf("an overwritten change counts twice: %+v", d)
				}
				apply(t, coll, storetest.Put("c", content))
				synctest.Wait()
				if d := coll.Durability(); d.Pending != 0 {
					t.Errorf("not committed: %+v", d)
				}
			})
		})
	}
}

func TestCommitter_GroupsCollections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		db := open(t, bolt.FailCommits(bolt.Options{}, d.commit))
		for i := range 10 {
			id := storetest.Pods()
			id.Namespace = fmt.Sprint(i)
			c, err := db.Collection(id, "test")
			if err != nil {
				t.Fatal(err)
			}
			apply(t, c, storetest.Put("a", "1"))
		}
		time.Sleep(bolt.DefaultFlushInterval)
		synctest.Wait()
		if got := d.tries.Load(); got != 1 {
			t.Errorf("10 collections took %d commits, want 1", got)
		}
	})
}

// TestApply_BlocksOnSlowDiskOnly checks both sides of back-pressure: a list is
// not kept in memory while a healthy disk is slow, and a failing disk blocks
// nobody.
func TestApply_BlocksOnSlowDiskOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{delay: make(chan struct{})}
		const limit = 10_000
		c := collection(t, open(t, bolt.FailCommits(bolt.Options{MaxDirtyBytes: limit}, d.commit)))
		var applied atomic.Int64
		var group sync.WaitGroup
		group.Go(func() {
			for i := range 100 {
				apply(t, c, storetest.Put(fmt.Sprint(i), strings.Repeat("x", 1000)))
				applied.Add(1)
			}
		})
		synctest.Wait()
		if n := applied.Load(); n < 30 || n > 50 {
			t.Errorf("%d objects were taken while the disk hangs, want about 4 times %d bytes", n, limit)
		}
		d.fail(errors.New("disk full"))
		close(d.delay)
		group.Wait()
		if d := c.Durability(); d.Pending < 100_000 || d.Err == nil {
			t.Errorf("with a failing disk: %+v", d)
		}
		d.heal()
		if err := c.Flush(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestCommitter_FailingDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := &disk{}
		c := collection(t, open(t, bolt.FailCommits(bolt.Options{Logger: logTo(&log)}, d.commit)))
		if err := c.Apply(store.Batch{Header: &store.Header{RV: "1"}, Ops: []store.Op{storetest.Put("a", "1")}}); err != nil {
			t.Fatal(err)
		}
		if err := c.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		full := errors.New("no space left")
		d.fail(full)
		for i := range 5 {
			err := c.Apply(store.Batch{Header: &store.Header{RV: fmt.Sprint(i + 2)}, Ops: []store.Op{storetest.Put("a", fmt.Sprint(i))}})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Flush(t.Context()); !errors.Is(err, full) {
				t.Errorf("Flush: got %v, want the error of the commit", err)
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := d.tries.Load(); got > 200 {
			t.Errorf("%d attempts in an hour: no backoff", got)
		}
		if got := c.Durability(); !errors.Is(got.Err, full) || got.RV != "1" || got.Pending == 0 {
			t.Errorf("durability: %+v", got)
		}
		if got := storetest.Dump(t, c); got.Objects[0].Value != string(storetest.Record("4")) || got.Header.RV != "6" {
			t.Errorf("reads do not go on from memory: %+v", got)
		}
		d.heal()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := c.Durability(); got.Err != nil || got.RV != "6" || got.Pending != 0 {
			t.Errorf("did not heal: %+v", got)
		}
		if n := strings.Count(log.String(), "Cannot write"); n != 1 {
			t.Errorf("logged the failure %d times, want once:\n%s", n, log.String())
		}
		if n := strings.Count(log.String(), "can be written again"); n != 1 {
			t.Errorf("logged the recovery %d times, want once:\n%s", n, log.String())
		}
	})
}

// TestCommitter_ApplyWhileCommitting changes everything that a commit is writing.
func TestCommitter_ApplyWhileCommitting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{delay: make(chan struct{}, 1)}
		c := collection(t, open(t, bolt.FailCommits(bolt.Options{}, d.commit)))
		put := func(key, content, node string) store.Op {
			return storetest.Put(key, content, store.IndexChange{Name: "node", Remove: []string{"n1"}, Add: []string{node}})
		}
		apply(t, c, put("a", "1", "n1"), put("b", "1", "n1"), put("c", "1", "n1"))
		time.Sleep(bolt.DefaultFlushInterval)
		synctest.Wait()
		if n := d.tries.Load(); n != 1 {
			t.Fatalf("%d commits are under way, want 1", n)
		}
		err := c.Apply(store.Batch{
			Header: &store.Header{RV: "2"},
			Ops: []store.Op{
				put("a", "2", "n2"),
				{Key: "b", Depart: "uid", Index: []store.IndexChange{{Name: "node", Remove: []string{"n1"}}}},
				put("d", "2", "n1"),
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		meanwhile := storetest.Dump(t, c, "node")
		want := storetest.Contents{
			Header: &store.Header{RV: "2"},
			Objects: []storetest.Entry{
				{Key: "a", Value: string(storetest.Record("2"))},
				{Key: "c", Value: string(storetest.Record("1"))},
				{Key: "d", Value: string(storetest.Record("2"))},
			},
			Indices:  map[string][]storetest.IndexValue{"node": {{Value: "n1", Keys: []string{"c", "d"}}, {Value: "n2", Keys: []string{"a"}}}},
			Departed: []store.Departed{{Key: "b", UID: "uid", Value: storetest.Record("1")}},
			Scanned:  meanwhile.Scanned,
		}
		if diff := storetest.Diff(want, meanwhile); diff != "" {
			t.Errorf("while the commit is under way (-want +got):\n%s", diff)
		}
		close(d.delay)
		if err := c.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := storetest.Diff(want, storetest.Dump(t, c, "node")); diff != "" {
			t.Errorf("after two commits (-want +got):\n%s", diff)
		}
	})
}

// TestCommitter_ErrorAfterTheFact fails commits that have reached the disk. To
// write a batch again must change nothing.
func TestCommitter_ErrorAfterTheFact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		c := collection(t, open(t, bolt.FailAfterCommits(bolt.Options{}, d.commit)))
		apply(t, c, storetest.Put("a", "1"), storetest.Put("b", "1"), storetest.Put("c", "1"))
		if err := c.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.fail(errors.New("EIO"))
		if err := c.Apply(store.Batch{Ops: []store.Op{storetest.Put("a", "22"), {Key: "b", Depart: "uid"}}}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := c.Flush(t.Context()); err == nil {
				t.Error("Flush hides the error")
			}
		}
		// What is applied meanwhile overtakes nothing.
		apply(t, c, storetest.Put("a", "333"), store.Op{Key: "c", Depart: "uid"})
		d.heal()
		if err := c.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := storetest.Dump(t, c)
		if len(got.Objects) != 1 || got.Objects[0].Value != string(storetest.Record("333")) || len(got.Departed) != 2 {
			t.Errorf("contents: %+v", got)
		}
		if err := c.View(func(tx store.Tx) error {
			totals, err := tx.Totals()
			if totals != got.Scanned {
				t.Errorf("totals: got %+v, want %+v", totals, got.Scanned)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	})
}

func TestCollection_Close_OnFailingDiskLosesNothing(t *testing.T) {
	d := &disk{}
	db := open(t, bolt.FailCommits(bolt.Options{}, d.commit))
	c := collection(t, db)
	d.fail(errors.New("EIO"))
	apply(t, c, storetest.Put("a", "1"))
	if err := c.Close(); err == nil {
		t.Error("Close says that everything is on disk")
	}
	c = collection(t, db)
	if got := storetest.Dump(t, c).Objects; len(got) != 1 {
		t.Errorf("opened again: %v", got)
	}
	d.heal()
	if err := c.Flush(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestDB_Close_SaysWhatIsLost(t *testing.T) {
	d := &disk{}
	path := filepath.Join(t.TempDir(), "cache.db")
	db, err := bolt.Open(path, bolt.FailCommits(bolt.Options{}, d.commit))
	if err != nil {
		t.Fatal(err)
	}
	c := collection(t, db)
	full := errors.New("no space left")
	d.fail(full)
	apply(t, c, storetest.Put("a", "1"))
	if err := db.Close(); !errors.Is(err, full) {
		t.Errorf("Close: got %v", err)
	}
	if err := db.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	bolttest.CheckFile(t, path)
}

func TestDB_Forget_WhatWaitsOnAFailingDisk(t *testing.T) {
	d := &disk{}
	db := open(t, bolt.FailCommits(bolt.Options{}, d.commit))
	c := collection(t, db)
	apply(t, c, storetest.Put("a", "1"))
	d.fail(errors.New("EIO"))
	if err := c.Close(); err == nil {
		t.Error("Close says that everything is on disk")
	}
	if err := db.Forget(storetest.Pods()); err == nil {
		t.Error("Forget says that it is durable")
	}
	if got := storetest.Dump(t, collection(t, db)).Objects; len(got) != 1 {
		t.Errorf("a Forget that failed removed the objects: %v", got)
	}
	d.heal()
}

func TestFlush_ContextEndsWhileTheDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{delay: make(chan struct{})}
		c := collection(t, open(t, bolt.FailCommits(bolt.Options{}, d.commit)))
		apply(t, c, storetest.Put("a", "1"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want DeadlineExceeded", err)
		}
		close(d.delay)
	})
}

// TestDeparted_Limit checks the limit twice: on a failing disk, where overlays
// grow, and in the file.
func TestDeparted_Limit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, size = 10_000, 1000
		d := &disk{}
		c := collection(t, open(t, bolt.FailCommits(bolt.Options{DepartedBytes: limit}, d.commit)))
		depart := func(i int) {
			time.Sleep(time.Millisecond)
			key := fmt.Sprintf("%03d", i)
			apply(t, c, storetest.Put(key, strings.Repeat("x", size)), store.Op{Key: key, Depart: "uid"})
		}
		check := func(newest int) {
			t.Helper()
			departed := storetest.Dump(t, c).Departed
			if n := len(departed); n < 5 || n > 10 {
				t.Fatalf("%d departed records of %d bytes are kept, want those that fit into %d", n, size, limit)
			}
			for i, record := range departed {
				if want := fmt.Sprintf("%03d", newest-len(departed)+1+i); record.Key != want {
					t.Errorf("kept %s, want the newest, %s", record.Key, want)
				}
			}
		}
		d.fail(errors.New("EIO"))
		for i := range 50 {
			depart(i)
		}
		check(49)
		d.heal()
		if err := c.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		check(49)
		for i := 50; i < 60; i++ {
			depart(i)
			if err := c.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		check(59)
	})
}

// TestDeparted_Limit_IsNotLoggedEachTime checks that the log names all records that
// were dropped, and not at every batch.
func TestDeparted_Limit_IsNotLoggedEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c := collection(t, open(t, bolt.Options{DepartedBytes: 10_000, Logger: logTo(&log)}))
		for i := range 1200 { // 20 minutes
			key := fmt.Sprintf("%04d", i)
			apply(t, c, storetest.Put(key, strings.Repeat("x", 1000)), store.Op{Key: key, Depart: "uid"})
			if err := c.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		dropped := 0
		lines := regexp.MustCompile(`"Warning: dropped .* dropped=(\d+)`).FindAllStringSubmatch(log.String(), -1)
		for _, line := range lines {
			n, err := strconv.Atoi(line[1])
			if err != nil {
				t.Fatal(err)
			}
			dropped += n
		}
		if len(lines) != 2 || dropped < 500 || dropped > 700 {
			t.Errorf("%d records dropped in %d lines, want about 600 in 2:\n%s", dropped, len(lines), log.String())
		}
	})
}

// TestCommitter_Times checks that a commit counts as what it took, once it has
// succeeded.
func TestCommitter_Times(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{delay: make(chan struct{})}
		db := open(t, bolt.FailCommits(bolt.Options{}, d.commit))
		c := collection(t, db)
		commit := func(takes time.Duration) {
			apply(t, c, storetest.Put("a", takes.String()))
			time.AfterFunc(takes, func() { d.delay <- struct{}{} })
			_ = c.Flush(t.Context()) // the status tells
		}
		commit(2 * time.Millisecond)
		commit(4 * time.Second)
		d.fail(errors.New("EIO"))
		commit(time.Second)
		times := db.Status().CommitTimes
		counts := map[time.Duration]int64{}
		for bound, n := range times.AtMost() {
			counts[bound] = n
		}
		if times.Count != 2 || times.Total != 4*time.Second+2*time.Millisecond ||
			counts[time.Millisecond] != 0 || counts[3*time.Millisecond] != 1 || counts[3*time.Second] != 1 || counts[10*time.Second] != 2 {
			t.Errorf("%d commits in %s, %v", times.Count, times.Total, counts)
		}
		d.heal()
		close(d.delay)
	})
}

// TestView_WhileTheFileGrows writes far more than bbolt maps by default, and
// flushes it, while a View is open and others begin inside of it. With a mapping
// that has to grow, the first commit waits for the View and every new View for
// the commit.
func TestView_WhileTheFileGrows(t *testing.T) {
	c := collection(t, open(t, bolt.Options{}))
	apply(t, c, storetest.Put("a", "1"))
	if err := c.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	view := func(fn func(store.Tx) error) {
		if err := c.View(fn); err != nil {
			t.Error(err)
		}
	}
	view(func(tx store.Tx) error {
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				apply(t, c, storetest.Put(fmt.Sprint("big-", i), strings.Repeat("x", 4<<20)))
				if err := c.Flush(ctx); err != nil {
					t.Errorf("Flush inside a View: %v", err)
				}
			})
			group.Go(func() { view(func(tx store.Tx) error { _, err := tx.Get("a"); return err }) })
		}
		group.Wait()
		if contents, err := storetest.DumpTx(tx); err != nil || len(contents.Objects) != 1 {
			t.Errorf("the View sees %d objects, %v", len(contents.Objects), err)
		}
		return nil
	})
	if got := storetest.Dump(t, c).Scanned.Count; got != 9 {
		t.Errorf("%d objects, want 9", got)
	}
}
