package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sort"
	"strings"

	"github.com/warmcache/warmcache/migrations"
	"github.com/warmcache/warmcache/store"
)

// progressPages is how many pages are read between two calls of Progress.
const progressPages = 256

// errStopped ends a check whose caller wants no more.
var errStopped = errors.New("stopped")

// checker checks one file. The walker reads it and knows the pages; the checker
// knows what the buckets are.
type checker struct {
	walker
	ctx     context.Context
	options CheckOptions
	report  CheckReport
	// closed, if not nil, says whether the file may still be read.
	closed func() error
	// stop is why the check ends early.
	stop error
	// collection and where are what is being checked.
	collection store.Identity
	where      string
	// buckets is the directory, in order. An entry is taken when its owner is
	// known.
	buckets []*bucket
	taken   map[*bucket]bool
	// read is how many pages were, reported how many Progress was told.
	read, reported int64
}

func newChecker(ctx context.Context, file io.ReaderAt, o CheckOptions) *checker {
	c := &checker{ctx: ctx, options: o, where: "pages", taken: map[*bucket]bool{}}
	c.walker = walker{file: file, problem: c.problem, step: c.advance}
	return c
}

// end returns what Check returns.
func (c *checker) end(err error) (CheckReport, error) {
	if errors.Is(err, errStopped) {
		err = nil
	}
	return c.report, err
}

// problem reports err where the checker is. Errors that are about the check and
// not about the file end it.
func (c *checker) problem(err error) error {
	var ioError *fs.PathError
	switch {
	case c.stop != nil:
		return c.stop
	case errors.As(err, &ioError):
		// Also when the file was closed while it was read.
		c.stop = ioError
		if closed := c.checkClosed(); closed != nil {
			c.stop = closed
		}
		return c.stop
	case !errors.Is(err, store.ErrCorrupt):
		err = fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	c.report.Problems++
	found := Problem{Collection: c.collection, Where: c.where, Err: err}
	if c.options.Found != nil && !c.options.Found(found) {
		c.stop = errStopped
	}
	return c.stop
}

// problemIn is problem for a part of what is being checked.
func (c *checker) problemIn(where string, err error) error {
	before := c.where
	c.where = where
	err = c.problem(err)
	c.where = before
	return err
}

// advance is called before pages are read.
func (c *checker) advance(pages uint64) error {
	c.read += int64(pages)
	if c.read-c.reported >= progressPages {
		c.progress()
	}
	if c.stop == nil {
		c.stop = c.ctx.Err()
	}
	if c.stop == nil {
		c.stop = c.checkClosed()
	}
	return c.stop
}

func (c *checker) checkClosed() error {
	if c.closed == nil {
		return nil
	}
	return c.closed()
}

func (c *checker) progress() {
	c.reported = c.read
	if c.options.Progress != nil {
		c.options.Progress(min(c.read, c.inUse()), c.inUse())
	}
}

// inUse is how many pages there are to read.
func (c *checker) inUse() int64 { return c.report.Pages - c.report.FreePages }

// run checks the file of the given size as meta describes it. Buckets come after
// the directory has been read, because those of a collection are not next to
// each other in it.
func (c *checker) run(meta boltMeta, size int64) error {
	c.report.Pages = int64(meta.pages)
	if err := c.in("free list", func() error { return c.begin(meta, size) }); err != nil {
		return err
	}
	c.report.FreePages = c.count(pageFree)
	for _, step := range []func() error{
		func() error { return c.in("directory", func() error { return c.readDirectory(meta.root) }) },
		c.metaBucket,
		c.collections,
		c.strangers,
		c.unreachable,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	c.read = c.inUse()
	c.progress()
	return nil
}

// in calls fn, whose problems are in the given part.
func (c *checker) in(where string, fn func() error) error {
	before := c.where
	c.where = where
	err := fn()
	c.where = before
	return err
}

func (c *checker) count(state pageState) int64 {
	n := int64(0)
	for _, s := range c.states {
		if s == state {
			n++
		}
	}
	return n
}

// readDirectory reads the names and places of all buckets, in order also when the
// directory is not.
func (c *checker) readDirectory(root uint64) error {
	err := c.directory(root, c.remember)
	slices.SortStableFunc(c.buckets, func(a, b *bucket) int { return bytes.Compare(a.name, b.name) })
	return err
}

// remember keeps an entry of the directory. Its memory is that of a page.
func (c *checker) remember(b *bucket) error {
	c.buckets = append(c.buckets, &bucket{
		name: append([]byte(nil), b.name...), value: append([]byte(nil), b.value...), page: b.page,
	})
	return nil
}

// withPrefix returns the buckets whose names begin with prefix.
func (c *checker) withPrefix(prefix string) []*bucket {
	from := sort.Search(len(c.buckets), func(i int) bool { return string(c.buckets[i].name) >= prefix })
	to := from
	for to < len(c.buckets) && strings.HasPrefix(string(c.buckets[to].name), prefix) {
		to++
	}
	return c.buckets[from:to]
}

// take returns the bucket of the given name, or nil.
func (c *checker) take(name []byte) *bucket {
	for _, b := range c.withPrefix(string(name)) {
		if string(b.name) == string(name) {
			return b
		}
	}
	return nil
}

// entries calls fn for each entry of a bucket that may be nil.
func (c *checker) entries(b *bucket, fn func(key, value []byte) error) error {
	if b == nil {
		return nil
	}
	c.taken[b] = true
	return c.bucket(b, func(p *page, e element) error {
		if e.flags != 0 {
			return c.problem(damaged("page %d: %q is a bucket", p.id, e.key))
		}
		return fn(e.key, e.value)
	})
}

// metaBucket checks what describes the file. Without any of it, and without
// damage so far, the file is somebody else's.
func (c *checker) metaBucket() error {
	b := c.take(metaBucket)
	if b == nil && c.report.Problems == 0 {
		return errForeign
	}
	var version int
	values := map[string]error{string(formatKey): nil, string(createdKey): nil, string(writerKey): nil}
	missing := len(values)
	return c.in("meta", func() error {
		err := c.entries(b, func(key, value []byte) (err error) {
			if _, known := values[string(key)]; !known {
				return c.problem(damaged("unknown key %q", key))
			}
			missing--
			if string(key) == string(formatKey) {
				version, err = decodeFormat(value)
			} else if _, err = store.Unseal(value); err != nil {
				err = fmt.Errorf("%s: %w", key, err)
			}
			if err != nil {
				return c.problem(err)
			}
			return nil
		})
		switch {
		case err != nil:
			return err
		case version > migrations.Current:
			return fmt.Errorf("%w: format %d, want at most %d", store.ErrNewerFormat, version, migrations.Current)
		case missing > 0:
			return c.problem(damaged("%d of %d keys are missing", missing, len(values)))
		}
		return nil
	})
}

// collections checks every collection that has a header bucket.
func (c *checker) collections() error {
	for _, b := range c.withPrefix(headerPrefix) {
		id, err := identityOf(b.name)
		if err != nil {
			// It remains a stranger, as do its other buckets.
			continue
		}
		c.collection = id
		err = newCollectionChecker(c, id).run(b)
		c.collection = store.Identity{}
		if err != nil {
			return err
		}
	}
	return nil
}

// strangers reports the buckets that belong to nothing. Their trees are checked
// all the same, to know their pages.
func (c *checker) strangers() error {
	for _, b := range c.buckets {
		if c.taken[b] {
			continue
		}
		err := c.in(fmt.Sprintf("bucket %q", b.name), func() error {
			if err := c.problem(damaged("it belongs to no collection")); err != nil {
				return err
			}
			return c.entries(b, func(_, _ []byte) error { return nil })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// unreachable reports the pages that nothing refers to, all in one.
func (c *checker) unreachable() error {
	// The two meta pages are in no tree.
	for id := range min(2, len(c.states)) {
		c.states[id] = pageUsed
	}
	c.report.UnreachablePages = c.count(pageUnknown)
	if c.report.UnreachablePages == 0 {
		return nil
	}
	var examples []string
	for id, s := range c.states {
		if s == pageUnknown && len(examples) < 3 {
			examples = append(examples, fmt.Sprint(id))
		}
	}
	return c.problem(damaged("%d pages are neither used nor free: %s ...", c.report.UnreachablePages, strings.Join(examples, ", ")))
}
