package bolt

import (
	"bytes"
	"io"
	"sort"

	"go.etcd.io/bbolt"
)

// vetter looks at leaf pages before bbolt does.
//
// bbolt believes what a page says of itself. When it frees a page whose length is
// damaged, it frees pages that are in use, or puts billions on its list; and a leaf
// that says that it is a branch may lead it in a circle. Either takes all memory
// and with it the process: no error and no panic that could be caught, and the next
// process would end in the same way. The committer has verified all pages after the
// file was opened; those that a transaction changes are looked at again before it does.
type vetter struct {
	walker
	// seen are the pages that were verified, with the elements of branches.
	seen map[uint64][]element
}

func newVetter(tx *bbolt.Tx, file io.ReaderAt) vetter {
	return vetter{
		walker: walker{file: file, pages: uint64(tx.Size()) / pageSize},
		seen:   map[uint64][]element{},
	}
}

// writeTx is a write transaction that looks at pages before bbolt changes them.
type writeTx struct {
	*bbolt.Tx
	vetter
}

// vetCommit verifies what every commit replaces: the free list. It has to be
// called before the first change.
func (tx *writeTx) vetCommit() error {
	meta, _, err := readMeta(tx.file)
	if err != nil {
		return err
	}
	ids, err := tx.freeIDs(meta.freelist)
	previous := uint64(1)
	for i := 0; i < len(ids) && err == nil; i += 8 {
		id := order.Uint64(ids[i:])
		if id <= previous || id >= tx.pages {
			err = damaged("free list with page %d at %d", id, i/8)
		}
		previous = id
	}
	return err
}

// root returns the bucket of all buckets.
func (tx *writeTx) root() *bbolt.Bucket { return tx.Cursor().Bucket() }

// vetKey verifies the pages that a change of key in a bucket makes bbolt replace:
// those on the way to it, and those next to them, with which it may merge them.
func (v *vetter) vetKey(b *bbolt.Bucket, key []byte) error {
	id := uint64(b.Root())
	if id == 0 {
		return nil // a small bucket is in a page of the directory
	}
	for range maxDepth {
		elements, err := v.vetPage(id)
		if err != nil || elements == nil {
			return err
		}
		i := max(0, sort.Search(len(elements), func(i int) bool { return bytes.Compare(elements[i].key, key) > 0 })-1)
		for _, e := range elements[max(0, i-1):min(i+2, len(elements))] {
			if _, err := v.vetPage(e.child); err != nil {
				return err
			}
		}
		id = elements[i].child
	}
	return damaged("page %d: the tree has no end", id)
}

// vetBucket verifies all pages of a bucket, which may be nil.
func (v *vetter) vetBucket(b *bbolt.Bucket) error {
	if b == nil || b.Root() == 0 {
		return nil
	}
	visited := map[uint64]bool{}
	for todo := []uint64{uint64(b.Root())}; len(todo) > 0; {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if visited[id] {
			return damaged("page %d is used twice", id)
		}
		visited[id] = true
		elements, err := v.vetPage(id)
		if err != nil {
			return err
		}
		for _, e := range elements {
			todo = append(todo, e.child)
		}
	}
	return nil
}

// vetPage verifies kind and length of a page, and returns the elements of a branch;
// nil for a leaf.
func (v *vetter) vetPage(id uint64) ([]element, error) {
	if elements, ok := v.seen[id]; ok {
		return elements, nil
	}
	if err := v.use(id); err != nil {
		return nil, err
	}
	p, err := v.header(id, make([]byte, pageHeader))
	if err != nil {
		return nil, err
	}
	var elements []element
	switch {
	case p.flags == flagBranch:
		if p, err = v.load(id, nil); err == nil {
			elements, err = p.elements(child{})
		}
		if err == nil && len(elements) == 0 {
			err = damaged("page %d is empty", id)
		}
	case p.flags != flagLeaf:
		err = damaged("page %d has kind %#x, want a branch or leaf", id, p.flags)
	case p.count > 0 || p.overflow > 0:
		err = v.checkOverflow(p)
	}
	if err == nil {
		v.seen[id] = elements
	}
	return elements, err
}
