package indexer

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
	"github.com/warmcache/warmcache/store/storetest"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "seed of TestIndexer_RandomOperations; 0 takes a new one")
	opsFlag   = flag.Int("ops", 0, "operations of TestIndexer_RandomOperations; 100,000 by default, 15,000 with -short")
	worldFlag = flag.Int("world", -1, "run only this world of TestIndexer_RandomOperations")
)

// opsPerWorld is how many operations one file lives for.
const opsPerWorld = 2500

// TestIndexer_RandomOperations runs random sequences of operations, across flushes,
// evictions and restarts of every kind, against client-go's indexer. A world is a file
// with what happens to it, and depends on the seed and its number alone.
func TestIndexer_RandomOperations(t *testing.T) {
	seed, ops := *seedFlag, *opsFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	if ops == 0 {
		ops = 100_000
		if testing.Short() {
			ops = 15_000
		}
	}
	worlds := (ops + opsPerWorld - 1) / opsPerWorld
	codec, start := podCodec(t), time.Now()
	var next, done atomic.Int64
	t.Run("worlds", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for n := next.Add(1) - 1; n < int64(worlds) && !t.Failed(); n = next.Add(1) - 1 {
					if *worldFlag < 0 || n == int64(*worldFlag) {
						done.Add(runWorld(t, codec, seed, int(n)))
					}
				}
			})
		}
	})
	t.Logf("seed %d: %d operations, %.0f per second", seed, done.Load(), float64(done.Load())/time.Since(start).Seconds())
}

func runWorld(t *testing.T, codec Codec, seed uint64, n int) int64 {
	w := &world{
		Rand: rand.New(rand.NewPCG(seed, uint64(n))), stored: map[string]*corev1.Pod{}, foreign: map[string]bool{},
		departed: map[departedID]*corev1.Pod{}, fingerprint: "f1", codec: codec,
	}
	name := w.choose(n)
	t.Run(fmt.Sprintf("%d, %s", n, name), func(t *testing.T) {
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("repeat with: go test ./indexer -run '^TestIndexer_RandomOperations$' -seed %d -world %d", seed, n)
				t.Logf("the last operations: %q", w.log[max(0, len(w.log)-40):])
			}
		})
		w.TB = t
		w.open()
		w.written = w.fingerprint
		w.applies(Update{Complete: true, RV: "1"})
		for w.ops < opsPerWorld {
			w.step()
		}
		w.compareAll()
		w.close()
	})
	return w.ops
}

// world is a file, the process that uses it, and what both should hold.
type world struct {
	testing.TB
	*rand.Rand
	engine engine
	// residencies are those that processes are started with.
	residencies []Residency
	ops         int64
	log         []string
	codec       Codec

	*process
	// want has what is served.
	want cache.Indexer
	// variants are the index functions of this process.
	variants map[string]variant
	// stored is what the file holds, foreign the keys of what is not served.
	stored   map[string]*corev1.Pod
	foreign  map[string]bool
	departed map[departedID]*corev1.Pod
	// fingerprint is that of the process, written that of the file.
	fingerprint, written string
	// version is what readers see. persisted and complete are in the header; unsure
	// says that complete may be false there.
	version, persisted string
	complete, unsure   bool
	rv                 int
}

type departedID struct{ key, uid string }

// engine is a store that outlives the process.
type engine interface {
	// open begins another process. The one before is dead, or has closed its store.
	open(w *world) store.Store
}

type memoryEngine struct{ *storetest.Memory }

func (e memoryEngine) open(*world) store.Store { return e.Open() }

// boltEngine is a file. Commits come when there is a Flush, or much waits.
type boltEngine struct {
	once sync.Once
	path string
	db   *bolt.DB
}

func (e *boltEngine) open(w *world) store.Store {
	o := bolt.Options{FlushInterval: time.Hour, MaxDirty: 20 + w.IntN(200), ScrubInterval: -1, Logger: quiet()}
	e.once.Do(func() {
		e.path = filepath.Join(w.TempDir(), "cache.db")
		if err := bolttest.Open(w, e.path, o).Close(); err != nil { // checks the file at the end
			w.Fatal(err)
		}
	})
	db, err := bolt.Open(e.path, o) //hygiene:allow bolt.Open: one check at the end is enough, there are many processes
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = db.Close() })
	e.db = db
	return db
}

// choose says what kind of world has this number.
func (w *world) choose(n int) string {
	engine := "memory"
	w.engine = memoryEngine{storetest.NewMemory()}
	if n%4 == 0 { // a quarter, because a file takes its time
		engine, w.engine = "bolt", &boltEngine{}
	}
	w.residencies = [][]Residency{{Disk}, {Memory}, {Disk, Memory}, {Disk}}[n/4%4]
	return fmt.Sprintf("%s %v", engine, w.residencies)
}

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func pick[T any](w *world, from ...T) T { return from[w.IntN(len(from))] }

// chance reports true once in n times.
func (w *world) chance(n int) bool { return w.IntN(n) == 0 }

func (w *world) step() {
	w.ops++
	switch n := w.IntN(1000); {
	case n < 600:
		w.read()
	case n < 750:
		w.applySome()
	case n < 850:
		w.one()
	case n < 900:
		w.transaction()
	case n < 930:
		w.note("Bookmark")
		rv := w.nextRV()
		w.Bookmark(rv)
		w.changed(Update{RV: rv})
		w.version = rv
	case n < 950:
		w.list(w.chance(3))
	case n < 960:
		w.replace()
	case n < 970:
		w.addIndexers()
	case n < 980:
		w.flush()
	case n < 985:
		w.compareAll()
	case n < 990:
		w.restart()
	case n < 998:
		w.redeliver()
	case n < 999:
		w.reset()
	default:
		w.lose()
	}
}

// nextRV returns a version that is new, or one that is not, or none.
func (w *world) nextRV() string {
	w.rv++
	return pick(w, strconv.Itoa(w.rv), strconv.Itoa(w.rv), "3", "")
}

// changed keeps what the header holds after u.
func (w *world) changed(u Update) {
	if u.RV != "" || u.Complete {
		w.persisted, w.version = u.RV, u.RV
	}
	if w.written != w.fingerprint && len(u.Changes) > 0 {
		w.written = mixedFingerprint
	}
	switch {
	case u.Incomplete:
		w.complete, w.unsure = false, false
	case u.Complete:
		w.complete, w.unsure, w.written = true, false, w.fingerprint
	}
}

// change changes one object, and returns what was served before.
func (w *world) change(c Change) (old any) {
	before := w.stored[c.Key]
	old, _, _ = w.want.GetByKey(c.Key)
	if c.Object == nil {
		delete(w.stored, c.Key)
		_ = w.want.Delete(cache.ExplicitKey(c.Key))
	} else {
		w.stored[c.Key] = c.Object.(*corev1.Pod)
		_ = w.want.Update(c.Object)
	}
	if c.Depart && before != nil && (c.Object == nil || w.stored[c.Key].UID != before.UID) {
		w.departed[departedID{c.Key, string(before.UID)}] = before
	}
	delete(w.foreign, c.Key)
	return old
}

func (w *world) changes(u Update) (olds []any) {
	for _, c := range u.Changes {
		olds = append(olds, w.change(c))
	}
	w.changed(u)
	return olds
}

// applies hands u to the indexer and to the model, which must agree on what was there.
func (w *world) applies(u Update) {
	w.Helper()
	w.note("Apply %d RV %q incomplete %t complete %t", len(u.Changes), u.RV, u.Incomplete, u.Complete)
	want := w.changes(u)
	got := w.apply(u)
	for i, c := range u.Changes {
		if !equal(got[i], want[i]) {
			w.Fatalf("Apply: %s was %v, want %v", c.Key, got[i], want[i])
		}
	}
}

func (w *world) someChanges(n int) (changes []Change) {
	for range n {
		p := w.pod()
		c := Change{Key: keyOf(p), Object: p, Depart: w.chance(2)}
		if w.chance(3) {
			c.Object = nil
		}
		changes = append(changes, c)
	}
	return changes
}

func (w *world) applySome() { w.applies(Update{Changes: w.someChanges(w.IntN(5)), RV: w.nextRV()}) }

// list applies a list in parts, as the queue does: what is not listed is deleted in the
// last one, and what is there may be left out. If it is interrupted, it has no end.
func (w *world) list(interrupted bool) {
	listed := map[string]bool{}
	for range w.IntN(4) {
		u := Update{Incomplete: true, Changes: w.someChanges(w.IntN(20))}
		for _, c := range u.Changes {
			listed[c.Key] = true
		}
		w.applies(u)
		if w.chance(2) {
			w.read()
		}
	}
	if interrupted {
		return
	}
	end := Update{Complete: true, RV: w.nextRV()}
	for key := range w.sortedStored() {
		if !listed[key] && (w.foreign[key] || w.chance(3)) {
			end.Changes = append(end.Changes, Change{Key: key, Depart: w.chance(2)})
		}
	}
	w.applies(end)
}

// sortedStored yields in an order that depends on the seed alone.
func (w *world) sortedStored() func(func(string) bool) {
	return slices.Values(slices.Sorted(maps.Keys(w.stored)))
}

func (w *world) one() {
	p := w.pod()
	op, obj := pick(w, "Add", "Update", "Delete"), any(p)
	w.note("%s %s", op, keyOf(p))
	var err error
	c := Change{Key: keyOf(p), Object: p}
	switch op {
	case "Add":
		err = w.Add(p)
	case "Update":
		err = w.Update(p)
	case "Delete":
		c.Object, obj = nil, w.deletable(p)
		err = w.Delete(obj)
	}
	if err != nil {
		w.Fatalf("%s: %v", op, err)
	}
	w.changes(Update{Changes: []Change{c}})
	w.observe(obj)
}

// observe keeps the version as client-go's store does: that of the last object.
func (w *world) observe(last any) {
	if p, ok := last.(*corev1.Pod); ok {
		w.version = p.ResourceVersion
	}
}

// deletable returns any form in which p may be deleted.
func (w *world) deletable(p *corev1.Pod) any {
	key := keyOf(p)
	return pick[any](w, p, cache.DeletedFinalStateUnknown{Key: key, Obj: p}, cache.DeletedFinalStateUnknown{Key: key}, cache.ExplicitKey(key))
}

func (w *world) transaction() {
	var txns []cache.Transaction
	var u Update
	var last any
	var good []int
	for i := range w.IntN(6) {
		p := w.pod()
		t := cache.Transaction{Type: pick(w, cache.TransactionTypeAdd, cache.TransactionTypeUpdate, cache.TransactionTypeDelete), Object: p}
		c := Change{Key: keyOf(p), Object: p}
		switch {
		case w.chance(10):
			txns = append(txns, cache.Transaction{Type: t.Type, Object: "no object"})
			continue
		case t.Type == cache.TransactionTypeDelete:
			t.Object, c.Object = w.deletable(p), nil
		}
		txns, u.Changes, good, last = append(txns, t), append(u.Changes, c), append(good, i), t.Object
	}
	w.note("Transaction %d of %d", len(good), len(txns))
	err := w.Transaction(txns...)
	if (err != nil) != (len(good) < len(txns)) || err != nil && !slices.Equal(err.SuccessfulIndices, good) {
		w.Fatalf("Transaction: %v, want all but %v to fail", err, good)
	}
	if len(good) > 0 {
		w.changes(u)
		w.observe(last)
	}
}

func (w *world) replace() {
	var list []any
	u := Update{Complete: true, RV: w.nextRV()}
	listed := map[string]bool{}
	for range w.IntN(40) {
		p := w.pod()
		list, listed[keyOf(p)] = append(list, p), true
		u.Changes = append(u.Changes, Change{Key: keyOf(p), Object: p})
	}
	for key := range w.sortedStored() {
		if !listed[key] {
			u.Changes = append(u.Changes, Change{Key: key})
		}
	}
	w.note("Replace %d", len(list))
	if err := w.Replace(list, u.RV); err != nil {
		w.Fatal(err)
	}
	w.changes(u)
}

func (w *world) flush() {
	w.note("Flush")
	w.durable(w.Flush(w.Context()))
}

// durable takes the error of a Flush. A file that was found damaged several times within
// a short time is created again only after a while, or by Close.
func (w *world) durable(err error) {
	w.Helper()
	if err != nil && !errors.Is(err, store.ErrCorrupt) {
		w.Fatal(err)
	}
}

func (w *world) reset() {
	w.note("Reset")
	w.Reset()
	w.forget()
	w.version, w.persisted, w.written, w.complete, w.unsure = "", "", w.fingerprint, false, false
}

// redeliver forgets some departed objects, as if they had been delivered.
func (w *world) redeliver() {
	var ops []store.DepartedOp
	for id := range w.departed {
		if w.chance(2) {
			ops = append(ops, store.DepartedOp{Key: id.key, UID: id.uid, Remove: true})
			delete(w.departed, id)
		}
	}
	w.UpdateDeparted(ops)
}

// forget empties the model.
func (w *world) forget() {
	clear(w.stored)
	clear(w.foreign)
	clear(w.departed)
	w.rebuild()
}
