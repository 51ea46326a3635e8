package bolt_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
	"github.com/warmcache/warmcache/store/storetest"
)

var seedFlag = flag.Uint64("bolt.seed", 0, "seed of randomised tests; 0 takes a new one, which is logged")

func newRand(t *testing.T) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("replay with -bolt.seed=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// sample returns a closed file in which everything occurs, and what was in it
// after each of the last two commits. If the newest meta page is damaged, bbolt
// uses the one before, which is older and not wrong.
func sample(t *testing.T) (file []byte, states []storetest.Contents) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cache.db")
	db := bolttest.Open(t, path, bolt.Options{FlushInterval: time.Hour})
	c := collection(t, db)
	random := rand.New(rand.NewPCG(1, 1))
	for i := range 300 {
		content := strings.Repeat(fmt.Sprint(i), 1+random.IntN(1000))
		put := storetest.Put(fmt.Sprintf("ns/%04d", i), content, store.IndexChange{Name: "node", Add: []string{fmt.Sprint(i % 7)}})
		if err := c.Apply(store.Batch{Ops: []store.Op{put}, Header: &store.Header{RV: fmt.Sprint(i)}}); err != nil {
			t.Fatal(err)
		}
		if i%50 == 49 {
			if err := c.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	states = append(states, storetest.Dump(t, c, "node"))
	for i := range 20 {
		apply(t, c, store.Op{
			Key: fmt.Sprintf("ns/%04d", i*3), Depart: "uid",
			Index: []store.IndexChange{{Name: "node", Remove: []string{fmt.Sprint(i * 3 % 7)}}},
		})
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = bolttest.Open(t, path, bolt.Options{})
	states = append(states, storetest.Dump(t, collection(t, db), "node"))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// bbolt grows a file by 16 MiB at once, of which nothing is used yet.
	used := len(bytes.TrimRight(file, "\x00"))
	return file[:(used+4095)/4096*4096], states
}

func checkCorrupt(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("%s: got %v, want ErrCorrupt", what, err)
	}
}

// TestView_FileTruncatedWhileOpen reads pages that are gone. It must end in
// ErrCorrupt for everybody who has read the file, and in another file.
func TestView_FileTruncatedWhileOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := collection(t, db)
	for i := range 200 {
		apply(t, c, storetest.Put(fmt.Sprint(i), strings.Repeat("x", 4000)))
	}
	if err := c.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 4*4096); err != nil {
		t.Fatal(err)
	}
	scan := func(tx store.Tx) error {
		return tx.Scan("", func(_, value []byte) bool { return value[0] == 'x' })
	}
	for range 2 {
		checkCorrupt(t, "View", c.View(scan))
	}
	checkCorrupt(t, "Apply", c.Apply(store.Batch{Ops: []store.Op{storetest.Put("a", "1")}}))
	if infos, err := db.Informers(); err != nil || len(infos) > 0 {
		t.Errorf("Informers of the new file: %v, %v", infos, err)
	}
	if err := db.Forget(storetest.Deployments()); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Forget: got %v, want ErrNotFound", err)
	}
	if !strings.HasSuffix(db.Quarantined(), "damaged") {
		t.Errorf("the file was not quarantined: %q", db.Quarantined())
	}
	// Nobody has written anew what was lost.
	checkCorrupt(t, "Close", db.Close())
	if again := bolttest.Open(t, path, bolt.Options{}); again.Quarantined() != "" {
		t.Errorf("the new file was quarantined: %q", again.Quarantined())
	}
}

// TestView_PanicOfTheCaller checks that a panic of the caller stays one, and
// leaves the store usable.
func TestView_PanicOfTheCaller(t *testing.T) {
	db := open(t, bolt.Options{})
	c := collection(t, db)
	apply(t, c, storetest.Put("a", "1"), storetest.Put("b", "2"))
	if err := c.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	panicIn := func(fn func(store.Tx) error) (r any) {
		defer func() { r = recover() }()
		err := c.View(fn)
		t.Errorf("View returned %v, want the panic of its function", err)
		return nil
	}
	var nobody *storetest.Contents
	for name, fn := range map[string]func(store.Tx) error{
		"in View": func(store.Tx) error { panic("mine") },
		"in Scan": func(tx store.Tx) error {
			return tx.Scan("", func(_, _ []byte) bool { panic("mine") })
		},
		"after a nested Get": func(tx store.Tx) error {
			return tx.Scan("", func(_, _ []byte) bool { _, _ = tx.Get("b"); panic("mine") })
		},
		"nil dereference": func(store.Tx) error { nobody.Objects = nil; return nil },
	} {
		if r := panicIn(fn); r == nil {
			t.Errorf("%s: no panic", name)
		}
	}
	if got := storetest.Dump(t, c).Objects; len(got) != 2 {
		t.Errorf("after the panics: %v", got)
	}
}

func TestOpen_Quarantine(t *testing.T) {
	newer, _ := sample(t)
	for name, c := range map[string]struct {
		content []byte
		reason  string
	}{
		"text":      {bytes.Repeat([]byte("not a database\n"), 1000), "foreign"},
		"short":     {[]byte("x"), "foreign"},
		"cut short": {newer[:4096+100], "damaged"},
		"truncated": {newer[:len(newer)/2], "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cache.db")
			if err := os.WriteFile(path, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			db := bolttest.Open(t, path, bolt.Options{})
			if !strings.HasSuffix(db.Quarantined(), c.reason) {
				t.Errorf("quarantined as %q, want the reason %s", db.Quarantined(), c.reason)
			}
			if kept, err := os.ReadFile(db.Quarantined()); err != nil || !bytes.Equal(kept, c.content) {
				t.Errorf("the quarantined file was changed: %v", err)
			}
			apply(t, collection(t, db), storetest.Put("a", "1"))
		})
	}
}

func TestOpen_Quarantine_KeepsTheNewest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	for i := range bolt.MaxQuarantined + 2 {
		if err := os.WriteFile(path, fmt.Appendf(nil, "garbage %d", i), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := bolttest.Open(t, path, bolt.Options{}).Close(); err != nil {
			t.Fatal(err)
		}
	}
	names, err := filepath.Glob(path + ".quarantined-*")
	if err != nil || len(names) != bolt.MaxQuarantined {
		t.Fatalf("kept %q, %v, want %d", names, err, bolt.MaxQuarantined)
	}
	slices.Sort(names)
	if oldest, err := os.ReadFile(names[0]); err != nil || string(oldest) != "garbage 2" {
		t.Errorf("the oldest that is kept is %q, %v", oldest, err)
	}
}

func TestOpen_ZeroLength(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	db := bolttest.Open(t, path, bolt.Options{})
	if db.Quarantined() != "" {
		t.Errorf("an empty file was quarantined: %s", db.Quarantined())
	}
	apply(t, collection(t, db), storetest.Put("a", "1"))
}

// TestCommit_Panics lets the committer meet damage first, while bbolt holds its
// writer lock for ever. Flush and Close must return all the same.
func TestCommit_Panics(t *testing.T) {
	for name, damage := range map[string]func(path string, panicking *bool) error{
		"before the transaction": func(_ string, panicking *bool) error { *panicking = true; return nil },
		"in the transaction":     func(path string, _ *bool) error { return os.Truncate(path, 2*4096) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cache.db")
			panicking := false
			db, err := bolt.Open(path, bolt.FailCommits(bolt.Options{FlushInterval: time.Hour, ScrubInterval: -1}, func() error {
				if panicking {
					panic("as bbolt does")
				}
				return nil
			}))
			if err != nil {
				t.Fatal(err)
			}
			c := collection(t, db)
			for i := range 100 {
				apply(t, c, storetest.Put(fmt.Sprint(i), strings.Repeat("x", 4000)))
			}
			if err := c.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := damage(path, &panicking); err != nil {
				t.Fatal(err)
			}
			apply(t, c, storetest.Put("0", "new"))
			checkCorrupt(t, "Flush", c.Flush(t.Context()))
			checkCorrupt(t, "View", c.View(func(store.Tx) error { return nil }))
			checkCorrupt(t, "Durability", c.Durability().Err)
			checkCorrupt(t, "Close", db.Close())
			if db.Quarantined() == "" {
				t.Error("the file was not quarantined")
			}
			if db := bolttest.Open(t, path, bolt.Options{}); db.Quarantined() != "" {
				t.Error("the new file was quarantined")
			}
		})
	}
}

// TestTx_KeysOutOfOrder changes keys in leaf pages of an open file, which bbolt does not
// notice.
// IndexValues, which seeks from each value to the next, must come to an end.
func TestTx_KeysOutOfOrder(t *testing.T) {
	const objects = 400
	path := filepath.Join(t.TempDir(), "cache.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := collection(t, db)
	for i := range objects {
		apply(t, c, storetest.Put(fmt.Sprintf("mkey-%03d", i), "1", store.IndexChange{Name: "node", Add: []string{fmt.Sprintf("mval-%03d", i)}}))
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for page := range slices.Chunk(file, 4096) {
		const leaf = 2
		if page[8] != leaf {
			continue
		}
		for i := 60; i < objects; i++ {
			for _, what := range []string{"key", "val"} {
				copy(page, bytes.ReplaceAll(page, fmt.Appendf(nil, "m%s-%03d", what, i), fmt.Appendf(nil, "a%s-%03d", what, i)))
			}
		}
	}
	if db, err = bolt.Open(path, bolt.Options{ScrubInterval: -1}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	c = collection(t, db)
	<-c.Verified()
	open, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = open.WriteAt(file, 0)
	if err := errors.Join(err, open.Close()); err != nil {
		t.Fatal(err)
	}
	calls := 0
	read := func([]byte) bool { calls++; return calls < 10*objects }
	for name, fn := range map[string]func(store.Tx) error{
		"IndexValues": func(tx store.Tx) error { return tx.IndexValues("node", "", read) },
		"Scan":        func(tx store.Tx) error { return tx.Scan("", func(k, _ []byte) bool { return read(k) }) },
	} {
		calls = 0
		checkCorrupt(t, name, c.View(fn))
		if calls > objects {
			t.Errorf("%s went round %d times", name, calls)
		}
	}
}
