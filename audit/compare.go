package audit

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// page is a part of a list: what the server had at rv in the range of keys behind after
// up to and including upTo, or without an end if that is empty.
type page struct {
	rv          string
	after, upTo string
	items       []item
	// filled, if not empty, is a version that a list has brought the cache to since the
	// run began.
	filled string
	// more says that another page follows. Without objects, this one says nothing.
	more bool
}

func (p page) isVoid() bool { return p.more && len(p.items) == 0 }

// item is the metadata of an object of a page.
type item struct {
	key    string
	object metav1.Object
}

// comparison is that of one page with what is stored.
type comparison struct {
	page       page
	byMetadata bool
	found      []finding
	newer      int
	err        error
}

// compare compares a page with what is stored, in one pass over both, which have the
// order of the keys. What differs may be on its way, unless the cache has reached the
// version of the page.
func compare(local Local, p page, byMetadata bool) (comparison, error) {
	c := comparison{page: p, byMetadata: byMetadata}
	var absent []item
	rest := p.items
	err := local.Range(p.after, p.upTo, func(key string, obj any) bool {
		for len(rest) > 0 && rest[0].key < key {
			absent, rest = append(absent, rest[0]), rest[1:]
		}
		if len(rest) > 0 && rest[0].key == key {
			c.both(rest[0], obj)
			rest = rest[1:]
		} else {
			c.unlisted(key, obj)
		}
		return c.err == nil
	})
	if err == nil {
		err = c.err
	}
	for _, it := range append(absent, rest...) {
		if err == nil {
			err = c.absent(local, it)
		}
	}
	slices.SortFunc(c.found, func(a, b finding) int { return strings.Compare(a.key, b.key) })
	return c, err
}

// absent decides about a listed object that was not in the range. It may have come
// there while that was read.
func (c *comparison) absent(local Local, it item) error {
	obj, exists, err := local.Get(it.key)
	switch {
	case err != nil:
		return err
	case exists:
		c.both(it, obj)
		return c.err
	}
	// After the read, which would else be of before the delete.
	deleted, err := local.Deleted(it.key)
	switch {
	case err != nil:
		return err
	case deleted, isBefore(c.page.rv, c.page.filled): // by the list, which does not tell
		c.newer++
	default:
		c.add(missing, it.key, it.object)
	}
	return nil
}

// both decides about an object that is listed and stored.
func (c *comparison) both(it item, obj any) {
	stored, isNewer := c.stored(it.key, obj)
	switch {
	case c.err != nil:
	case stored.GetUID() == it.object.GetUID() && stored.GetResourceVersion() == it.object.GetResourceVersion():
		if c.byMetadata && !sameMetadata(stored, it.object) {
			c.add(different, it.key, it.object)
			c.found[len(c.found)-1].metadata = it.object
		}
	case isNewer:
		c.newer++
	default:
		c.add(different, it.key, it.object)
	}
}

// unlisted decides about an object that is stored only.
func (c *comparison) unlisted(key string, obj any) {
	switch stored, isNewer := c.stored(key, obj); {
	case c.err != nil:
	case isNewer:
		c.newer++
	default:
		c.add(extra, key, stored)
	}
}

// stored returns the metadata of a stored object, and whether it is newer than the
// page.
func (c *comparison) stored(key string, obj any) (stored metav1.Object, isNewer bool) {
	stored, err := meta.Accessor(obj)
	if err != nil {
		c.err = fmt.Errorf("%w: %s is stored as a %T", ErrIncomparable, key, obj)
		return nil, false
	}
	order, err := resourceversion.CompareResourceVersion(stored.GetResourceVersion(), c.page.rv)
	if err != nil {
		c.err = fmt.Errorf("%w: %q, which is stored of %s, with %q", ErrIncomparable, stored.GetResourceVersion(), key, c.page.rv)
	}
	return stored, order > 0
}

func (c *comparison) add(k kind, key string, obj metav1.Object) {
	c.found = append(c.found, finding{kind: k, key: key, uid: obj.GetUID(), rv: obj.GetResourceVersion()})
}
