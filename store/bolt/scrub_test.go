package bolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
	"github.com/warmcache/warmcache/store/storetest"
)

// awaitScrub waits until the condition holds for what the scrub has done.
func awaitScrub(t *testing.T, db *bolt.DB, what string, condition func(store.ScrubStatus) bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for !condition(db.Status().Scrub) {
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("waited too long for %s: %+v", what, db.Status())
		}
	}
}

// TestScrub_NoFalseAlarm scrubs all the time while batches of every kind are
// committed, or fail to be, before and after they have reached the disk.
func TestScrub_NoFalseAlarm(t *testing.T) {
	random := newRand(t)
	var failing atomic.Bool
	fail := func() error {
		if failing.Load() && random.IntN(10) == 0 {
			return errors.New("no commit this time")
		}
		return nil
	}
	o := bolt.FailAfterCommits(bolt.FailCommits(bolt.Options{FlushInterval: time.Hour}, fail), fail)
	for _, chunk := range []int{1, 300, 20_000} {
		db := open(t, bolt.ScrubAllTheTime(o, chunk))
		var collections []store.Collection
		for _, id := range []store.Identity{storetest.Pods(), storetest.Deployments()} {
			c, err := db.Collection(id, "test")
			if err != nil {
				t.Fatal(err)
			}
			collections = append(collections, c)
		}
		failing.Store(true)
		generator := storetest.NewGenerator(random.Uint64())
		for range 100 {
			for _, c := range collections {
				if err := c.Apply(generator.Batch()); err != nil {
					t.Fatal(err)
				}
			}
			_ = collections[0].Flush(t.Context()) // it fails now and then
		}
		failing.Store(false)
		flush(t, collections[0])
		passes := db.Status().Scrub.Passes
		awaitScrub(t, db, "two more passes", func(s store.ScrubStatus) bool { return s.Passes > passes+1 })
		if s := db.Status(); s.Scrub.Problems != 0 || s.Quarantines != 0 || s.Scrub.Completed.IsZero() {
			t.Fatalf("chunks of %d bytes: %+v", chunk, s)
		}
	}
}

// TestScrub_ForgottenAndMadeAgain must not mix two collections of one name.
func TestScrub_ForgottenAndMadeAgain(t *testing.T) {
	db := open(t, bolt.ScrubAllTheTime(bolt.Options{FlushInterval: time.Hour}, 1))
	for i := range 100 {
		c := collection(t, db)
		apply(t, c, storetest.Put("a", fmt.Sprint(i)), storetest.Put("b", "1"), storetest.Put("c", "1"))
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if err := db.Forget(storetest.Pods()); err != nil {
			t.Fatal(err)
		}
	}
	if s := db.Status(); s.Scrub.Problems != 0 {
		t.Errorf("%+v", s)
	}
}

// TestScrub_FindsDamage changes a closed file where Open does not look.
func TestScrub_FindsDamage(t *testing.T) {
	for name, c := range map[string]struct{ old, new string }{
		"record":       {"content of f", "content of F"},
		"key":          {"ns/object-f", "ns/object-g"},
		"departed":     {"content of d", "content of D"},
		"departed uid": {"uid-of-d", "uid-of-e"},
		"index value":  {"node-of-f", "node-of-g"},
		"index key":    {"node-of-f\x00\x01ns/object-f", "node-of-f\x00\x01ns/object-k"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cache.db")
			db := bolttest.Open(t, path, bolt.Options{ScrubInterval: -1})
			p := collection(t, db)
			for _, key := range []string{"a", "f", "k"} {
				apply(t, p, storetest.Put("ns/object-"+key, "content of "+key, store.IndexChange{Name: "node", Add: []string{"node-of-" + key}}))
			}
			apply(t, p, storetest.Put("d", "content of d"))
			apply(t, p, store.Op{Key: "d", Depart: "uid-of-d"})
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			file, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			harmed := bytes.ReplaceAll(file, []byte(c.old), []byte(c.new))
			if bytes.Equal(file, harmed) {
				t.Fatal("nothing to harm")
			}
			if err := os.WriteFile(path, harmed, 0o600); err != nil {
				t.Fatal(err)
			}

			db = bolttest.Open(t, path, bolt.Options{})
			// It would be none of the scrub's problems if Open had found it.
			awaitScrub(t, db, "the damage", func(s store.ScrubStatus) bool { return s.Problems == 1 })
			p = collection(t, db)
			apply(t, p, storetest.Put("new", "1"))
			flush(t, p)
			if kept, err := os.ReadFile(db.Quarantined()); err != nil || !bytes.Equal(kept, harmed) {
				t.Errorf("the damaged file was not kept: %v", err)
			}
		})
	}
}

// TestScrub_Rate reads as fast as it may and not faster, and pauses between
// passes.
func TestScrub_Rate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	db := bolttest.Open(t, path, bolt.Options{ScrubInterval: -1})
	p := collection(t, db)
	const records, size = 64, 64 << 10
	for i := range records {
		apply(t, p, storetest.Put(fmt.Sprintf("%02d", i), strings.Repeat("x", size)))
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if s := db.Status().Scrub; s != (store.ScrubStatus{}) {
		t.Errorf("turned off, and yet %+v", s)
	}

	clock := testingclock.NewFakeClock(time.Unix(1e9, 0))
	db = bolttest.Open(t, path, bolt.Options{Clock: clock, ScrubRate: 256 << 10, ScrubInterval: time.Hour})
	// The first chunk comes at once, then one a second: four records and a bit.
	for chunk := range int64(4) {
		awaitScrub(t, db, "a chunk", func(s store.ScrubStatus) bool { return s.Checked >= (chunk+1)*4*size })
		if s := db.Status().Scrub; s.Checked > (chunk+1)*5*size || s.Total < records*size {
			t.Errorf("after %d chunks: %+v", chunk+1, s)
		}
		awaitTimer(t, clock)
		clock.Step(time.Second * 11 / 10)
	}
	for db.Status().Scrub.Passes == 0 {
		awaitTimer(t, clock)
		clock.Step(2 * time.Second)
	}
	completed := db.Status().Scrub.Completed
	if now := clock.Now(); completed.After(now) || now.Sub(completed) > 3*time.Second {
		t.Errorf("completed %s, it is %s", completed, now)
	}
	awaitTimer(t, clock)
	clock.Step(59 * time.Minute)
	if s := db.Status().Scrub; s.Passes != 1 || s.Checked != 0 {
		t.Errorf("before the interval has passed: %+v", s)
	}
	clock.Step(2 * time.Minute)
	awaitScrub(t, db, "the next pass", func(s store.ScrubStatus) bool { return s.Checked > 0 })
}

// awaitTimer waits until the committer sleeps.
func awaitTimer(t *testing.T, clock *testingclock.FakeClock) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !clock.HasWaiters() {
		if time.Now().After(deadline) {
			t.Fatal("the committer does not sleep")
		}
		time.Sleep(time.Millisecond) //hygiene:allow time.Sleep: the fake clock announces no waiters
	}
}
