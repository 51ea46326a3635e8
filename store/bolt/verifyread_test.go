package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2/textlogger"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

// held returns options with which a file that is opened is not verified before release
// is called. Nothing is committed by itself.
func held(t testing.TB) (o Options, release func()) {
	gate := make(chan struct{})
	release = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(release)
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(io.Discard)))
	return Options{
		FlushInterval: time.Hour, ScrubInterval: -1, Logger: &logger,
		beforeVerify: func() error { <-gate; return nil },
	}, release
}

func openIn(t testing.TB, path string, o Options) (*DB, store.Collection) {
	t.Helper()
	db, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.Collection(podsID, "test")
	if err != nil {
		t.Fatal(err)
	}
	return db, c
}

var testIndices = []string{"node", "owner"}

// TestVerify_ReadsAgreeWithTheModel reads a file that is not verified yet, below random
// changes, in every way, and compares that with the model.
func TestVerify_ReadsAgreeWithTheModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	generator := storetest.NewGenerator(seed)
	path := filepath.Join(t.TempDir(), "cache.db")
	model, err := storetest.NewMemory().Open().Collection(podsID, "test")
	if err != nil {
		t.Fatal(err)
	}
	rounds := 20
	if testing.Short() {
		rounds = 6
	}
	for round := range rounds {
		o, release := held(t)
		db, c := openIn(t, path, o)
		for step := range 25 {
			batch := generator.Batch()
			if step == 0 && round%3 == 0 {
				batch = manyPages(round)
			}
			for _, to := range []store.Collection{model, c} {
				if err := to.Apply(clone(batch)); err != nil {
					t.Fatal(err)
				}
			}
			compare(t, random, model, c)
		}
		if db.current().ready() {
			t.Fatal("the file was verified")
		}
		release()
		if err := c.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		compare(t, random, model, c)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// manyPages makes all trees several pages high.
func manyPages(round int) (b store.Batch) {
	for i := range 200 {
		name := fmt.Sprintf("ns-%d/%03d-%s", i%3, i, strings.Repeat("long", 70))
		b.Ops = append(b.Ops, store.Op{
			Key: name, Value: store.Seal(bytes.Repeat([]byte{byte(round)}, 100+i)),
			Index: []store.IndexChange{{Name: "node", Add: []string{fmt.Sprint("n", i%20)}}, {Name: "owner", Add: []string{name[:100]}}},
		})
	}
	for i := range b.Ops {
		if i%4 == 1 {
			gone := store.Op{Key: b.Ops[i].Key, Depart: "uid"}
			for _, change := range b.Ops[i].Index {
				gone.Index = append(gone.Index, store.IndexChange{Name: change.Name, Remove: change.Add})
			}
			b.Ops = append(b.Ops, gone)
		}
	}
	return b
}

// clone copies what a collection takes ownership of.
func clone(b store.Batch) store.Batch {
	b.Ops = slices.Clone(b.Ops)
	for i := range b.Ops {
		b.Ops[i].Value = slices.Clone(b.Ops[i].Value)
	}
	return b
}

// compare compares all that two collections show, and parts of it.
func compare(t *testing.T, random *rand.Rand, want, got store.Collection) {
	t.Helper()
	if diff := storetest.Diff(storetest.Dump(t, want, testIndices...), storetest.Dump(t, got, testIndices...)); diff != "" {
		t.Fatalf("differs from the model (-want +got):\n%s", diff)
	}
	from := fmt.Sprintf("ns-%d/%03d-%s", random.IntN(4), random.IntN(250), strings.Repeat("long", random.IntN(80)))
	value := fmt.Sprint("n", random.IntN(25))
	if diff := cmp.Diff(parts(t, want, from, value), parts(t, got, from, value)); diff != "" {
		t.Fatalf("from %q, value %q: differs from the model (-want +got):\n%s", from, value, diff)
	}
}

// parts returns what is read from the middle on, and not to the end.
func parts(t *testing.T, c store.Collection, from, value string) (found []string) {
	t.Helper()
	err := c.View(func(tx store.Tx) error {
		left := 0
		take := func(b []byte) bool { found = append(found, string(b)); left--; return left > 0 }
		got, err := tx.Get(from)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		totals, totalsErr := tx.Totals()
		found = append(found, string(got), fmt.Sprint(totals))
		left = 20
		err = tx.Scan(from, func(key, _ []byte) bool { return take(key) })
		left = 10
		errKeys := tx.IndexKeys("node", value, from, take)
		left = 10
		errValues := tx.IndexValues("owner", from, take)
		left = 5
		errDeparted := tx.Departed(func(d store.Departed) bool { return take([]byte(d.Key)) })
		return errors.Join(totalsErr, err, errKeys, errValues, errDeparted)
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// treeDamage is one thing that is done to a page of a tree.
type treeDamage struct {
	page, offset int
	bit          byte
}

func (d treeDamage) String() string {
	return fmt.Sprintf("page %d, byte %d, bit %d", d.page, d.offset, d.bit)
}

// someTreeDamage returns damage of branches, anywhere in them, and of headers of leaves.
func someTreeDamage(t *testing.T, random *rand.Rand, file []byte, n int) (all []treeDamage) {
	d := newDamager(t, file)
	var branches, leaves []*page
	for _, name := range [][]byte{pods.objects, pods.departed, podsZone} {
		branches = append(branches, d.branches(name)...)
		leaves = append(leaves, d.leaves(name)...)
	}
	for i := range n {
		p := leaves[random.IntN(len(leaves))]
		size := pageHeader
		if i%2 == 0 {
			p = branches[random.IntN(len(branches))]
			size = usedBytes(p)
		}
		all = append(all, treeDamage{int(p.id), random.IntN(size), byte(random.IntN(8))})
	}
	return all
}

// usedBytes is where the last element of a branch ends.
func usedBytes(p *page) int {
	last, from, _ := p.element(p.count - 1)
	return int(from) + len(last.key)
}

// TestVerify_DamageIsNotServed damages inner pages and headers of leaves of a file, one
// at a time. Whoever reads it before it is verified finds what was written, or that it
// is damaged; and then, read or not, the file is moved aside.
func TestVerify_DamageIsNotServed(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 2))
	sound := checkSample(t)
	cases := 400
	if testing.Short() {
		cases = 80
	}
	_, c := openPods(t, filepath.Join(t.TempDir(), "cache.db"), sound)
	want := storetest.Dump(t, c, "zone")
	dir := t.TempDir()
	for i, damage := range someTreeDamage(t, random, sound, cases) {
		file := bytes.Clone(sound)
		file[damage.page*pageSize+damage.offset] ^= 1 << damage.bit
		checkDamaged(t, filepath.Join(dir, fmt.Sprint(i), "cache.db"), file, want, damage, i%4 != 0)
	}
}

func checkDamaged(t *testing.T, path string, file []byte, want storetest.Contents, damage treeDamage, read bool) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, file, 0o600)); err != nil {
		t.Fatal(err)
	}
	o, release := held(t)
	db, c := openIn(t, path, o)
	if read {
		var got storetest.Contents
		err := c.View(func(tx store.Tx) (err error) {
			got, err = storetest.DumpTx(tx, "zone")
			return err
		})
		switch {
		case err == nil && storetest.Diff(want, got) != "":
			t.Errorf("%v: something else was served", damage)
		case err != nil && !errors.Is(err, store.ErrCorrupt):
			t.Errorf("%v: got %v, want ErrCorrupt", damage, err)
		case err != nil && c.View(func(store.Tx) error { return nil }) == nil:
			t.Errorf("%v: what was found damaged is still read", damage)
		}
	}
	release()
	<-c.Verified()
	if err := c.Flush(t.Context()); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("%v: Flush returned %v, want ErrCorrupt", damage, err)
	}
	if err := db.Close(); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("%v: Close returned %v, want ErrCorrupt", damage, err)
	}
	if kept, err := os.ReadFile(db.Quarantined()); err != nil || !bytes.Equal(kept, file) {
		t.Errorf("%v: the damaged file was not kept: %v", damage, err)
	}
}
