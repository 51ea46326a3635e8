package bolt

import (
	"bytes"
	"fmt"

	"github.com/warmcache/warmcache/store"
)

// page is a page with its overflow.
type page struct {
	id    uint64
	flags uint16
	count int
	data  []byte
}

// header reads the kind of a page only.
func (w *walker) header(id uint64) (*page, error) {
	if id < 2 || id >= w.pages {
		return nil, damaged("page %d of %d", id, w.pages)
	}
	return w.parse(id, make([]byte, pageHeader))
}

func (w *walker) parse(id uint64, b []byte) (*page, error) {
	if _, err := w.file.ReadAt(b, int64(id)*pageSize); err != nil {
		return nil, fmt.Errorf("%w: read page %d: %w", store.ErrCorrupt, id, err)
	}
	if got := order.Uint64(b); got != id {
		return nil, damaged("page %d says that it is page %d", id, got)
	}
	return &page{id: id, flags: order.Uint16(b[8:]), count: int(order.Uint16(b[10:])), data: b}, nil
}

// load reads a whole page that must have the given kind, and marks it as used.
func (w *walker) load(id uint64, flags uint16) (*page, error) {
	p, err := w.header(id)
	if err != nil {
		return nil, err
	}
	if err := w.extent(p, flags); err != nil {
		return nil, err
	}
	return w.parse(id, make([]byte, (p.overflow()+1)*pageSize))
}

// overflow is how many more pages belong to p.
func (p *page) overflow() uint64 { return uint64(order.Uint32(p.data[12:])) }

// extent verifies the kind of a page and how long it is, and marks its overflow
// as used. The page itself was marked by whoever refers to it.
func (w *walker) extent(p *page, flags uint16) error {
	if p.flags != flags || p.overflow() >= w.pages-p.id {
		return damaged("page %d has kind %#x and %d more pages, want kind %#x", p.id, p.flags, p.overflow(), flags)
	}
	for i := range p.overflow() {
		if err := w.use(p.id + 1 + i); err != nil {
			return err
		}
	}
	return nil
}

// use marks a page as used.
func (w *walker) use(id uint64) error {
	if id < 2 || id >= w.pages {
		return damaged("reference to page %d of %d", id, w.pages)
	}
	if w.used[id] {
		return damaged("page %d is used twice", id)
	}
	w.used[id] = true
	return nil
}

// branchElements returns the children of a branch page.
func (p *page) branchElements(bounds child) ([]child, error) {
	if p.count == 0 {
		return nil, damaged("branch page %d is empty", p.id)
	}
	elements := make([]child, p.count)
	for i := range elements {
		at := pageHeader + i*pageElement
		if at+pageElement > len(p.data) {
			return nil, damaged("branch page %d with %d elements", p.id, p.count)
		}
		e := p.data[at:]
		key, err := p.slice(at, order.Uint32(e), order.Uint32(e[4:]))
		if err != nil {
			return nil, err
		}
		elements[i] = child{id: order.Uint64(e[8:]), first: key, last: bounds.last}
		if i > 0 {
			elements[i-1].last = key
		}
	}
	return elements, p.checkOrder(elements, bounds)
}

// checkOrder verifies that keys ascend within the bounds.
func (p *page) checkOrder(elements []child, bounds child) error {
	previous := bounds.first
	for i, e := range elements {
		c := bytes.Compare(previous, e.first)
		if c > 0 || c == 0 && i > 0 || bounds.last != nil && bytes.Compare(e.first, bounds.last) >= 0 {
			return damaged("branch page %d has keys out of order", p.id)
		}
		previous = e.first
	}
	return nil
}

// slice returns n bytes at pos, which counts from the element at the offset at.
func (p *page) slice(at int, pos, n uint32) ([]byte, error) {
	from := uint64(at) + uint64(pos)
	if n == 0 || from+uint64(n) > uint64(len(p.data)) {
		return nil, damaged("page %d has an element outside of it", p.id)
	}
	return p.data[from : from+uint64(n)], nil
}
