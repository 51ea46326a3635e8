package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/warmcache/warmcache/migrations"
	"github.com/warmcache/warmcache/store"
)

var (
	podsID  = store.Identity{Version: "v1", Resource: "pods", Form: store.FormTyped}
	nodesID = store.Identity{Version: "v1", Resource: "nodes", Form: store.FormTyped}
)

// checkSample returns a closed file with two collections: pods, whose buckets are
// trees of several pages, and nodes, which is small enough for the directory.
func checkSample(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cache.db")
	db, err := Open(path, Options{FlushInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for id, n := range map[store.Identity]int{podsID: 500, nodesID: 3} {
		c, err := db.Collection(id, "test")
		if err != nil {
			t.Fatal(err)
		}
		put, depart := store.Batch{}, store.Batch{}
		for i := range n {
			op := store.Op{Key: fmt.Sprintf("ns/%04d", i), Value: store.Seal(bytes.Repeat([]byte{'v'}, 10+i*3))}
			op.Index = []store.IndexChange{{Name: "zone", Add: []string{fmt.Sprintf("zone-%d", i%50), "every"}}}
			put.Ops = append(put.Ops, op)
			if i%5 == 1 {
				op.Value, op.Depart = nil, "uid"
				op.Index = []store.IndexChange{{Name: "zone", Remove: op.Index[0].Add}}
				depart.Ops = append(depart.Ops, op)
			}
		}
		depart.Header = &store.Header{RV: "1", Complete: true, Indices: map[string]string{"zone": "1", "empty": "1"}}
		for _, b := range []store.Batch{put, depart} {
			if err := errors.Join(c.Apply(b), c.Flush(t.Context())); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return readUsed(t, path)
}

// readUsed reads a file without what bbolt has only reserved.
func readUsed(t testing.TB, path string) []byte {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	meta, _, err := readMeta(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	return file[:meta.pages*pageSize]
}

// checkBytes checks a file in memory and returns what was found.
func checkBytes(t testing.TB, file []byte) (CheckReport, []Problem) {
	t.Helper()
	var problems []Problem
	report, err := checkReader(t.Context(), bytes.NewReader(file), int64(len(file)), CheckOptions{
		Found: func(p Problem) bool { problems = append(problems, p); return true },
	})
	if err != nil {
		t.Error(err)
	}
	return report, problems
}

// damager changes a file in memory, through the structures that are in it.
type damager struct {
	t    testing.TB
	file []byte
	meta boltMeta
}

func newDamager(t testing.TB, file []byte) *damager {
	meta, _, err := readMeta(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	return &damager{t: t, file: file, meta: meta}
}

// page returns a page, in the memory of the file.
func (d *damager) page(id uint64) *page {
	p := parsePage(id, d.file[id*pageSize:])
	p.data = p.data[:(p.overflow+1)*pageSize]
	return p
}

func (d *damager) elements(p *page) []element {
	elements, err := p.elements(child{})
	if err != nil {
		d.t.Fatal(err)
	}
	return elements
}

// pages returns the pages of a kind in the tree at root, in order.
func (d *damager) pages(root uint64, flags uint16) (found []*page) {
	p := d.page(root)
	if p.flags == flags {
		found = append(found, p)
	}
	if p.flags == flagBranch {
		for _, e := range d.elements(p) {
			found = append(found, d.pages(e.child, flags)...)
		}
	}
	return found
}

// entry returns the element of a bucket in the directory, and its page.
func (d *damager) entry(bucket []byte) (*page, element) {
	for _, p := range d.pages(d.meta.root, flagLeaf) {
		for _, e := range d.elements(p) {
			if bytes.Equal(e.key, bucket) {
				return p, e
			}
		}
	}
	d.t.Fatalf("no bucket %q", bucket)
	return nil, element{}
}

// leaves and branches are the pages of a bucket that has several.
func (d *damager) leaves(bucket []byte) []*page { return d.several(bucket, flagLeaf, 4) }

func (d *damager) branches(bucket []byte) []*page { return d.several(bucket, flagBranch, 1) }

func (d *damager) several(bucket []byte, flags uint16, least int) []*page {
	_, e := d.entry(bucket)
	pages := d.pages(order.Uint64(e.value), flags)
	if len(pages) < least {
		d.t.Fatalf("%q has %d pages of kind %d, the test needs %d", bucket, len(pages), flags, least)
	}
	return pages
}

// inline returns the contents of a small bucket.
func (d *damager) inline(bucket []byte) *page {
	_, e := d.entry(bucket)
	if order.Uint64(e.value) != 0 {
		d.t.Fatalf("%q is not inline", bucket)
	}
	return parsePage(0, e.value[bucketHeader:])
}

// rewrite writes other elements to a page.
func (d *damager) rewrite(p *page, elements []element) {
	b := []byte{}
	at := pageHeader + len(elements)*pageElement
	for i, e := range elements {
		head := make([]byte, pageElement)
		pos := uint32(at - (pageHeader + i*pageElement))
		if p.flags == flagBranch {
			order.PutUint32(head, pos)
			order.PutUint32(head[4:], uint32(len(e.key)))
			order.PutUint64(head[8:], e.child)
		} else {
			order.PutUint32(head, e.flags)
			order.PutUint32(head[4:], pos)
			order.PutUint32(head[8:], uint32(len(e.key)))
			order.PutUint32(head[12:], uint32(len(e.value)))
		}
		b = append(b, head...)
		at += len(e.key) + len(e.value)
	}
	for _, e := range elements {
		b = append(append(b, e.key...), e.value...)
	}
	order.PutUint16(p.data[10:], uint16(len(elements)))
	if n := copy(p.data[pageHeader:], b); n < len(b) {
		d.t.Fatalf("%d bytes do not fit", len(b))
	}
}

// head is the header of an element in a page.
func head(p *page, i int) []byte { return p.data[pageHeader+i*pageElement:] }

// names of the buckets that are damaged.
var (
	pods      = namesOf(podsID)
	nodes     = namesOf(nodesID)
	podsZone  = pods.index("zone")
	nodesZone = nodes.index("zone")
)

// checkDamage are kinds of damage and what the problems must say, one of them
// all of it.
var checkDamage = []struct {
	name   string
	damage func(d *damager)
	want   []string
}{
	{"meta pages", func(d *damager) {
		d.file[pageHeader+20]++
		d.file[pageSize+pageHeader+20]++
	}, []string{"meta pages", "no valid meta page"}},
	{"cut short", func(d *damager) { clear(d.file[6*pageSize:]) }, []string{"says that it is page 0"}},

	{"free list: page in use", func(d *damager) {
		p := d.page(d.meta.freelist)
		order.PutUint16(p.data[10:], 1)
		order.PutUint64(p.data[pageHeader:], d.leaves(pods.objects)[2].id)
	}, []string{"v1/pods", "objects", "in use and free"}},
	{"free list: page lost", func(d *damager) {
		p := d.page(d.meta.freelist)
		order.PutUint16(p.data[10:], uint16(p.count-1))
	}, []string{"1 pages are neither used nor free"}},
	{"free list: out of order", func(d *damager) {
		p := d.page(d.meta.freelist)
		copy(p.data[pageHeader:], p.data[pageHeader+8:pageHeader+16])
	}, []string{"free list", "at 1"}},
	{"free list: kind", func(d *damager) { d.page(d.meta.freelist).data[8] = flagLeaf }, []string{"free list", "kind 0x2"}},
	{"free list: count", func(d *damager) { order.PutUint16(d.page(d.meta.freelist).data[10:], 5000) }, []string{"free list with 5000 pages"}},

	{"leaf: kind", func(d *damager) { d.leaves(pods.objects)[1].data[8] = flagBranch }, []string{"objects", "of kind 0x1 at depth"}},
	{"leaf: no kind", func(d *damager) { d.leaves(pods.objects)[1].data[8] = 0x40 }, []string{"objects", "kind 0x40"}},
	{"leaf: id", func(d *damager) { d.leaves(podsZone)[1].data[0]++ }, []string{`index "zone"`, "says that it is page"}},
	{"leaf: overflow", func(d *damager) { order.PutUint32(d.leaves(podsZone)[1].data[12:], 1) }, []string{`index "zone"`, "more pages"}},
	{"leaf: overflow without end", func(d *damager) { order.PutUint32(d.leaves(podsZone)[1].data[12:], 1<<31) }, []string{`index "zone"`, "more pages"}},
	{"leaf: count less", func(d *damager) {
		p := d.leaves(podsZone)[1]
		order.PutUint16(p.data[10:], uint16(p.count-1))
	}, []string{`index "zone"`, "element 0 is at"}},
	{"leaf: count more", func(d *damager) { order.PutUint16(d.leaves(podsZone)[1].data[10:], 60000) }, []string{`index "zone"`, "element 0 is at"}},
	{"leaf: empty", func(d *damager) { order.PutUint16(d.leaves(podsZone)[1].data[10:], 0) }, []string{`index "zone"`, "is empty"}},
	{"leaf: key out of order", func(d *damager) {
		p := d.leaves(podsZone)[1]
		elements := d.elements(p)
		elements[2], elements[3] = elements[3], elements[2]
		d.rewriteCloned(p, elements)
	}, []string{`index "zone"`, "comes after"}},
	{"leaf: key twice", func(d *damager) {
		p := d.leaves(podsZone)[1]
		elements := d.elements(p)
		elements[2] = elements[3]
		d.rewriteCloned(p, elements)
	}, []string{`index "zone"`, "comes after"}},
	{"leaf: last key beyond the next page", func(d *damager) {
		p := d.leaves(podsZone)[1]
		elements := d.elements(p)
		elements[len(elements)-1].key = bytes.Repeat([]byte{0xfe}, len(elements[len(elements)-1].key))
		d.rewriteCloned(p, elements)
	}, []string{`index "zone"`, "the next page begins with"}},
	{"leaf: first key not the parent's", func(d *damager) {
		p := d.leaves(pods.objects)[1]
		d.elements(p)[0].key[0]--
	}, []string{"objects", "in its parent"}},
	{"leaf: element outside", func(d *damager) { order.PutUint32(head(d.leaves(podsZone)[1], 1)[12:], 1<<30) }, []string{`index "zone"`, "outside"}},
	{"leaf: empty key", func(d *damager) { order.PutUint32(head(d.leaves(podsZone)[1], 1)[8:], 0) }, []string{`index "zone"`, "outside"}},
	{"leaf: gap", func(d *damager) {
		h := head(d.leaves(podsZone)[1], 1)
		order.PutUint32(h[4:], order.Uint32(h[4:])+1)
	}, []string{`index "zone"`, "is at"}},
	{"leaf: bucket in a bucket", func(d *damager) { order.PutUint32(head(d.leaves(podsZone)[1], 1), leafIsBucket) }, []string{`index "zone"`, "is a bucket"}},
	{"leaves swapped", func(d *damager) {
		leaves := d.leaves(podsZone)
		a, b := leaves[1], leaves[2]
		kept := bytes.Clone(a.data)
		copy(a.data, b.data)
		copy(b.data, kept)
		order.PutUint64(a.data, a.id)
		order.PutUint64(b.data, b.id)
	}, []string{`index "zone"`, "in its parent"}},

	{"branch: key", func(d *damager) { d.elements(d.branches(pods.objects)[0])[1].key[3]-- }, []string{"objects", "in its parent"}},
	{"branch: leaf lost", func(d *damager) {
		p := d.branches(podsZone)[0]
		d.rewriteCloned(p, slices.Delete(d.elements(p), 1, 2))
	}, []string{"1 pages are neither used nor free"}},
	{"branch: objects lost", func(d *damager) {
		p := d.branches(pods.objects)[0]
		d.rewriteCloned(p, slices.Delete(d.elements(p), 1, 2))
	}, []string{"v1/pods", "totals", "found"}},
	{"branch: page twice", func(d *damager) {
		p := d.branches(podsZone)[0]
		order.PutUint64(head(p, 1)[8:], d.elements(p)[2].child)
	}, []string{`index "zone"`, "used twice"}},
	{"branch: page beyond the end", func(d *damager) { order.PutUint64(head(d.branches(podsZone)[0], 1)[8:], 1<<40) }, []string{`index "zone"`, "reference to page"}},
	{"branch: meta page", func(d *damager) { order.PutUint64(head(d.branches(podsZone)[0], 1)[8:], 0) }, []string{`index "zone"`, "reference to page 0"}},
	{"branch: itself", func(d *damager) {
		p := d.branches(podsZone)[0]
		order.PutUint64(head(p, 1)[8:], p.id)
	}, []string{`index "zone"`, "used twice"}},
	{"branch: empty", func(d *damager) { order.PutUint16(d.branches(podsZone)[0].data[10:], 0) }, []string{`index "zone"`, "is empty"}},
	{"directory: not a bucket", func(d *damager) {
		p := d.pages(d.meta.root, flagLeaf)[0]
		order.PutUint32(head(p, 0), 0)
	}, []string{"directory", "is not a bucket"}},
	{"directory: no root", func(d *damager) {
		_, e := d.entry(podsZone)
		order.PutUint64(e.value, 0)
	}, []string{`index "zone"`, "no contents"}},
	{"directory: name of a header", func(d *damager) {
		_, e := d.entry(pods.header)
		e.key[3]++
	}, []string{"bucket", "belongs to no collection"}},
	{"directory: name of an index", func(d *damager) {
		_, e := d.entry(podsZone)
		e.key[len(e.key)-1]++
	}, []string{`index "zonf"`, "no totals"}},
	{"directory: name of objects", func(d *damager) {
		_, e := d.entry(nodes.objects)
		e.key[len(e.key)-1]++
	}, []string{`bucket "o/v1/nodes?form=typee"`, "belongs to no collection"}},

	{"inline: kind", func(d *damager) { d.inline(nodes.objects).data[8] = flagBranch }, []string{"v1/nodes", "objects", "kind 0x1"}},
	{"inline: key", func(d *damager) { d.elements(d.inline(nodes.objects))[0].key[0]++ }, []string{"v1/nodes", "objects", "comes after"}},
	{"inline: count", func(d *damager) { order.PutUint16(d.inline(nodesZone).data[10:], 0xffff) }, []string{"v1/nodes", `index "zone"`, "element 0 is at"}},
	{"inline: lost", func(d *damager) { order.PutUint16(d.inline(nodes.objects).data[10:], 0) }, []string{"v1/nodes", "totals", "found"}},
	{"inline: index lost", func(d *damager) { order.PutUint16(d.inline(nodesZone).data[10:], 0) }, []string{"v1/nodes", `index "zone"`, "totals"}},

	{"object: key", func(d *damager) {
		e := d.elements(d.leaves(pods.objects)[1])[1]
		e.key[len(e.key)-1] = '!'
	}, []string{"v1/pods", "totals", "found"}},
	{"object: value", func(d *damager) { d.elements(d.leaves(pods.objects)[1])[1].value[5]++ }, []string{`v1/pods?form=typed: object "ns/`, "checksum"}},
	{"departed: value", func(d *damager) { d.elements(d.leaves(pods.departed)[1])[1].value[15]++ }, []string{"v1/pods", "departed record", "checksum"}},
	{"departed: key", func(d *damager) {
		e := d.elements(d.leaves(pods.departed)[1])[1]
		e.key[len(e.key)-1]++
	}, []string{"v1/pods", "departed record", "checksum"}},
	{"index: entry", func(d *damager) {
		p := d.leaves(podsZone)[1]
		d.elements(p)[1].key[0] ^= 1
	}, []string{"v1/pods", `index "zone"`}},
	{"index: entry of another object", func(d *damager) {
		// The last of its leaf, which may be any object that exists.
		elements := d.elements(d.leaves(podsZone)[0])
		e := elements[len(elements)-1]
		copy(e.key[len(e.key)-4:], "0499")
	}, []string{"v1/pods", `index "zone"`, "its totals are"}},
	{"header", func(d *damager) { d.value(pods.header, headerKey)[3]++ }, []string{"v1/pods", "header", "checksum"}},
	{"totals", func(d *damager) { d.value(pods.header, totalsKey)[3]++ }, []string{"v1/pods", "header", "totals", "checksum"}},
	{"index totals", func(d *damager) { d.value(pods.header, indexTotalsKey("zone"))[3]++ }, []string{"v1/pods", "header", `index "zone"`, "checksum"}},
	{"meta: value", func(d *damager) { d.value(metaBucket, createdKey)[3]++ }, []string{"meta", "created", "checksum"}},
	{"meta: format", func(d *damager) { d.value(metaBucket, formatKey)[0]++ }, []string{"meta", "format version", "checksum"}},
	{"meta: key", func(d *damager) {
		e := d.elements(d.inline(metaBucket))[2]
		e.key[1]++
	}, []string{"meta", `unknown key "wsiter"`}},
}

// rewriteCloned is rewrite for elements that are in the page itself.
func (d *damager) rewriteCloned(p *page, elements []element) {
	for i := range elements {
		elements[i].key, elements[i].value = bytes.Clone(elements[i].key), bytes.Clone(elements[i].value)
	}
	d.rewrite(p, elements)
}

// value returns the value of a key in a small bucket.
func (d *damager) value(bucket, key []byte) []byte {
	for _, e := range d.elements(d.inline(bucket)) {
		if bytes.Equal(e.key, key) {
			return e.value
		}
	}
	d.t.Fatalf("%q has no %q", bucket, key)
	return nil
}

func TestCheck_NamesTheDamage(t *testing.T) {
	sound := checkSample(t)
	if _, problems := checkBytes(t, sound); len(problems) > 0 {
		t.Fatalf("in a sound file: %v", problems)
	}
	for _, test := range checkDamage {
		t.Run(test.name, func(t *testing.T) {
			d := newDamager(t, bytes.Clone(sound))
			test.damage(d)
			report, problems := checkBytes(t, d.file)
			wantProblem(t, problems, test.want...)
			if report.Problems != int64(len(problems)) {
				t.Errorf("reported %d, counts %d", len(problems), report.Problems)
			}
			for _, p := range problems {
				if !errors.Is(p, store.ErrCorrupt) {
					t.Errorf("%v does not wrap ErrCorrupt", p)
				}
			}
		})
	}
}

// wantProblem checks that one of the problems says all parts.
func wantProblem(t *testing.T, problems []Problem, parts ...string) {
	t.Helper()
	for _, p := range problems {
		said := p.String()
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(said, part) }) {
			return
		}
	}
	t.Errorf("no problem says %q:\n%v", parts, problems)
}

// TestCheck_NamesWrongContents makes, with bbolt, files whose trees are sound and
// whose contents are not.
func TestCheck_NamesWrongContents(t *testing.T) {
	sound := checkSample(t)
	pair := func(value, key string) []byte { return encodePair(value, key) }
	for _, test := range []struct {
		name string
		edit func(tx *bbolt.Tx) error
		want []string
	}{
		{"object lost", func(tx *bbolt.Tx) error { return tx.Bucket(nodes.objects).Delete([]byte("ns/0000")) }, []string{"v1/nodes", "totals", "found"}},
		{"object lost, index", func(tx *bbolt.Tx) error { return tx.Bucket(nodes.objects).Delete([]byte("ns/0000")) }, []string{"v1/nodes", `index "zone"`, "2 entries belong to objects that do not exist", `"ns/0000"`}},
		{"object added", func(tx *bbolt.Tx) error {
			return tx.Bucket(nodes.objects).Put([]byte("ns/x"), store.Seal([]byte("x")))
		}, []string{"v1/nodes", "totals", "found"}},
		{"object older", func(tx *bbolt.Tx) error {
			return tx.Bucket(nodes.objects).Put([]byte("ns/0000"), store.Seal(bytes.Repeat([]byte{'w'}, 10)))
		}, []string{"v1/nodes", "totals", "found"}},
		{"object not sealed", func(tx *bbolt.Tx) error { return tx.Bucket(nodes.objects).Put([]byte("ns/0000"), []byte("x")) }, []string{"v1/nodes", `object "ns/0000"`}},
		{"objects lost", func(tx *bbolt.Tx) error { return tx.DeleteBucket(nodes.objects) }, []string{"v1/nodes", "totals", "found"}},
		{"departed record lost", func(tx *bbolt.Tx) error { return tx.Bucket(nodes.departed).Delete(pair("ns/0001", "uid")) }, []string{"v1/nodes", "totals", "found"}},
		{"departed records lost", func(tx *bbolt.Tx) error { return tx.DeleteBucket(nodes.departed) }, []string{"v1/nodes", "totals", "found"}},
		{"index entry lost", func(tx *bbolt.Tx) error { return tx.Bucket(podsZone).Delete(pair("zone-2", "ns/0002")) }, []string{"v1/pods", `index "zone"`, "its totals are"}},
		{"index entry added", func(tx *bbolt.Tx) error { return tx.Bucket(podsZone).Put(pair("zone-9", "ns/0002"), nil) }, []string{"v1/pods", `index "zone"`, "its totals are"}},
		{"index entry moved", func(tx *bbolt.Tx) error {
			b := tx.Bucket(podsZone)
			return errors.Join(b.Delete(pair("zone-2", "ns/0002")), b.Put(pair("zone-3", "ns/0002"), nil))
		}, []string{"v1/pods", `index "zone"`, "its totals are"}},
		{"index entry with a value", func(tx *bbolt.Tx) error {
			return tx.Bucket(podsZone).Put(pair("zone-2", "ns/0002"), []byte("x"))
		}, []string{"v1/pods", `index "zone"`, "has a value"}},
		{"index entry malformed", func(tx *bbolt.Tx) error { return tx.Bucket(podsZone).Put([]byte("x"), nil) }, []string{"v1/pods", `index "zone"`, "not an encoded pair"}},
		{"index lost", func(tx *bbolt.Tx) error { return tx.DeleteBucket(podsZone) }, []string{"v1/pods", `index "zone"`, "its totals are"}},
		{"index totals lost", func(tx *bbolt.Tx) error { return tx.Bucket(pods.header).Delete(indexTotalsKey("zone")) }, []string{"v1/pods", `index "zone"`, "no totals"}},
		{"index and totals lost", func(tx *bbolt.Tx) error {
			return errors.Join(tx.DeleteBucket(podsZone), tx.Bucket(pods.header).Delete(indexTotalsKey("zone")))
		}, []string{"v1/pods", `index "zone"`, "no totals"}},
		{"totals lost", func(tx *bbolt.Tx) error { return tx.Bucket(pods.header).Delete(totalsKey) }, []string{"v1/pods", "totals", "there are none"}},
		{"header with an unknown key", func(tx *bbolt.Tx) error { return tx.Bucket(pods.header).Put([]byte("x"), nil) }, []string{"v1/pods", "header", `unknown key "x"`}},
		{"header lost", func(tx *bbolt.Tx) error { return tx.DeleteBucket(pods.header) }, []string{`bucket "o/v1/pods`, "belongs to no collection"}},
		{"no identity", func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("h/x")); return err }, []string{`bucket "h/x"`, "belongs to no collection"}},
		{"unknown bucket", func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("x")); return err }, []string{`bucket "x"`, "belongs to no collection"}},
		{"nested bucket", func(tx *bbolt.Tx) error {
			_, err := tx.Bucket(pods.header).CreateBucket([]byte("x"))
			return err
		}, []string{"v1/pods", "header", `"x" is a bucket`}},
		{"format lost", func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Delete(formatKey) }, []string{"meta", "1 of 3 keys are missing"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, problems := checkBytes(t, edited(t, sound, test.edit))
			wantProblem(t, problems, test.want...)
		})
	}
}

// edited returns a copy of a file after a transaction.
func edited(t *testing.T, file []byte, edit func(tx *bbolt.Tx) error) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cache.db")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, fileMode, boltOptions())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(edit), db.Close()); err != nil {
		t.Fatal(err)
	}
	return readUsed(t, path)
}

// TestCheck_Truncated cuts a file everywhere.
func TestCheck_Truncated(t *testing.T) {
	sound := checkSample(t)
	// An empty file could be anything.
	for size := pageSize / 2; size < len(sound); size += pageSize / 2 {
		if _, problems := checkBytes(t, sound[:size]); len(problems) == 0 {
			t.Errorf("nothing found in %d bytes of %d", size, len(sound))
		}
	}
	_, problems := checkBytes(t, sound[:len(sound)-pageSize])
	wantProblem(t, problems, "free list", "truncated")
}

// TestCheck_TornMeta accepts what a crash in the middle of a commit leaves, and
// says so.
func TestCheck_TornMeta(t *testing.T) {
	sound := checkSample(t)
	for i := range 2 {
		file := bytes.Clone(sound)
		clear(file[i*pageSize+40 : i*pageSize+60])
		report, problems := checkBytes(t, file)
		if !report.TornMeta || len(problems) > 0 {
			t.Errorf("meta page %d: torn %v, %v", i, report.TornMeta, problems)
		}
	}
	if report, _ := checkBytes(t, sound); report.TornMeta {
		t.Error("a sound file is said to be torn")
	}
}

func TestCheck_OtherFiles(t *testing.T) {
	sound := checkSample(t)
	newer := edited(t, sound, func(tx *bbolt.Tx) error {
		return tx.Bucket(metaBucket).Put(formatKey, encodeFormat(migrations.Current+1))
	})
	anonymous := edited(t, sound, func(tx *bbolt.Tx) error { return tx.DeleteBucket(metaBucket) })
	other := edited(t, structured(t), func(*bbolt.Tx) error { return nil })
	for name, test := range map[string]struct {
		file []byte
		want error
	}{
		"newer":          {newer, store.ErrNewerFormat},
		"not bbolt":      {bytes.Repeat([]byte("text"), 5000), errForeign},
		"other buckets":  {other, errForeign},
		"no meta bucket": {anonymous, errForeign},
	} {
		_, err := checkReader(t.Context(), bytes.NewReader(test.file), int64(len(test.file)), CheckOptions{})
		if !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", name, err, test.want)
		}
	}
}

// FuzzCheck must end, whatever the file. Both meta pages are given a checksum, so
// that what they say is believed.
func FuzzCheck(f *testing.F) {
	file := checkSample(f)
	f.Add(file[2*pageSize:2*pageSize+64], uint32(2*pageSize), uint32(0), uint64(0), false)
	f.Add(file[4*pageSize:4*pageSize+64], uint32(4*pageSize), uint32(8), uint64(1<<60), true)
	f.Fuzz(func(t *testing.T, part []byte, to, at uint32, value uint64, sums bool) {
		damaged := bytes.Clone(file)
		copy(damaged[int(to)%len(damaged):], part)
		order.PutUint64(damaged[int(at)%(len(damaged)-8):], value)
		if sums {
			for i := range 2 {
				b := damaged[i*pageSize+pageHeader:]
				order.PutUint64(b[metaSize-8:], metaSum(b))
			}
		}
		_, err := checkReader(context.Background(), bytes.NewReader(damaged), int64(len(damaged)), CheckOptions{})
		if err != nil && !errors.Is(err, errForeign) && !errors.Is(err, store.ErrNewerFormat) {
			t.Errorf("got %v", err)
		}
	})
}
