package bolt

import (
	"cmp"
	"encoding/binary"
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

// checkStructure verifies what bbolt relies on without checking it, from damage
// of which it panics in a way that nobody can recover from, recurses without
// end, or finds nothing where something is: the meta pages, the list of free
// pages, the directory of buckets, and every branch page of every bucket: their
// kind, their bounds, the order of their keys, and that no page is used twice.
//
// It reads about a hundredth of a file with records of 4 KB, because it does not
// read leaf pages. Their damage shows as a panic that can be recovered from, as
// a checksum of a record, or in the totals.
//
// Errors wrap store.ErrCorrupt, or errForeign for a file that was never ours.
func checkStructure(file io.ReaderAt, size int64) error {
	w := &walker{file: file}
	meta, err := w.meta(size)
	if err != nil {
		return err
	}
	w.pages = meta.pages
	w.used = make([]bool, w.pages)
	free, err := w.freelist(meta.freelist)
	if err != nil {
		return err
	}
	if err := w.tree(meta.root, true); err != nil {
		return err
	}
	for _, id := range free {
		if w.used[id] {
			return damaged("page %d is in use and free", id)
		}
	}
	return nil
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", store.ErrCorrupt, fmt.Sprintf(format, args...))
}

// walker reads the pages of a file.
type walker struct {
	file io.ReaderAt
	// pages is the number of pages in use, free ones included.
	pages uint64
	// used marks the pages found so far.
	used []bool
}

// boltMeta is what a meta page says.
type boltMeta struct{ root, freelist, pages, txid uint64 }

// meta returns the valid meta page with the highest transaction id, as bbolt
// does. After a crash the other one may be torn.
func (w *walker) meta(size int64) (boltMeta, error) {
	var newest *boltMeta
	ours := false
	for i := range int64(2) {
		page := make([]byte, pageHeader+metaSize)
		if _, err := w.file.ReadAt(page, i*pageSize); err != nil {
			return boltMeta{}, fmt.Errorf("%w: %d bytes are too few: %w", store.ErrCorrupt, size, err)
		}
		b := page[pageHeader:]
		ours = ours || order.Uint32(b) == boltMagic
		if m, ok := parseMeta(b); ok && (newest == nil || m.txid > newest.txid) {
			newest = &m
		}
	}
	switch {
	case !ours:
		return boltMeta{}, errForeign
	case newest == nil:
		return boltMeta{}, damaged("no valid meta page")
	case newest.pages > uint64(size)/pageSize:
		return boltMeta{}, damaged("truncated to %d bytes, %d pages are in use", size, newest.pages)
	}
	return *newest, nil
}

func parseMeta(b []byte) (boltMeta, bool) {
	sum := fnv.New64a()
	_, _ = sum.Write(b[:metaSize-8]) // never fails
	valid := order.Uint32(b) == boltMagic &&
		order.Uint32(b[4:]) == boltVersion &&
		order.Uint32(b[8:]) == pageSize &&
		order.Uint64(b[metaSize-8:]) == sum.Sum64()
	return boltMeta{
		root:     order.Uint64(b[16:]),
		freelist: order.Uint64(b[32:]),
		pages:    order.Uint64(b[40:]),
		txid:     order.Uint64(b[48:]),
	}, valid
}

// freelist returns the free pages.
func (w *walker) freelist(id uint64) ([]uint64, error) {
	if err := w.use(id); err != nil {
		return nil, err
	}
	p, err := w.load(id, flagFreelist)
	if err != nil {
		return nil, err
	}
	b, count := p.data[pageHeader:], uint64(p.count)
	if p.count == 0xffff {
		// More than fits into the header: the first number is the count.
		count, b = order.Uint64(b), b[8:]
	}
	if count > uint64(len(b)/8) {
		return nil, damaged("free list with %d pages in %d bytes", count, len(b))
	}
	free := make([]uint64, count)
	for i := range free {
		free[i] = order.Uint64(b[i*8:])
		if free[i] < 2 || free[i] >= w.pages || i > 0 && free[i] <= free[i-1] {
			return nil, damaged("free list with page %d at %d", free[i], i)
		}
	}
	return free, nil
}

// tree verifies the tree at root, level by level. In the directory of buckets
// it reads the leaves, and the trees of the buckets in them.
func (w *walker) tree(root uint64, directory bool) error {
	if err := w.use(root); err != nil {
		return err
	}
	level := []child{{id: root}}
	for range maxDepth {
		// All leaves are at the same depth: one page tells the kind of its level.
		first, err := w.header(level[0].id)
		if err != nil {
			return err
		}
		if first.flags == flagLeaf {
			return w.leaves(level, directory)
		}
		if level, err = w.branches(level); err != nil {
			return err
		}
	}
	return damaged("the tree at page %d has no end", root)
}

// child is a page and the bounds of its keys, as its parent says: first
// inclusive, last exclusive and nil for no bound.
type child struct {
	id          uint64
	first, last []byte
}

// branches verifies one level of branch pages and returns the next.
func (w *walker) branches(level []child) ([]child, error) {
	var next []child
	for _, c := range level {
		p, err := w.load(c.id, flagBranch)
		if err != nil {
			return nil, err
		}
		elements, err := p.branchElements(c)
		if err != nil {
			return nil, err
		}
		for _, e := range elements {
			if err := w.use(e.id); err != nil {
				return nil, err
			}
		}
		next = append(next, elements...)
	}
	return next, nil
}

// leaves verifies the leaves of the directory, and the trees of the buckets
// that they name. Of the leaves of other trees only the headers are read.
func (w *walker) leaves(level []child, directory bool) error {
	if !directory {
		return w.leafHeaders(level)
	}
	for _, c := range level {
		p, err := w.load(c.id, flagLeaf)
		if err != nil {
			return err
		}
		for i := range p.count {
			if err := w.bucket(p, pageHeader+i*pageElement); err != nil {
				return err
			}
		}
	}
	return nil
}

// leafHeaders verifies how long leaves say they are. bbolt believes it when it
// frees one: a damaged number makes it put billions of pages on its free list,
// which ends the process.
func (w *walker) leafHeaders(level []child) error {
	// In the order of the file, which is what a disk reads fastest.
	slices.SortFunc(level, func(a, b child) int { return cmp.Compare(a.id, b.id) })
	for _, c := range level {
		p, err := w.header(c.id)
		if err != nil {
			return err
		}
		if err := w.extent(p, flagLeaf); err != nil {
			return err
		}
	}
	return nil
}

// bucket verifies the bucket named by the element at the given offset of a leaf
// of the directory.
func (w *walker) bucket(p *page, at int) error {
	if at+pageElement > len(p.data) {
		return damaged("leaf page %d with %d elements", p.id, p.count)
	}
	e := p.data[at:]
	keySize, valueSize := order.Uint32(e[8:]), order.Uint32(e[12:])
	if order.Uint32(e) != leafIsBucket || valueSize < bucketHeader {
		return damaged("leaf page %d has something that is not a bucket", p.id)
	}
	if _, err := p.slice(at, order.Uint32(e[4:]), keySize); err != nil {
		return err
	}
	value, err := p.slice(at, order.Uint32(e[4:])+keySize, valueSize)
	if err != nil {
		return err
	}
	if root := order.Uint64(value); root != 0 {
		return w.tree(root, false)
	}
	// A small bucket is stored in place of its root, as one leaf.
	inline := value[bucketHeader:]
	if len(inline) < pageHeader || order.Uint16(inline[8:]) != flagLeaf {
		return damaged("leaf page %d has a bucket without contents", p.id)
	}
	return nil
}
