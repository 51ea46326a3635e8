package bolt_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/storetest"
)

// smallSample is a file with everything that occurs, in as few pages as possible.
func smallSample(f *testing.F) []byte {
	f.Helper()
	path := filepath.Join(f.TempDir(), "cache.db")
	db, err := bolt.Open(path, bolt.Options{FlushInterval: time.Hour})
	if err != nil {
		f.Fatal(err)
	}
	c := collection(f, db)
	for _, b := range []store.Batch{
		{Ops: []store.Op{
			storetest.Put("ns/a", "1", store.IndexChange{Name: "node", Add: []string{"x"}}),
			storetest.Put("ns/b", strings.Repeat("large", 1000), store.IndexChange{Name: "node", Add: []string{"x", "y"}}),
			storetest.Put("ns/c", strings.Repeat("3", 2000)),
			storetest.Put("ns/d", strings.Repeat("4", 2000)),
		}, Header: &store.Header{RV: "1", Complete: true, Indices: map[string]string{"node": "1"}}},
		{Ops: []store.Op{{Key: "ns/c", Depart: "uid"}}, Header: &store.Header{RV: "2", Complete: true, Indices: map[string]string{"node": "1"}}},
	} {
		if err := errors.Join(c.Apply(b), c.Flush(f.Context())); err != nil {
			f.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		f.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	used := len(bytes.TrimRight(file, "\x00"))
	return file[:(used+4095)/4096*4096]
}

// FuzzOpen opens any file, as it is or with checksums of the meta pages that hold.
// It is used or moved aside, reading finds something or says that it is damaged,
// and the next Open finds a file that it can use.
func FuzzOpen(f *testing.F) {
	file := smallSample(f)
	for _, seed := range [][]byte{file, file[:4096], file[:len(file)-4096], file[:len(file)/2+100], {}, []byte("text\n"), make([]byte, 3*4096)} {
		f.Add(seed, false)
	}
	for at := 0; at < len(file); at += 4096 {
		for _, offset := range []int{8, 10, 12, 16, 20, 24, 32, 40, 48, 64} {
			flipped := bytes.Clone(file)
			flipped[at+offset] ^= 1
			f.Add(flipped, at < 8192)
		}
	}
	path := filepath.Join(f.TempDir(), "cache.db")
	f.Fuzz(func(t *testing.T, content []byte, resealed bool) {
		if resealed {
			content = resealMeta(bytes.Clone(content))
		}
		removeAll(t, path)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		checkAnything(t, path)
		for range 2 {
			useAnything(t, path)
		}
	})
}

// resealMeta makes the checksums of both meta pages hold: FNV-1a of the 56 bytes
// that follow the header of the page.
func resealMeta(content []byte) []byte {
	for at := 0; at < 2*4096 && at+16+64 <= len(content); at += 4096 {
		sum := fnv.New64a()
		sum.Write(content[at+16 : at+16+56])
		binary.NativeEndian.PutUint64(content[at+16+56:], sum.Sum64())
	}
	return content
}

func removeAll(t *testing.T, path string) {
	t.Helper()
	left, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range left {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// expected says whether err is what a file that cannot be used gives. A foreign
// one has no exported error.
func expected(err error) bool {
	return err == nil || errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrNewerFormat) ||
		strings.Contains(err.Error(), "not a warmcache file") || strings.Contains(err.Error(), "no upgrade path")
}

// checkAnything checks and reads a file without changing it.
func checkAnything(t *testing.T, path string) {
	t.Helper()
	if _, err := bolt.Check(t.Context(), path, bolt.CheckOptions{}); !expected(err) {
		t.Errorf("Check: %v", err)
	}
	db, err := bolt.OpenReadOnly(path, bolt.Options{})
	if !expected(err) {
		t.Errorf("OpenReadOnly: %v", err)
	}
	if err == nil {
		readAnything(t, db)
	}
}

// useAnything opens a file, reads all of it, writes to it, and closes it.
func useAnything(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{FlushInterval: time.Hour, Logger: logTo(io.Discard)})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	if c, err := db.Collection(storetest.Pods(), "test"); err == nil {
		applied := c.Apply(store.Batch{Ops: []store.Op{storetest.Put("ns/e", "5")}})
		if err := errors.Join(applied, c.Flush(t.Context()), c.Close()); !expected(err) {
			t.Errorf("writing: %v", err)
		}
	}
	readAnything(t, db)
}

// readAnything reads every collection of db and closes it.
func readAnything(t *testing.T, db *bolt.DB) {
	t.Helper()
	infos, err := db.Informers()
	if !expected(err) {
		t.Errorf("Informers: %v", err)
	}
	for _, info := range infos {
		c, err := db.Collection(info.Identity, "test")
		if err == nil {
			err = c.View(func(tx store.Tx) error {
				_, err := storetest.DumpTx(tx, "node")
				return err
			})
		}
		if !expected(err) {
			t.Errorf("reading %s: %v", info.Identity, err)
		}
	}
	if err := db.Close(); !expected(err) {
		t.Errorf("Close: %v", err)
	}
}
