package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"

	"github.com/warmcache/warmcache/store"
)

// pageSize of files. bbolt would take the machine's, and the same file must be
// readable on another.
const pageSize = 4096

// bbolt's file format, as far as it is verified here. Numbers are in the byte
// order of the machine.
const (
	boltMagic   = 0xED0CDAED
	boltVersion = 2

	pageHeader  = 16 // id 8, flags 2, count 2, overflow 4
	pageElement = 16 // branch: pos 4, ksize 4, pgid 8; leaf: flags 4, pos 4, ksize 4, vsize 4
	metaSize    = 64

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagFreelist = 0x10

	leafIsBucket = 0x01
	bucketHeader = 16 // root 8, sequence 8

	// maxDepth of a tree: more than any that fits into 64 bits of pages.
	maxDepth = 64
)

var order = binary.NativeEndian

// bbolt relies on the structure of a file without checking it. From damage of it,
// it panics in a way that nobody can recover from, recurses without end, frees pages
// that are in use, or finds nothing where something is. So the structure is verified
// before bbolt meets it, in two parts, both of which stop at the first thing that
// does not hold:
//
//   - checkHead: the meta pages, the list of free pages, the directory of buckets,
//     and the small buckets that describe the file and its collections. What it takes
//     does not depend on the number of objects. Open does it.
//   - checkTrees: that and the tree of every bucket: each branch page, of each leaf
//     its kind, its length and its first key, and that no page is used twice. It reads
//     the first page of everything. The committer does it before it does anything
//     else; until it has ended, the trees are read by pageBucket.
//
// What is left is inside of leaves. Its damage shows as a panic that can be recovered
// from, as a checksum of a record, in the totals, or before a transaction changes it:
// see writeTx. Check reads everything.
//
// Errors wrap store.ErrCorrupt, errUnreadable, or errForeign for a file that was never
// ours.

// checkHead verifies what Open relies on.
func checkHead(file io.ReaderAt, size int64) (boltMeta, error) {
	return checkBuckets(file, size, nil, func(w *walker, b *bucket) error {
		root := order.Uint64(b.value)
		if root == 0 || bytes.Equal(b.name, metaBucket) || bytes.HasPrefix(b.name, []byte(headerPrefix)) {
			return w.bucket(b, func(*page, element) error { return nil })
		}
		return w.use(root)
	})
}

// checkTrees verifies everything that bbolt relies on. Step, if not nil, is called
// for each page and can end it.
func checkTrees(file io.ReaderAt, size int64, step func(pages uint64) error) error {
	_, err := checkBuckets(file, size, step, func(w *walker, b *bucket) error { return w.bucket(b, nil) })
	return err
}

func checkBuckets(file io.ReaderAt, size int64, step func(uint64) error, fn func(*walker, *bucket) error) (boltMeta, error) {
	w := &walker{file: file, step: step, problem: func(err error) error { return err }}
	meta, _, err := readMeta(file)
	if err != nil {
		return meta, err
	}
	if err := w.begin(meta, size); err != nil {
		return meta, err
	}
	return meta, w.directory(meta.root, func(b *bucket) error { return fn(w, b) })
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", store.ErrCorrupt, fmt.Sprintf(format, args...))
}

// boltMeta is what a meta page says.
type boltMeta struct{ root, freelist, pages, txid uint64 }

// readMeta returns the valid meta page with the highest transaction id, as bbolt
// does. Torn says that the other one is not valid, as after a crash.
func readMeta(file io.ReaderAt) (meta boltMeta, torn bool, err error) {
	ours, valid := false, 0
	for i := range int64(2) {
		page := make([]byte, pageHeader+metaSize)
		n, err := file.ReadAt(page, i*pageSize)
		if n >= pageHeader+4 {
			ours = ours || order.Uint32(page[pageHeader:]) == boltMagic
		}
		switch {
		case errors.Is(err, io.EOF) && !ours:
			return boltMeta{}, false, errForeign
		case errors.Is(err, io.EOF):
			return boltMeta{}, false, damaged("the file ends at %d bytes, within its meta pages", i*pageSize+int64(n))
		case err != nil:
			return boltMeta{}, false, readError(fmt.Sprintf("meta page %d", i), err)
		}
		b := page[pageHeader:]
		if m, ok := parseMeta(b); ok {
			valid++
			if valid == 1 || m.txid > meta.txid {
				meta = m
			}
		}
	}
	switch {
	case !ours:
		return boltMeta{}, false, errForeign
	case valid == 0:
		return boltMeta{}, false, damaged("no valid meta page")
	}
	return meta, valid < 2, nil
}

// metaSum is the checksum at the end of a meta page.
func metaSum(b []byte) uint64 {
	sum := fnv.New64a()
	_, _ = sum.Write(b[:metaSize-8]) // never fails
	return sum.Sum64()
}

func parseMeta(b []byte) (boltMeta, bool) {
	valid := order.Uint32(b) == boltMagic &&
		order.Uint32(b[4:]) == boltVersion &&
		order.Uint32(b[8:]) == pageSize &&
		order.Uint64(b[metaSize-8:]) == metaSum(b)
	return boltMeta{
		root:     order.Uint64(b[16:]),
		freelist: order.Uint64(b[32:]),
		pages:    order.Uint64(b[40:]),
		txid:     order.Uint64(b[48:]),
	}, valid
}

// pageState is what is known of a page.
type pageState uint8

const (
	pageUnknown pageState = iota
	pageUsed
	pageFree
)

// walker reads the pages of a file. It trusts nothing it reads: it ends whatever
// the bytes are, because it reads no page twice, and allocates no more than the
// file is long. It does not use bbolt.
type walker struct {
	file io.ReaderAt
	// problem is told what does not hold. The walk goes on, past what cannot be
	// read, if it returns nil, and ends with its error otherwise.
	problem func(error) error
	// step, if not nil, is called before pages are read, with their number; its
	// error ends the walk.
	step func(pages uint64) error
	// pages is how many the meta page counts, free ones included, and the file
	// has.
	pages uint64
	// states has an entry for each page, or is nil if nobody wants to know.
	states []pageState
}

// begin verifies what a meta page refers to, and the list of free pages.
func (w *walker) begin(meta boltMeta, size int64) error {
	w.pages = min(meta.pages, uint64(size)/pageSize)
	w.states = make([]pageState, w.pages)
	if w.pages < meta.pages {
		if err := w.problem(damaged("truncated to %d bytes, %d pages are in use", size, meta.pages)); err != nil {
			return err
		}
	}
	if err := w.freelist(meta.freelist); err != nil {
		return w.problem(err)
	}
	return nil
}

// use marks a page as used.
func (w *walker) use(id uint64) error {
	if id < 2 || id >= w.pages {
		return damaged("reference to page %d of %d", id, w.pages)
	}
	if w.states == nil {
		return nil
	}
	before := w.states[id]
	w.states[id] = pageUsed
	switch before {
	case pageUsed:
		return damaged("page %d is used twice", id)
	case pageFree:
		// Worth a report, but no reason not to read it.
		return w.problem(damaged("page %d is in use and free", id))
	}
	return nil
}

// freelist marks the free pages.
func (w *walker) freelist(id uint64) error {
	if err := w.use(id); err != nil {
		return err
	}
	b, err := w.freeIDs(id)
	if err != nil {
		return err
	}
	previous := uint64(1)
	for i := 0; i < len(b); i += 8 {
		free := order.Uint64(b[i:])
		// At this point, nothing is used but the list itself.
		if free <= previous || free >= w.pages || w.states[free] == pageUsed {
			err = damaged("free list with page %d at %d", free, i/8)
			continue
		}
		previous = free
		w.states[free] = pageFree
	}
	return err
}

// freeIDs reads the ids in the free list. bbolt estimates how many pages it
// needs, so that not all of them may be filled.
func (w *walker) freeIDs(id uint64) ([]byte, error) {
	p, err := w.header(id, make([]byte, pageHeader+8))
	if err != nil {
		return nil, err
	}
	if p.flags != flagFreelist || p.overflow >= w.pages-id {
		return nil, damaged("page %d has kind %#x and %d more pages, want a free list", id, p.flags, p.overflow)
	}
	if err := w.useOverflow(p); err != nil {
		return nil, err
	}
	count, from := uint64(p.count), uint64(pageHeader)
	if p.count == 0xffff {
		// More than fits into the header: the first number is the count.
		count, from = order.Uint64(p.data[pageHeader:]), pageHeader+8
	}
	if room := (p.overflow+1)*pageSize - from; count > room/8 {
		return nil, damaged("free list with %d pages in %d bytes", count, room)
	}
	// bbolt takes the pages of the list from the list, after it has decided how many.
	if p.overflow > (pageHeader+8*(count+p.overflow+2))/pageSize {
		return nil, damaged("free list with %d pages in %d", count, p.overflow+1)
	}
	b := make([]byte, count*8)
	return b, w.read(b, int64(id*pageSize+from))
}

// bucket is an entry of the directory.
type bucket struct {
	name []byte
	// value has the root page or, if that is 0, the whole bucket.
	value []byte
	// page is the one that the entry is in.
	page uint64
}

// directory verifies the tree of buckets, and calls fn for each. What fn gets
// is valid until it returns.
func (w *walker) directory(root uint64, fn func(*bucket) error) error {
	return w.tree(root, func(p *page, e element) error {
		if e.flags != leafIsBucket || len(e.value) < bucketHeader {
			return w.problem(damaged("page %d: %q is not a bucket", p.id, e.key))
		}
		return fn(&bucket{name: e.key, value: e.value, page: p.id})
	})
}

// bucket verifies the tree of a bucket and calls leaf for its entries. If leaf is
// nil, it reads only the beginning of leaves.
func (w *walker) bucket(b *bucket, leaf leafFunc) error {
	if root := order.Uint64(b.value); root != 0 {
		return w.tree(root, leaf)
	}
	// A small bucket is stored in place of its root, as one leaf.
	p, err := parseInline(b)
	if err != nil {
		return w.problem(err)
	}
	return w.leafPage(p, child{}, leaf)
}

// leafFunc is called for each element of the leaves of a tree, in order.
type leafFunc func(*page, element) error

// tree verifies the tree at root.
func (w *walker) tree(root uint64, leaf leafFunc) error {
	t := &treeWalk{walker: w, leaf: leaf, height: -1}
	return t.visit(child{id: root}, 0)
}

// treeWalk is the walk through one tree.
type treeWalk struct {
	*walker
	leaf leafFunc
	// height is the depth of all leaves, -1 before the first was reached.
	height int
	// buffer is the memory of the leaf that is being read.
	buffer []byte
}

// child is a page and the bounds of its keys, as its parent says: first, which
// must be its first key, and last, which is beyond its last. Nil is no bound.
type child struct {
	id          uint64
	first, last []byte
}

// visit verifies the page c and everything below.
func (t *treeWalk) visit(c child, depth int) error {
	if err := t.use(c.id); err != nil {
		return t.problem(err)
	}
	if t.leaf == nil && depth == t.height {
		return t.leafHead(c)
	}
	p, err := t.load(c.id, t.buffer)
	if err != nil {
		return t.problem(err)
	}
	if p.flags == flagLeaf {
		t.buffer = p.data
	} else {
		p.data = bytes.Clone(p.data)
	}
	return t.page(p, c, depth)
}

// leafHead verifies kind and length of a leaf, and that its first key is the one in its
// parent: bbolt would look for it elsewhere if it were not.
func (t *treeWalk) leafHead(c child) error {
	t.buffer = slices.Grow(t.buffer[:0], pageSize)[:pageSize]
	p, err := t.header(c.id, t.buffer)
	if err == nil && (p.flags != flagLeaf || p.count == 0) {
		err = damaged("page %d is of kind %#x with %d elements, want a leaf", c.id, p.flags, p.count)
	}
	if err == nil {
		err = t.checkOverflow(p)
	}
	if err == nil {
		err = t.useOverflow(p)
	}
	if err != nil {
		return t.problem(err)
	}
	return t.leafFirst(p, c)
}

// leafFirst verifies the first key of a leaf.
func (t *treeWalk) leafFirst(p *page, c child) error {
	if p.count == 0 {
		return nil // a root, which may be empty
	}
	first, err := t.firstKey(p)
	if err == nil && c.first != nil && !bytes.Equal(first, c.first) {
		err = damaged("page %d: the first key is %q, %q in its parent", c.id, first, c.first)
	}
	if err != nil {
		return t.problem(err)
	}
	return nil
}

// page verifies a page that was read and everything below.
func (t *treeWalk) page(p *page, c child, depth int) error {
	if err := t.checkDepth(p, depth); err != nil {
		return t.problem(err)
	}
	switch {
	case p.flags == flagBranch:
		return t.children(p, c, depth)
	case t.leaf == nil:
		return t.leafFirst(p, c)
	}
	return t.leafPage(p, c, t.leaf)
}

// checkDepth verifies that all leaves, and nothing else, are at one depth.
func (t *treeWalk) checkDepth(p *page, depth int) error {
	leaf := p.flags == flagLeaf
	if leaf && t.height < 0 {
		t.height = depth
	}
	switch {
	case leaf != (depth == t.height):
		return damaged("page %d is of kind %#x at depth %d, leaves are at %d", p.id, p.flags, depth, t.height)
	case depth >= maxDepth:
		return damaged("page %d: the tree has no end", p.id)
	case p.count == 0 && (!leaf || depth > 0):
		return damaged("page %d is empty", p.id)
	}
	return nil
}

// children verifies a branch page and visits its children.
func (t *treeWalk) children(p *page, c child, depth int) error {
	elements, err := t.elements(p, c)
	if err != nil {
		return err
	}
	for i, e := range elements {
		next := child{id: e.child, first: e.key, last: c.last}
		if i+1 < len(elements) {
			next.last = elements[i+1].key
		}
		if err := t.visit(next, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// leafPage verifies a leaf page and calls leaf, unless it is nil, for its
// elements.
func (w *walker) leafPage(p *page, c child, leaf leafFunc) error {
	elements, err := w.elements(p, c)
	if err != nil || leaf == nil {
		return err
	}
	for _, e := range elements {
		if err := leaf(p, e); err != nil {
			return err
		}
	}
	return nil
}

// elements returns those elements of p that can be read.
func (w *walker) elements(p *page, c child) ([]element, error) {
	elements, err := p.elements(c)
	if err != nil {
		err = w.problem(err)
	}
	return elements, err
}
