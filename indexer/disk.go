package indexer

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/warmcache/warmcache/internal/objectcache"
	"github.com/warmcache/warmcache/internal/parallel"
	"github.com/warmcache/warmcache/store"
)

// disk is the disk residency of an indexer: the collection is the only place where
// the objects are, and cache holds some of them decoded.
//
// What makes reads right:
//
//   - A read is one View, hence one snapshot. A write is visible to every View that
//     begins after the Apply of its batch has returned, so that nothing has to be
//     locked between the two.
//   - writes is the number of the last write, set after its Apply. A reader notes it
//     before its View. A cached object may stand for its record if it was written, or
//     read, no later than that, and is still in the cache while the View is open: a
//     write to its key would have taken it out before its Apply, hence before it
//     could be in the snapshot. See objectcache.
//   - Records are copied out of the View and decoded afterwards: a View that is open
//     while others write makes the file grow.
//   - What cannot be read is never taken for absent. See health.
//
// Rejected: a lock that readers share and Apply has for itself, which is simpler, but
// Apply waits for the disk when too much is pending, and readers would with it.
type disk struct {
	collection store.Collection
	codec      Codec
	log        func() klog.Logger
	cache      *objectcache.Cache[runtime.Object]
	weigher    weigher
	health     *health
	budget     int64
	// indices finds the index of a name, or nil.
	indices func(name string) *index

	writes     atomic.Uint64
	readErrors atomic.Int64
	foreign    atomic.Pointer[foreign]
}

// snapshot is what a reader notes before its View, of which it makes only one.
type snapshot struct {
	d *disk
	// losses is that of health.
	losses  uint64
	ticket  objectcache.Ticket
	write   uint64
	foreign *foreign
}

func (d *disk) snapshot() snapshot {
	// In this order: see objectcache.Cache.Fill.
	s := snapshot{d: d, losses: d.health.count(), ticket: d.cache.Ticket()}
	s.foreign = d.foreign.Load()
	s.write = d.writes.Load()
	return s
}

// view is Collection.View for readers: it fails as long as not all objects can be
// read.
func (s *snapshot) view(fn func(store.Tx) error) error {
	if err := s.check(); err != nil {
		return err
	}
	if err := s.viewAny(fn); err != nil {
		return err
	}
	return s.check()
}

// check fails, and counts it, if not all objects can be read, or could not at some time
// since the snapshot was noted.
func (s *snapshot) check() error {
	err := s.d.health.check(s.losses)
	if err != nil {
		s.d.readErrors.Add(1)
	}
	return err
}

// viewAny is view for the writer, who reads what there is.
func (s *snapshot) viewAny(fn func(store.Tx) error) error {
	return s.failed(s.d.collection.View(fn))
}

// failed deals with an error of a read. All but that of a closed store have the file
// moved aside, if the engine has not done so itself, and the objects listed again:
// there is no other way to get at them.
func (s *snapshot) failed(err error) error {
	if err == nil || errors.Is(err, ErrUnreadable) {
		return err
	}
	d := s.d
	n := d.readErrors.Add(1)
	if errors.Is(err, store.ErrClosed) {
		return err
	}
	news := d.health.fail(err, s.losses, func() {
		if !errors.Is(err, errUndecodable) {
			d.collection.Quarantine(err)
		}
	})
	if news {
		d.log().Error(err, "Stored objects cannot be read; they are listed again", "informer", d.collection.Identity(), "readErrors", n)
	}
	return fmt.Errorf("%w: %w", ErrUnreadable, err)
}

// get returns one object, shared with other readers.
func (d *disk) get(key string) (item any, exists bool, err error) {
	if obj, ok := d.cache.Get(key); ok {
		return obj, true, nil
	}
	s := d.snapshot()
	obj, err := s.read(s.view, key)
	if obj == nil {
		return nil, false, err
	}
	return obj, true, nil
}

// read reads and decodes one object, and keeps it. The result is nil if there is
// none.
func (s *snapshot) read(view func(func(store.Tx) error) error, key string) (runtime.Object, error) {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	found := false
	err := view(func(tx store.Tx) error {
		value, err := tx.Get(key)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		found = err == nil
		*buffer = append((*buffer)[:0], value...)
		return err
	})
	if err != nil || !found || s.foreign.hides(key, s.write) {
		return nil, err
	}
	value := *buffer
	if cap(value) > maxBuffer {
		*buffer = nil
	}
	obj, err := s.decode(key, value)
	if err == nil {
		s.keep(key, obj, len(value))
	}
	return obj, err
}

// maxBuffer is the largest buffer that is used again.
const maxBuffer = 64 << 10

// buffers hold records that are being decoded, which costs a good part of copying them
// into new memory each time. Decoded objects share none with them.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// keep puts an object into the cache that was read in this snapshot.
func (s *snapshot) keep(key string, obj runtime.Object, record int) {
	s.d.cache.Fill(s.ticket, key, obj, s.d.weigher.size(obj, record), s.write)
}

func (s *snapshot) decode(key string, value []byte) (runtime.Object, error) {
	obj, err := s.d.codec.Decode(value)
	if err != nil {
		return nil, s.failed(undecodable(record{key, value}, err))
	}
	return obj, nil
}

// found is an object that a reader has come across: decoded, or its record.
type found struct {
	key   string
	obj   runtime.Object
	value []byte
}

// gatherer collects what a reader comes across in one View.
type gatherer struct {
	snapshot
	found []found
	// bytes is the size of the records that were copied.
	bytes int
	// skip, if set, leaves records out without decoding them.
	skip func(value []byte) (bool, error)
	err  error
}

// take notes one record, and reports whether to go on.
func (g *gatherer) take(key, value []byte) bool {
	f := found{key: string(key)}
	if g.foreign.hides(f.key, g.write) {
		return true
	}
	if g.skip != nil {
		skip, err := g.skip(value)
		if skip || err != nil {
			if err != nil {
				g.err = undecodable(record{string(key), value}, err)
			}
			return err == nil
		}
	}
	if obj, ok := g.d.cache.AsOf(key, g.write); ok {
		f.obj = obj
	} else {
		f.value = bytes.Clone(value)
		g.bytes += len(value)
	}
	g.found = append(g.found, f)
	return true
}

// decodeAll decodes what was copied, and keeps it if it is wanted.
func (g *gatherer) decodeAll(keep bool) ([]any, error) {
	errs := make([]error, len(g.found))
	parallel.For(len(g.found), func(i int) {
		f := &g.found[i]
		if f.obj != nil {
			return
		}
		if f.obj, errs[i] = g.decode(f.key, f.value); errs[i] == nil && keep {
			g.keep(f.key, f.obj, len(f.value))
		}
		f.value = nil
	})
	objs := make([]any, len(g.found))
	for i := range g.found {
		if errs[i] != nil {
			return nil, errs[i]
		}
		objs[i] = g.found[i].obj
	}
	return objs, nil
}

// gather runs visit in one View and returns the objects that it takes. Keep puts
// them into the cache: a scan of everything would only push out what is wanted.
func (d *disk) gather(keep bool, visit func(store.Tx, *gatherer) error) ([]any, error) {
	g := gatherer{snapshot: d.snapshot()}
	err := g.view(func(tx store.Tx) error { return visit(tx, &g) })
	if err != nil {
		return nil, err
	}
	return g.decodeAll(keep)
}

// patiently repeats a read that has no error to return until it succeeds. If the informer
// stops before, there is nothing to return, and no part of it either.
func patiently[T any](d *disk, what string, read func() (T, error)) T {
	for {
		result, err := read()
		if err == nil {
			return result
		}
		closed := errors.Is(err, store.ErrClosed)
		if !closed {
			d.log().Error(err, "Waiting until stored objects can be read again", "informer", d.collection.Identity(), "call", what)
		}
		// A closed store does not come back: this waits for the end.
		ok := d.health.await(nil, func() bool { return d.health.err == nil && !closed })
		if !ok {
			d.log().Error(err, "Stored objects cannot be read any more", "informer", d.collection.Identity(), "call", what)
			var none T
			return none
		}
	}
}
