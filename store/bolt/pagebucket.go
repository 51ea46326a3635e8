package bolt

import (
	"bytes"
	"sort"
)

// pageBucket reads a tree that was not verified. Each page is verified before it is
// used: where it is, its kind, the order and the place of its elements, and that its
// keys are those that its parent says, so that a key which is not found is not there.
// It ends whatever the bytes are. It reads the file and not bbolt's mapping: a page
// could change in between.
type pageBucket struct {
	walker
	// root is the root page; 0 if small is the whole bucket.
	root  uint64
	small *bucket
	// flags are those of every element.
	flags uint32
	// spoiled is told why something cannot be read, and returns the error to return.
	spoiled func(error) error
}

// page reads and verifies a page of the tree.
func (b *pageBucket) page(c child, depth int) (branch bool, elements []element, err error) {
	if depth >= maxDepth {
		return false, nil, damaged("page %d: the tree has no end", c.id)
	}
	p, err := b.read(c.id, depth)
	if err != nil {
		return false, nil, err
	}
	if p.count == 0 && (p.flags == flagBranch || depth > 0) {
		return false, nil, damaged("page %d is empty", c.id)
	}
	elements, err = p.elements(c)
	for i := 0; i < len(elements) && err == nil; i++ {
		if p.flags == flagLeaf && elements[i].flags != b.flags {
			err = damaged("page %d: %q has flags %#x, want %#x", c.id, elements[i].key, elements[i].flags, b.flags)
		}
	}
	return p.flags == flagBranch, elements, err
}

func (b *pageBucket) read(id uint64, depth int) (*page, error) {
	if depth == 0 && id == 0 && b.small != nil {
		return parseInline(b.small)
	}
	if err := b.use(id); err != nil {
		return nil, err
	}
	return b.load(id, nil)
}

func (b *pageBucket) get(key []byte) ([]byte, error) {
	next := child{id: b.root}
	for depth := 0; ; depth++ {
		branch, elements, err := b.page(next, depth)
		switch {
		case err != nil:
			return nil, b.spoiled(err)
		case branch:
			next = descend(next, elements, onTheWay(elements, key))
		default:
			if i := firstFrom(elements, key); i < len(elements) && bytes.Equal(elements[i].key, key) {
				return elements[i].value, nil
			}
			return nil, nil
		}
	}
}

// firstFrom returns the first element with a key >= from.
func firstFrom(elements []element, from []byte) int {
	return sort.Search(len(elements), func(i int) bool { return bytes.Compare(elements[i].key, from) >= 0 })
}

// onTheWay returns the element of a branch below which key is, if it is anywhere.
func onTheWay(elements []element, key []byte) int {
	return max(0, sort.Search(len(elements), func(i int) bool { return bytes.Compare(elements[i].key, key) > 0 })-1)
}

// descend returns the child i of a branch, and the bounds of its keys.
func descend(parent child, elements []element, i int) child {
	next := child{id: elements[i].child, first: elements[i].key, last: parent.last}
	if i+1 < len(elements) {
		next.last = elements[i+1].key
	}
	return next
}

func (b *pageBucket) cursor() fileCursor { return &pageCursor{bucket: b, height: -1} }

// pageCursor walks a pageBucket.
type pageCursor struct {
	bucket *pageBucket
	// path are the pages from the root to the leaf where the cursor is; empty at the
	// end.
	path []position
	// height is the depth of all leaves, -1 before the first was reached.
	height int
}

// position is a page and the element of it that the cursor is at or below.
type position struct {
	page     child
	branch   bool
	elements []element
	at       int
}

func (c *pageCursor) seek(from []byte) (key, value []byte, err error) {
	c.path = c.path[:0]
	if err := c.descend(child{id: c.bucket.root}, from); err != nil {
		return nil, nil, c.fail(err)
	}
	return c.settle()
}

func (c *pageCursor) next() (key, value []byte, err error) {
	c.path[len(c.path)-1].at++
	return c.settle()
}

// descend goes to the first key >= from at or below a page, or behind the last one of
// the leaf where it would be.
func (c *pageCursor) descend(to child, from []byte) error {
	for {
		branch, elements, err := c.bucket.page(to, len(c.path))
		if err != nil {
			return err
		}
		if depth := len(c.path); !branch && c.height < 0 {
			c.height = depth
		} else if branch == (depth == c.height) {
			return damaged("page %d is at depth %d, leaves are at %d", to.id, depth, c.height)
		}
		p := position{page: to, branch: branch, elements: elements}
		if !branch {
			p.at = firstFrom(elements, from)
			c.path = append(c.path, p)
			return nil
		}
		p.at = onTheWay(elements, from)
		c.path = append(c.path, p)
		to = descend(to, elements, p.at)
	}
}

// settle returns where the cursor is. Behind the last element of a page, it goes to
// the next page.
func (c *pageCursor) settle() (key, value []byte, err error) {
	for len(c.path) > 0 {
		p := &c.path[len(c.path)-1]
		switch {
		case p.at >= len(p.elements):
			if c.path = c.path[:len(c.path)-1]; len(c.path) > 0 {
				c.path[len(c.path)-1].at++
			}
		case p.branch:
			if err := c.descend(descend(p.page, p.elements, p.at), nil); err != nil {
				return nil, nil, c.fail(err)
			}
		default:
			return p.elements[p.at].key, p.elements[p.at].value, nil
		}
	}
	return nil, nil, nil
}

// fail ends the cursor.
func (c *pageCursor) fail(err error) error {
	c.path = c.path[:0]
	return c.bucket.spoiled(err)
}
