package bolt

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2/textlogger"

	"github.com/warmcache/warmcache/store"
)

// changedLeaf is the leaf of the pods that tests change an object in.
const changedLeaf = 5

// vetDamage are kinds of damage that bbolt does not notice, but frees or keeps
// other pages because of it, and what the error must say.
var vetDamage = []struct {
	name   string
	damage func(d *damager)
	want   string
}{
	{"leaf: overflow", func(d *damager) { overflow(d.leaves(pods.objects)[changedLeaf], 1) }, "page"},
	{"leaf: long overflow", func(d *damager) { overflow(d.leaves(pods.objects)[changedLeaf], 1<<20) }, "page"},
	{"leaf before: overflow", func(d *damager) { overflow(d.leaves(pods.objects)[changedLeaf-1], 1) }, "page"},
	{"leaf after: overflow", func(d *damager) { overflow(d.leaves(pods.objects)[changedLeaf+1], 1) }, "page"},
	{"leaf before: kind", func(d *damager) { d.leaves(pods.objects)[changedLeaf-1].data[8] = 0x40 }, "kind 0x40"},
	{"leaf after: kind", func(d *damager) { d.leaves(pods.objects)[changedLeaf+1].data[8] = flagBranch }, "page"},
	{"branch: overflow", func(d *damager) { overflow(d.branches(pods.objects)[0], 1) }, "page"},
	{"free list: overflow", func(d *damager) { overflow(d.page(d.meta.freelist), 1) }, "free list"},
	{"directory: overflow", func(d *damager) { overflow(d.pages(d.meta.root, flagLeaf)[0], 1) }, "page"},
	{"free list: beyond the end", func(d *damager) { d.freeID(-1, 1<<40) }, "free list"},
	{"free list: meta page", func(d *damager) { d.freeID(0, 1) }, "free list"},
	{"free list: twice", func(d *damager) { d.freeID(1, order.Uint64(d.page(d.meta.freelist).data[pageHeader:])) }, "free list"},
	{"free list: long overflow", func(d *damager) { overflow(d.page(d.meta.freelist), 1<<20) }, "free list"},
}

func overflow(p *page, more uint64) { order.PutUint32(p.data[12:], uint32(p.overflow+more)) }

// freeID changes a page of the free list, the last one for -1.
func (d *damager) freeID(i int, id uint64) {
	p := d.page(d.meta.freelist)
	if p.count < 2 {
		d.t.Fatalf("%d free pages, the test needs 2", p.count)
	}
	if i < 0 {
		i = p.count - 1
	}
	order.PutUint64(p.data[pageHeader+8*i:], id)
}

// TestCommit_VetsWhatItReplaces damages pages under an open collection, whose
// pages were verified when it was opened.
func TestCommit_VetsWhatItReplaces(t *testing.T) {
	sound := checkSample(t)
	for _, test := range vetDamage {
		t.Run(test.name, func(t *testing.T) {
			d := newDamager(t, bytes.Clone(sound))
			key := string(d.elements(d.leaves(pods.objects)[changedLeaf])[0].key)
			path := filepath.Join(t.TempDir(), "cache.db")
			db, c := openPods(t, path, sound)
			test.damage(d)
			writeOver(t, path, d.file)

			change := store.Op{Key: key, Value: store.Seal([]byte("changed"))}
			err := errors.Join(c.Apply(store.Batch{Ops: []store.Op{change}}), c.Flush(t.Context()))
			if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "bbolt: ") {
				t.Errorf("got %v, want ErrCorrupt that says %q, before bbolt does", err, test.want)
			}
			anew := store.Batch{Clear: true, Ops: []store.Op{change}}
			if err := errors.Join(c.Apply(anew), c.Flush(t.Context())); err != nil {
				t.Error(err)
			}
			kept, err := os.ReadFile(db.Quarantined())
			if err != nil || !bytes.HasPrefix(kept, d.file) {
				t.Errorf("the damaged file was not kept as it was: %v", err)
			}
		})
	}
}

// openPods opens a copy of a file, which is verified, and a collection in it. Nothing is written by
// itself, and nothing is scrubbed.
func openPods(t *testing.T, path string, file []byte) (*DB, store.Collection) {
	t.Helper()
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := Open(path, Options{FlushInterval: time.Hour, ScrubInterval: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := db.Collection(podsID, "test")
	if err != nil {
		t.Fatal(err)
	}
	<-c.Verified()
	return db, c
}

// writeOver writes to a file that is open, in place.
func writeOver(t *testing.T, path string, file []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(file, 0)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestScrub_VetsWhatItReads damages what bbolt does not notice when it reads, or
// may not come back from, after the file was verified.
func TestScrub_VetsWhatItReads(t *testing.T) {
	sound := checkSample(t)
	for name, damage := range map[string]func(d *damager){
		"objects: leaf flagged as branch": func(d *damager) { d.leaves(pods.objects)[1].data[8] = flagBranch },
		"objects: overflow":               func(d *damager) { overflow(d.leaves(pods.objects)[1], 1) },
		"departed: overflow":              func(d *damager) { overflow(d.leaves(pods.departed)[1], 1) },
		"index: overflow":                 func(d *damager) { overflow(d.leaves(podsZone)[1], 1) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDamager(t, bytes.Clone(sound))
			path := filepath.Join(t.TempDir(), "cache.db")
			if err := os.WriteFile(path, d.file, 0o600); err != nil {
				t.Fatal(err)
			}
			damage(d)
			var log bytes.Buffer
			logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
			db, err := Open(path, ScrubAllTheTime(Options{Logger: &logger}, 10_000))
			if err != nil {
				t.Fatal(err)
			}
			if err := db.current().opened.Load().awaitTrusted(t.Context()); err != nil {
				t.Fatal(err)
			}
			writeOver(t, path, d.file)
			for s := db.Status().Scrub; s.Problems == 0; s = db.Status().Scrub {
				time.Sleep(time.Millisecond) //hygiene:allow time.Sleep: the scrub announces nothing
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
			if said := log.String(); !strings.Contains(said, "found by the scrub: ") || strings.Contains(said, "bbolt: ") {
				t.Errorf("not found, or by bbolt:\n%s", said)
			}
		})
	}
}
