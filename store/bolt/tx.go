package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/warmcache/warmcache/store"
)

// tx implements store.Tx: two overlays over a read transaction.
//
// Its methods run bbolt and, from callbacks, code of the caller. The panics of
// the two have to be told apart, so that each method says which one runs:
// engine around its own code, and callback around code of the caller.
type tx struct {
	c *collection
	// layers are the overlays that are not empty, newest first; frozen is the
	// older one, or nil.
	layers []*overlay
	frozen *overlay
	// snapshot is one of file, that of generation; both are nil if that has none yet.
	// bolt is its transaction; nil if pages are read, for which untrusting is held.
	snapshot   snapshot
	bolt       *bbolt.Tx
	file       *openFile
	generation *generation
	// inEngine is true while a panic would be bbolt's.
	inEngine bool
	// objectBucket is the bucket of the objects in the file, once it was used.
	objectBucket fileBucket
}

// view calls fn with a snapshot of c. See store.Collection.View.
func (c *collection) view(fn func(*tx) error) (err error) {
	t := &tx{c: c, inEngine: true}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer t.end(&err)
	if err := t.begin(); err != nil {
		return c.db.guard(t.generation, func() error { return err })
	}
	t.inEngine = false
	return fn(t)
}

// begin captures overlays and file so that nothing is missed in between: a commit
// drops an overlay only after bbolt has committed. The other way round, a commit
// that has ended since the overlays were captured may hold newer changes than they
// do: then all is captured again. No lock is held while bbolt begins, which may wait
// for the disk.
func (t *tx) begin() error {
	for {
		durable, err := t.capture()
		if err != nil || t.file == nil {
			return err
		}
		if t.file.untrusted() {
			t.snapshot = t.file.pages(t.spoiled)
			return nil
		}
		bolt, err := t.file.begin(false)
		if err != nil {
			return err
		}
		if t.c.stillAt(t.generation, durable) {
			t.snapshot, t.bolt = boltSnapshot{bolt}, bolt
			return nil
		}
		if err := t.file.rollback(bolt); err != nil {
			return err
		}
		t.file.mapping.leave()
	}
}

// capture takes the overlays, and enters the file below them if there is one.
func (t *tx) capture() (durable uint64, err error) {
	t.c.mu.RLock()
	defer t.c.mu.RUnlock()
	t.layers, t.file, t.generation = nil, nil, t.c.mu.generation
	if err := t.generation.damaged(); err != nil {
		return 0, err
	}
	t.frozen = t.c.mu.frozen
	t.push(t.frozen)
	t.push(t.c.mu.pending)
	f := t.generation.opened.Load()
	if f == nil {
		return 0, nil
	}
	if !f.mapping.enter() {
		return 0, berrors.ErrDatabaseNotOpen
	}
	t.file = f
	return t.c.mu.durable, nil
}

// stillAt says whether no commit of c has ended since.
func (c *collection) stillAt(g *generation, durable uint64) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.mu.generation == g && c.mu.durable == durable
}

// push adds o, which may be nil, as the newest layer.
func (t *tx) push(o *overlay) {
	if o != nil && !o.empty() {
		t.layers = append([]*overlay{o}, t.layers...)
	}
}

// below makes t see what is below pending.
func (t *tx) below() {
	t.layers = t.layers[:0]
	t.push(t.frozen)
}

// end releases the transaction however the function of the View ended: by
// return, by a panic, or by runtime.Goexit. A transaction in which bbolt
// panicked stays as it is, because its locks are in an unknown state.
func (t *tx) end(err *error) {
	if t.file != nil {
		defer t.file.mapping.leave()
	}
	r := recover()
	if r != nil && (t.inEngine || isFault(r)) {
		if t.bolt == nil && t.snapshot != nil {
			_ = t.release() // it has no locks but ours
		}
		*err = t.c.db.condemn(t.generation, fmt.Errorf("%w: bbolt: %v", store.ErrCorrupt, r))
		return
	}
	if release := t.release(); *err == nil {
		*err = release
	}
	if r != nil {
		//hygiene:allow panic: it is the caller's own, on its way through
		panic(r)
	}
}

// release gives the snapshot back. It returns why the file is damaged, if it was found
// to be meanwhile.
func (t *tx) release() error {
	switch {
	case t.snapshot == nil:
		return nil
	case t.bolt == nil:
		t.file.untrusting.RUnlock()
		return t.generation.damaged()
	}
	return t.c.db.guard(t.generation, func() error { return t.file.rollback(t.bolt) })
}

// engine calls fn, whose panics are bbolt's. It is not reset by a defer, which
// would run before end sees the panic.
func (t *tx) engine(fn func() error) error {
	t.inEngine = true
	err := fn()
	t.inEngine = false
	return err
}

// callback calls code of the caller from within engine.
func (t *tx) callback(fn func() bool) bool {
	t.inEngine = false
	more := fn()
	t.inEngine = true
	return more
}

// keySpace is one part of a collection that is a map: the objects, the departed
// records, or an index.
type keySpace struct {
	// index is the name of the index, if it is one.
	index    string
	departed bool
}

func (s keySpace) String() string {
	switch {
	case s.departed:
		return "departed records"
	case s.index != "":
		return fmt.Sprintf("index %q", s.index)
	default:
		return "objects"
	}
}

// tree returns what o holds of the key space, which may be nil, and whether it
// hides everything below.
func (s keySpace) tree(o *overlay) (t *tree, hides bool) {
	switch {
	case s.departed:
		return o.departed, o.cleared
	case s.index != "":
		return o.indices[s.index], o.cleared || o.dropped[s.index]
	default:
		return o.objects, o.cleared
	}
}

// sources returns what makes up the visible contents of a key space: trees that
// are not empty, newest first, and the bucket of the file, or nil.
func (t *tx) sources(s keySpace) (_ []*tree, _ fileBucket, err error) {
	var trees []*tree
	for _, o := range t.layers {
		tree, hides := s.tree(o)
		if tree != nil && tree.Len() > 0 {
			trees = append(trees, tree)
		}
		if hides {
			return trees, nil, nil
		}
	}
	bucket, err := t.bucket(s)
	return trees, bucket, err
}

// bucket returns the bucket of the file, or nil if there is none.
func (t *tx) bucket(s keySpace) (_ fileBucket, err error) {
	if s != (keySpace{}) {
		return t.fileBucket(t.c.names.of(s))
	}
	if t.objectBucket == nil {
		t.objectBucket, err = t.fileBucket(t.c.names.objects)
	}
	return t.objectBucket, err
}

// spoiled ends the generation if its file is damaged. It may have ended before, and
// the file have been closed.
func (t *tx) spoiled(err error) error {
	return t.c.db.guard(t.generation, func() error { return err })
}

// lookup returns the visible value of key, or nil.
func (t *tx) lookup(s keySpace, key []byte) ([]byte, error) {
	for _, o := range t.layers {
		tree, hides := s.tree(o)
		if tree != nil {
			if e, ok := tree.Get(entry{key: key}); ok {
				return e.value, nil
			}
		}
		if hides {
			return nil, nil
		}
	}
	bucket, err := t.bucket(s)
	if err != nil || bucket == nil || len(key) == 0 {
		return nil, err
	}
	return bucket.get(key)
}

func (t *tx) cursor(s keySpace) *mergeCursor {
	trees, bucket, err := t.sources(s)
	cursor := newMergeCursor(trees, bucket)
	if err != nil {
		cursor.fail(err)
	}
	return cursor
}

func (t *tx) Header() (header store.Header, err error) {
	err = t.engine(func() error {
		header, err = t.header()
		return err
	})
	return header, err
}

func (t *tx) header() (store.Header, error) {
	for _, o := range t.layers {
		if o.header != nil {
			return o.header.Clone(), nil
		}
		if o.cleared {
			return store.Header{}, store.ErrNotFound
		}
	}
	bucket, err := t.fileBucket(t.c.names.header)
	if err != nil {
		return store.Header{}, err
	}
	return headerIn(bucket)
}

// fileBucket returns a bucket of the file, or nil if there is none.
func (t *tx) fileBucket(name []byte) (fileBucket, error) {
	if t.snapshot == nil {
		return nil, nil
	}
	return t.snapshot.bucket(name)
}

// headerIn reads the header from a header bucket, which may be nil.
func headerIn(bucket fileBucket) (store.Header, error) {
	if bucket == nil {
		return store.Header{}, store.ErrNotFound
	}
	sealed, err := bucket.get(headerKey)
	if err == nil && sealed == nil {
		err = store.ErrNotFound
	}
	if err != nil {
		return store.Header{}, err
	}
	return decodeHeader(sealed)
}

func (t *tx) Totals() (totals store.Totals, err error) {
	err = t.engine(func() error {
		stored, err := t.storedTotals()
		totals = stored.objects
		return errors.Join(err, t.addLayers(&totals))
	})
	return totals, err
}

// addLayers turns the totals of the file into those of the snapshot.
func (t *tx) addLayers(totals *store.Totals) (err error) {
	cleared := slices.ContainsFunc(t.layers, func(o *overlay) bool { return o.cleared })
	if cleared {
		*totals = store.Totals{}
	}
	var file fileBucket
	if !cleared {
		if file, err = t.bucket(keySpace{}); err != nil {
			return err
		}
	}
	seen := map[string]bool{}
	for _, o := range t.layers {
		o.objects.Ascend(func(e entry) bool {
			if key := string(e.key); !seen[key] {
				seen[key] = true
				err = t.replace(totals, file, e.key)
			}
			return err == nil
		})
	}
	return err
}

// replace takes what the file has of a key, if it counts, out of totals, and adds
// what is visible.
func (t *tx) replace(totals *store.Totals, file fileBucket, key []byte) error {
	if file != nil {
		old, err := file.get(key)
		if err != nil {
			return err
		}
		if old != nil {
			totals.Remove(string(key), old)
		}
	}
	value, err := t.lookup(keySpace{}, key)
	if value != nil {
		totals.Add(string(key), value)
	}
	return err
}

// totalsIn reads the totals from a header bucket, which may be nil.
func totalsIn(bucket fileBucket) (totalsRecord, error) {
	if bucket == nil {
		return totalsRecord{}, nil
	}
	sealed, err := bucket.get(totalsKey)
	if err != nil {
		return totalsRecord{}, err
	}
	return decodeTotals(sealed)
}

// storedTotals reads the totals of the file.
func (t *tx) storedTotals() (totalsRecord, error) {
	bucket, err := t.fileBucket(t.c.names.header)
	if err != nil {
		return totalsRecord{}, err
	}
	return totalsIn(bucket)
}

func (t *tx) Get(key string) ([]byte, error) {
	t.inEngine = true
	value, err := t.lookup(keySpace{}, []byte(key))
	t.inEngine = false
	if value == nil && err == nil {
		err = store.ErrNotFound
	}
	return value, err
}

func (t *tx) Scan(from string, fn func(key, value []byte) bool) error {
	return t.engine(func() error {
		cursor := t.cursor(keySpace{})
		for ok := cursor.seek([]byte(from)); ok; ok = cursor.advance() {
			if cursor.value == nil {
				return fmt.Errorf("%w: a bucket in place of the object %q", store.ErrCorrupt, cursor.key)
			}
			t.inEngine = false
			more := fn(cursor.key, cursor.value)
			t.inEngine = true
			if !more {
				break
			}
		}
		return cursor.err
	})
}

func (t *tx) IndexKeys(name, value, from string, fn func(key []byte) bool) error {
	start := encodePair(value, from)
	prefix := start[:len(start)-len(from)]
	return t.engine(func() error {
		cursor := t.cursor(keySpace{index: name})
		for ok := cursor.seek(start); ok && bytes.HasPrefix(cursor.key, prefix); ok = cursor.advance() {
			if !t.callback(func() bool { return fn(cursor.key[len(prefix):]) }) {
				break
			}
		}
		return cursor.err
	})
}

func (t *tx) IndexValues(name, from string, fn func(value []byte) bool) error {
	return t.engine(func() error {
		cursor := t.cursor(keySpace{index: name})
		var after []byte
		for ok := cursor.seek(encodePair(from, "")); ok; ok = cursor.seek(after) {
			value, _, err := splitPair(cursor.key)
			if err != nil {
				return fmt.Errorf("index %q: %w", name, err)
			}
			if !t.callback(func() bool { return fn(value) }) {
				break
			}
			// All other keys of this value are skipped with one seek.
			after = appendAfterPrefix(after[:0], cursor.key)
		}
		return cursor.err
	})
}

// checkDeparted compares the departed records in the file with their totals, which
// readers do not get to see: one that is missing is a delete that is lost. There
// are never many.
func (t *tx) checkDeparted() error {
	if slices.ContainsFunc(t.layers, func(o *overlay) bool { return o.cleared }) {
		return nil
	}
	stored, err := t.storedTotals()
	if err != nil {
		return err
	}
	var found store.Totals
	bucket, err := t.bucket(keySpace{departed: true})
	if bucket != nil {
		err = ascending(bucket, func(key, value []byte) { found.Add(string(key), value) })
	}
	if err != nil {
		return err
	}
	if found != stored.departed {
		return damaged("totals of the departed records are %+v, found %+v", stored.departed, found)
	}
	return nil
}

// ascending calls fn for everything in a bucket. Keys that do not ascend are damage,
// with which bbolt might go round for ever.
func ascending(bucket fileBucket, fn func(key, value []byte)) error {
	var previous []byte
	cursor := bucket.cursor()
	key, value, err := cursor.seek(nil)
	for ; key != nil; key, value, err = cursor.next() {
		if previous != nil && bytes.Compare(key, previous) <= 0 {
			return damaged("%q comes after %q", key, previous)
		}
		previous = append(previous[:0], key...)
		fn(key, value)
	}
	return err
}

func (t *tx) Departed(fn func(store.Departed) bool) error {
	return t.engine(func() error {
		if err := t.checkDeparted(); err != nil {
			return err
		}
		cursor := t.cursor(keySpace{departed: true})
		for ok := cursor.seek(nil); ok; ok = cursor.advance() {
			record, err := decodeDeparted(cursor.key, cursor.value)
			if err != nil {
				return err
			}
			if !t.callback(func() bool { return fn(record) }) {
				break
			}
		}
		return cursor.err
	})
}
