package bolt_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
	"github.com/warmcache/warmcache/store/storetest"
)

// TestPrune_DeletionsOfWhatIsNotThere lets names come and go while the disk
// fails: what waits does not grow with them.
func TestPrune_DeletionsOfWhatIsNotThere(t *testing.T) {
	d := &disk{}
	c := collection(t, bolttest.Open(t, filepath.Join(t.TempDir(), "cache.db"), bolt.FailCommits(bolt.Options{}, d.commit)))
	apply(t, c, storetest.Put("a", "1"))
	if err := c.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.fail(errors.New("no space left"))
	apply(t, c, storetest.Put("frozen", "1"))
	if err := c.Flush(t.Context()); err == nil {
		t.Fatal("the disk does not fail")
	}
	for i := range 20_000 {
		key, value := fmt.Sprint("new", i), fmt.Sprint(i)
		put := storetest.Put(key, value)
		put.Index = []store.IndexChange{{Name: "x", Add: []string{value}}}
		remove := store.Op{Key: key, Index: []store.IndexChange{{Name: "x", Remove: []string{value}}}}
		apply(t, c, put, remove)
	}
	apply(t, c, store.Op{Key: "a"}, store.Op{Key: "frozen"})
	if got, most := c.Durability().Pending, int64(1100*100); got > most {
		t.Errorf("%d bytes wait, want at most %d", got, most)
	}
	d.heal()
	if err := c.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := storetest.Dump(t, c); len(got.Objects) != 0 {
		t.Errorf("not deleted: %+v", got.Objects)
	}
}

// TestPrune_RandomChanges compares with a map what is there after commits that
// succeeded, failed, or failed after the fact.
func TestPrune_RandomChanges(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	before, after := &disk{}, &disk{}
	options := bolt.FailAfterCommits(bolt.FailCommits(bolt.Options{FlushInterval: time.Hour}, before.commit), after.commit)
	c := collection(t, bolttest.Open(t, filepath.Join(t.TempDir(), "cache.db"), options))
	model := map[string]string{}
	for n := range 400 {
		before.heal()
		after.heal()
		switch random.IntN(8) {
		case 0:
		case 1:
			after.fail(errors.New("after the fact"))
		default:
			before.fail(errors.New("before"))
		}
		apply(t, c, randomOps(random, model)...)
		if random.IntN(4) == 0 {
			_ = c.Flush(t.Context()) // it fails when it is told to
		}
		if n%20 == 0 {
			compareObjects(t, c, model)
		}
	}
	before.heal()
	after.heal()
	if err := c.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	compareObjects(t, c, model)
}

// randomOps changes model, and returns how.
func randomOps(random *rand.Rand, model map[string]string) (ops []store.Op) {
	for range 100 {
		key := fmt.Sprint(random.IntN(5000))
		was, exists := model[key]
		op := store.Op{Key: key}
		index := store.IndexChange{Name: "x"}
		if exists {
			index.Remove = []string{was}
		}
		if random.IntN(3) == 0 {
			value := fmt.Sprint(random.IntN(1000))
			op, index.Add, model[key] = storetest.Put(key, value), []string{value}, value
		} else {
			delete(model, key)
		}
		op.Index = []store.IndexChange{index}
		ops = append(ops, op)
	}
	return ops
}

func compareObjects(t *testing.T, c store.Collection, model map[string]string) {
	t.Helper()
	want := map[string]string{}
	for key, value := range model {
		want[key] = string(storetest.Record(value))
	}
	got, indexed := map[string]string{}, map[string]string{}
	dump := storetest.Dump(t, c, "x")
	for _, o := range dump.Objects {
		got[o.Key] = o.Value
	}
	for _, v := range dump.Indices["x"] {
		for _, key := range v.Keys {
			indexed[key] += v.Value
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%d objects, want %d, or other values", len(got), len(want))
	}
	if !maps.Equal(indexed, model) {
		t.Errorf("%d index entries, want %d, or other values", len(indexed), len(model))
	}
}
