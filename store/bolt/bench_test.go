package bolt_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/storetest"
)

const benchRecord = 4 << 10

func benchKey(i int) string { return fmt.Sprintf("namespace-%03d/pod-%07d", i%200, i) }

// fill applies n objects in batches, as a paginated list does.
func fill(b *testing.B, c store.Collection, n int) {
	b.Helper()
	const page = 500
	value := bytes.Repeat([]byte{'x'}, benchRecord-4)
	for i := 0; i < n; i += page {
		var batch store.Batch
		for j := i; j < min(i+page, n); j++ {
			batch.Ops = append(batch.Ops, store.Op{Key: benchKey(j), Value: store.Seal(bytes.Clone(value))})
		}
		if err := c.Apply(batch); err != nil {
			b.Fatal(err)
		}
	}
}

func benchCollection(b *testing.B, o bolt.Options) store.Collection {
	b.Helper()
	db, err := bolt.Open(filepath.Join(b.TempDir(), "cache.db"), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	c, err := db.Collection(storetest.Pods(), "test")
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// BenchmarkCollection_ApplyAndFlush writes 100,000 objects of 4 KB.
func BenchmarkCollection_ApplyAndFlush(b *testing.B) {
	const objects = 100_000
	b.SetBytes(objects * benchRecord)
	b.ReportAllocs()
	for b.Loop() {
		c := benchCollection(b, bolt.Options{})
		fill(b, c, objects)
		if err := c.Flush(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCollection_ApplyOne is one event after another.
func BenchmarkCollection_ApplyOne(b *testing.B) {
	c := benchCollection(b, bolt.Options{})
	fill(b, c, 10_000)
	value := store.Seal(make([]byte, benchRecord))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		err := c.Apply(store.Batch{
			Header: &store.Header{RV: "1"},
			Ops:    []store.Op{{Key: benchKey(i % 10_000), Value: value}},
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

func committed(b *testing.B, objects int) store.Collection {
	b.Helper()
	c := benchCollection(b, bolt.Options{})
	fill(b, c, objects)
	if err := c.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	return c
}

func BenchmarkCollection_Get(b *testing.B) {
	const objects = 20_000
	c := committed(b, objects)
	b.ReportAllocs()
	for b.Loop() {
		getOne(b, c, objects)
	}
}

// BenchmarkCollection_Scan reads 100,000 objects, from the file alone and with
// changes that wait for a commit.
func BenchmarkCollection_Scan(b *testing.B) {
	const objects = 100_000
	c := committed(b, objects)
	scan := func(b *testing.B) {
		b.SetBytes(objects * benchRecord)
		b.ReportAllocs()
		for b.Loop() {
			n := 0
			err := c.View(func(tx store.Tx) error {
				return tx.Scan("", func(_, _ []byte) bool { n++; return true })
			})
			if err != nil || n != objects {
				b.Fatal(n, err)
			}
		}
	}
	b.Run("File", scan)
	b.Run("Overlay", func(b *testing.B) {
		if err := c.Apply(store.Batch{Ops: []store.Op{{Key: benchKey(7), Value: store.Seal(make([]byte, benchRecord))}}}); err != nil {
			b.Fatal(err)
		}
		scan(b)
	})
}

// BenchmarkOpen opens a file with objects of 4 KB, and reads one of them as soon as
// possible: none of that depends on how many there are. Then it waits until the file
// has been verified, which does.
func BenchmarkOpen(b *testing.B) {
	for _, objects := range []int{1000, 200_000} {
		b.Run(fmt.Sprint(objects), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "cache.db")
			writeFile(b, path, objects)
			var open, collection, get, verified time.Duration
			for b.Loop() {
				start := time.Now()
				lap := func(sum *time.Duration) {
					*sum += time.Since(start)
					start = time.Now()
				}
				db, err := bolt.Open(path, bolt.Options{ScrubInterval: -1})
				if err != nil {
					b.Fatal(err)
				}
				lap(&open)
				c, err := db.Collection(storetest.Pods(), "test")
				if err != nil {
					b.Fatal(err)
				}
				lap(&collection)
				getOne(b, c, objects)
				lap(&get)
				<-c.Verified()
				lap(&verified)
				if err := db.Close(); err != nil {
					b.Fatal(err)
				}
			}
			for unit, sum := range map[string]time.Duration{"open": open, "collection": collection, "get": get, "verified": verified} {
				b.ReportMetric(float64(sum.Microseconds())/float64(b.N), "µs-"+unit)
			}
		})
	}
}

// writeFile makes a file with objects.
func writeFile(b *testing.B, path string, objects int) {
	b.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		b.Fatal(err)
	}
	c, err := db.Collection(storetest.Pods(), "test")
	if err != nil {
		b.Fatal(err)
	}
	fill(b, c, objects)
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
}

func getOne(b *testing.B, c store.Collection, objects int) {
	b.Helper()
	err := c.View(func(tx store.Tx) error {
		_, err := tx.Get(benchKey(rand.IntN(objects)))
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
}
