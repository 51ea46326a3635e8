package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/warmcache/warmcache/store"
)

// page is a page with its overflow.
type page struct {
	id       uint64
	flags    uint16
	count    int
	overflow uint64
	data     []byte
}

// element is an entry of a branch or leaf page, in the page's memory.
type element struct {
	key []byte
	// child is set in branches, flags and value in leaves.
	child uint64
	flags uint32
	value []byte
}

// read fills b from the file.
func (w *walker) read(b []byte, at int64) error {
	if _, err := w.file.ReadAt(b, at); err != nil {
		return readError(fmt.Sprintf("page %d", at/pageSize), err)
	}
	return nil
}

// readError tells a file that ends too early from a disk that fails.
func readError(what string, err error) error {
	kind := errUnreadable
	if errors.Is(err, io.EOF) {
		kind = store.ErrCorrupt
	}
	return fmt.Errorf("%w: %s: %w", kind, what, err)
}

// header reads the beginning of a page into b.
func (w *walker) header(id uint64, b []byte) (*page, error) {
	if err := w.announce(1); err != nil {
		return nil, err
	}
	if err := w.read(b, int64(id*pageSize)); err != nil {
		return nil, err
	}
	if got := order.Uint64(b); got != id {
		return nil, damaged("page %d says that it is page %d", id, got)
	}
	return parsePage(id, b), nil
}

func parsePage(id uint64, b []byte) *page {
	return &page{
		id: id, data: b,
		flags: order.Uint16(b[8:]), count: int(order.Uint16(b[10:])), overflow: uint64(order.Uint32(b[12:])),
	}
}

// parseInline returns the page that a small bucket is stored as.
func parseInline(b *bucket) (*page, error) {
	data := b.value[bucketHeader:]
	if len(data) < pageHeader {
		return nil, damaged("page %d: bucket %q has no contents", b.page, b.name)
	}
	p := parsePage(b.page, data)
	if p.flags != flagLeaf || p.overflow != 0 {
		return nil, damaged("page %d: bucket %q is of kind %#x", b.page, b.name, p.flags)
	}
	return p, nil
}

// load reads a page of a tree, which whoever refers to it has marked as used. It
// uses the memory of buffer, if that is enough.
func (w *walker) load(id uint64, buffer []byte) (*page, error) {
	p, err := w.header(id, slices.Grow(buffer[:0], pageSize)[:pageSize])
	if err != nil {
		return nil, err
	}
	if p.flags != flagBranch && p.flags != flagLeaf {
		return nil, damaged("page %d has kind %#x, want a branch or leaf", id, p.flags)
	}
	if p.overflow == 0 {
		return p, nil
	}
	// Before memory is allocated for it.
	if err := w.checkOverflow(p); err != nil {
		return nil, err
	}
	if err := w.useOverflow(p); err != nil {
		return nil, err
	}
	p.data = slices.Grow(p.data, int(p.overflow*pageSize))[:(p.overflow+1)*pageSize]
	return p, w.read(p.data[pageSize:], int64((id+1)*pageSize))
}

// checkOverflow verifies that a page has the size that its last element needs.
func (w *walker) checkOverflow(p *page) error {
	at := uint64(pageHeader + (p.count-1)*pageElement)
	if p.count == 0 || p.overflow >= w.pages-p.id || at+pageElement > (p.overflow+1)*pageSize {
		return damaged("page %d with %d elements has %d more pages", p.id, p.count, p.overflow)
	}
	e, err := w.lastElement(p, at)
	if err != nil {
		return err
	}
	pos, key, value := p.layout(e)
	if end := at + pos + key + value; (end-1)/pageSize != p.overflow {
		return damaged("page %d has %d more pages, its elements have %d bytes", p.id, p.overflow, end)
	}
	return nil
}

// lastElement returns the header of the element at the given offset of p, of which
// only the first page was read.
func (w *walker) lastElement(p *page, at uint64) ([]byte, error) {
	if at+pageElement <= uint64(len(p.data)) {
		return p.data[at:], nil
	}
	e := make([]byte, pageElement)
	return e, w.read(e, int64(p.id*pageSize+at))
}

// useOverflow marks the pages after p as used, before they are read.
func (w *walker) useOverflow(p *page) error {
	for i := range p.overflow {
		if err := w.use(p.id + 1 + i); err != nil {
			return err
		}
	}
	return w.announce(p.overflow)
}

func (w *walker) announce(pages uint64) error {
	if w.step == nil {
		return nil
	}
	return w.step(pages)
}

// layout returns where an element has its key, counted from itself, and the
// sizes of key and value.
func (p *page) layout(e []byte) (pos, key, value uint64) {
	if p.flags == flagBranch {
		return uint64(order.Uint32(e)), uint64(order.Uint32(e[4:])), 0
	}
	return uint64(order.Uint32(e[4:])), uint64(order.Uint32(e[8:])), uint64(order.Uint32(e[12:]))
}

// firstKey returns the first key of a page of which only the beginning was read. It is
// where the number of elements says, or that is wrong.
func (w *walker) firstKey(p *page) ([]byte, error) {
	pos, size, _ := p.layout(p.data[pageHeader:])
	from := pageHeader + pos
	end := from + size
	if from != uint64(pageHeader+p.count*pageElement) || end > (p.overflow+1)*pageSize {
		return nil, damaged("page %d with %d elements has the first one at %d", p.id, p.count, from)
	}
	if end <= uint64(len(p.data)) {
		return p.data[from:end], nil
	}
	key := make([]byte, size)
	return key, w.read(key, int64(p.id*pageSize+from))
}

// elements returns the elements of p, those that are inside of it, and the first
// thing that does not hold:
//
//   - all are inside, one after the other without a gap, as bbolt writes them
//   - no key is empty, and keys ascend
//   - the first key is the one in the parent, the last below the parent's next
func (p *page) elements(bounds child) (elements []element, err error) {
	first := func(format string, args ...any) {
		if err == nil {
			err = damaged("page %d: "+format, append([]any{p.id}, args...)...)
		}
	}
	elements = make([]element, 0, min(p.count, len(p.data)/pageElement))
	next := uint64(pageHeader + p.count*pageElement)
	for i := range p.count {
		e, from, ok := p.element(i)
		if !ok {
			first("element %d of %d is outside", i, p.count)
			continue
		}
		if from != next {
			first("element %d is at %d, want %d", i, from, next)
		}
		next = from + uint64(len(e.key)+len(e.value))
		if n := len(elements); n > 0 && bytes.Compare(elements[n-1].key, e.key) >= 0 {
			first("%q comes after %q", e.key, elements[n-1].key)
		}
		elements = append(elements, e)
	}
	if len(elements) == 0 {
		return nil, err
	}
	if key := elements[0].key; bounds.first != nil && !bytes.Equal(key, bounds.first) {
		first("the first key is %q, %q in its parent", key, bounds.first)
	}
	if key := elements[len(elements)-1].key; bounds.last != nil && bytes.Compare(key, bounds.last) >= 0 {
		first("the last key is %q, the next page begins with %q", key, bounds.last)
	}
	return elements, err
}

// element returns the element i and the offset of its key, unless part of it is
// outside of p or its key is empty.
func (p *page) element(i int) (e element, from uint64, ok bool) {
	at := pageHeader + i*pageElement
	if at+pageElement > len(p.data) {
		return element{}, 0, false
	}
	head := p.data[at : at+pageElement]
	pos, key, value := p.layout(head)
	from = uint64(at) + pos
	if key == 0 || from+key+value > uint64(len(p.data)) {
		return element{}, 0, false
	}
	b := p.data[from : from+key+value]
	e.key, e.value = b[:key:key], b[key:]
	if p.flags == flagBranch {
		e.child = order.Uint64(head[8:])
	} else {
		e.flags = order.Uint32(head)
	}
	return e, from, true
}
