package crashtest

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
	"github.com/warmcache/warmcache/store/storetest"
)

const (
	// perEntry is more than an entry in memory is charged beyond its value: its
	// key, an index value, and overhead.
	perEntry = 128
	// departedLimit is small, to be reached soon.
	departedLimit = 64 << 10
	// deletions may wait before the engine looks which of them it needs.
	deletions = 1024
)

// TestDiskFull_MemoryIsBounded lets a full disk fail for as long as it takes to
// change everything many times over. What waits in memory is at most
//
//   - one entry for each object, and for each of its index entries, in what the
//     failing commit holds,
//   - the same again in what was applied since,
//   - DepartedBytes of departed records in each, and as much again for their
//     keys, and
//   - a thousand deletions of what is not in the file, and twice what is.
//
// It must not depend on how often objects change, come and go. When the disk has
// room again, all of it gets into the file.
func TestDiskFull_MemoryIsBounded(t *testing.T) {
	const objects, changes = 40, 12000
	for name, change := range map[string]func(w *world, n int){
		"few objects that change": func(w *world, n int) {
			w.put(configMaps, fmt.Sprintf("a/%d", n%objects), tiers[n%3])
		},
		"names that are never used again": func(w *world, n int) {
			w.put(configMaps, fmt.Sprintf("a/new-%d", n), "gold")
			w.remove(configMaps, fmt.Sprintf("a/new-%d", n))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := smallDisk(t)
			w := newWorld(t)
			for i := range objects {
				w.put(configMaps, fmt.Sprintf("a/%d", i), "gold")
			}
			path := filepath.Join(dir, "cache.db")
			db := bolttest.Open(t, path, bolt.Options{
				FlushInterval: time.Millisecond, MaxDirtyBytes: 16 << 10, DepartedBytes: departedLimit,
			})
			// Each change of an object is one of the index, to a value never seen.
			c := startController(t, w, db, newRecorder(), addValueIndex(t))
			persisted(t, c, w.now(specs[0])[fmt.Sprintf("a/%d", objects-1)].rv)
			empty := fill(t, dir)
			for i := range changes {
				change(w, i)
			}
			last := w.put(configMaps, "a/last", "gold")
			c.converge()
			pending := pendingBytes(t, c)

			empty()
			persisted(t, c, last.rv)
			infos, err := db.Informers()
			if err != nil || len(infos) != 1 || infos[0].Totals.Count != objects+1 {
				t.Fatalf("in the file: %+v, %v", infos, err)
			}
			const entries = 3 // the object, and one of each index
			limit := 2 * (infos[0].Totals.Bytes + infos[0].Totals.Count*entries*perEntry + 2*departedLimit)
			limit += deletions * perEntry
			if pending > limit {
				t.Errorf("%d bytes wait after %d changes, want at most %d", pending, changes, limit)
			}
			t.Logf("%d bytes wait after %d changes; the limit is %d", pending, changes, limit)
			c.stop()
		})
	}
}

// addValueIndex adds an index by what every version of an object has for itself.
func addValueIndex(t *testing.T) func(cache.SharedIndexInformer) {
	return func(inf cache.SharedIndexInformer) {
		err := inf.AddIndexers(cache.Indexers{indexName: func(obj any) ([]string, error) {
			return []string{versionOfAny(obj).value}, nil
		}})
		if err != nil {
			t.Error(err)
		}
	}
}

// pendingBytes is what waits for a disk that fails.
func pendingBytes(t *testing.T, c *controller) int64 {
	t.Helper()
	status, _ := informer.StatusOf(c.informer)
	if !errors.Is(status.Durability.Err, unix.ENOSPC) || status.Durability.Pending == 0 {
		t.Errorf("the disk is full, and the status says %+v", status.Durability)
	}
	return status.Durability.Pending
}

// TestDiskFull_AttemptsAreFewHoweverMuchIsApplied counts what a full disk costs:
// the time between attempts doubles to half a minute, although much more waits
// than starts a commit on a healthy disk.
func TestDiskFull_AttemptsAreFewHoweverMuchIsApplied(t *testing.T) {
	dir := smallDisk(t)
	synctest.Test(t, func(t *testing.T) {
		db := bolttest.Open(t, filepath.Join(dir, "cache.db"), bolt.Options{
			FlushInterval: time.Millisecond, MaxDirty: 10, MaxDirtyBytes: 1000,
		})
		c, err := db.Collection(storetest.Pods(), "test")
		if err != nil {
			t.Fatal(err)
		}
		empty := fill(t, dir)
		const ever = 20 * time.Minute
		for end := time.Now().Add(ever); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			var b store.Batch
			for i := range 20 {
				b.Ops = append(b.Ops, storetest.Put(fmt.Sprint("a/", i), fmt.Sprint(time.Now())))
			}
			if err := c.Apply(b); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		// Nine doublings lead to half a minute.
		most := int64(10 + ever/(30*time.Second))
		if got := db.Status().FailedCommits; got > most || got < most-5 {
			t.Errorf("%d attempts in %v, want about %d", got, ever, most)
		}
		if d := c.Durability(); !errors.Is(d.Err, unix.ENOSPC) || d.Pending == 0 {
			t.Errorf("the disk is full, and the state is %+v", d)
		}
		empty()
		time.Sleep(time.Minute)
		synctest.Wait()
		if d := c.Durability(); d.Err != nil || d.Pending != 0 {
			t.Errorf("the disk has room again, and the state is %+v", d)
		}
	})
}
