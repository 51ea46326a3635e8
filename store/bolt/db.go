package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/warmcache/warmcache/store"
)

// DB is one open file. It implements store.Store; all methods are safe for
// concurrent use.
type DB struct {
	path     string
	options  Options
	log      klog.Logger
	readOnly bool
	// memory replaces everything below when the store is not persistent.
	memory store.Store

	// lock is the lock file; nil if read-only.
	lock *lockFile

	// closed is set once, by Close.
	closed atomic.Bool
	// scrub is the committer's.
	scrub scrubber
	// wake has a token when the committer should look at what is due.
	wake chan struct{}
	// stopped is closed when the committer has returned.
	stopped chan struct{}
	// closing serialises calls of Close.
	closing sync.Mutex

	// mu is never held over I/O, nor while another lock is taken.
	mu struct {
		sync.Mutex
		// collections are those that are open or wait for a commit.
		collections map[store.Identity]*collection
		// handles are the openings of collections. One without a collection
		// reserves an identity that is being forgotten.
		handles map[store.Identity]*handle
		// opened are the identities that were ever opened.
		opened map[store.Identity]bool

		// generation is what collections begin on: the file, or what takes its
		// place.
		generation *generation
		// replaced is when a damaged file was last replaced, zero if none was;
		// pause was waited for before.
		replaced time.Time
		pause    time.Duration
		// quarantined is where the last file was moved that could not be used,
		// quarantines how many there were.
		quarantined string
		quarantines int64

		// attempt is the commit that ends next.
		attempt *attempt
		// urgent asks for a commit now, stopping for the last one; requests
		// wait for a transaction.
		urgent   bool
		stopping bool
		requests []*request
		// pending and frozen are the usage of all overlays. dirtySince is when
		// the oldest change was applied, or the last commit ended; zero if
		// nothing waits.
		pending, frozen usage
		dirtySince      time.Time
		// committed is when the last commit ended, err why the last attempt
		// failed, backoff and retryAt when the next one comes.
		committed time.Time
		err       error
		backoff   time.Duration
		retryAt   time.Time
		// scrub is what the scrubber has done.
		scrub store.ScrubStatus
		// fileBytes and freeBytes are those of store.Status.
		fileBytes, freeBytes int64
		// commitTimes counts those that wrote something, failed those that failed.
		commitTimes store.Durations
		failed      int64
	}
}

var _ store.Store = (*DB)(nil)

func newDB(path string, o Options) *DB {
	db := &DB{
		path:    path,
		options: o,
		log:     o.Logger.WithName("warmcache-bolt"),
		wake:    make(chan struct{}, 1),
		stopped: make(chan struct{}),
	}
	db.scrub = scrubber{db: db}
	db.mu.collections = map[store.Identity]*collection{}
	db.mu.handles = map[store.Identity]*handle{}
	db.mu.opened = map[store.Identity]bool{}
	db.mu.attempt = newAttempt()
	return db
}

// Path returns the path of the file, as it was given to Open.
func (db *DB) Path() string { return db.path }

// Persistent says whether anything applied will be there after a restart. It is
// false for a store that was opened with MemoryOnly while another process held
// the file.
func (db *DB) Persistent() bool { return db.memory == nil }

// Quarantined returns where the last file was moved that could not be used, by
// Open or since; "" if none was.
func (db *DB) Quarantined() string {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.mu.quarantined
}

// Collection implements store.Store.
func (db *DB) Collection(id store.Identity, owner string) (store.Collection, error) {
	if db.memory != nil {
		return db.memory.Collection(id, owner)
	}
	if err := id.Validate(); err != nil {
		return nil, err
	}
	h, err := db.reserve(id, owner)
	if err != nil {
		return nil, err
	}
	if err := db.prepare(h.c); err != nil {
		db.release(h)
		return nil, err
	}
	return h, nil
}

// prepare makes a collection ready for use. One that is lost begins anew: what
// damaged the file may have been found by anybody, at any time.
func (db *DB) prepare(c *collection) error {
	for {
		err := c.load()
		if c.lost() == nil || db.readOnly {
			return err
		}
		c.startOver()
	}
}

// firstTime says whether the identity was not opened before by this process.
func (db *DB) firstTime(id store.Identity) bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	before := db.mu.opened[id]
	db.mu.opened[id] = true
	return !before
}

// reserve makes id used by a new handle. It finds what an earlier handle could
// not write, if that still waits. What an earlier handle has lost is lost.
func (db *DB) reserve(id store.Identity, owner string) (*handle, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed.Load() {
		return nil, store.ErrClosed
	}
	if holder, used := db.mu.handles[id]; used {
		return nil, store.InUse(id, holder.owner, owner)
	}
	c := db.mu.collections[id]
	if c == nil {
		c = newCollection(db, id, db.mu.generation)
		db.mu.collections[id] = c
	}
	h := &handle{c: c, owner: owner}
	db.mu.handles[id] = h
	return h, nil
}

// release gives up the identity of h, and what is kept for it unless that still
// waits for a commit.
func (db *DB) release(h *handle) {
	clean := h.c.clean()
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.mu.handles[h.c.id] != h {
		return
	}
	delete(db.mu.handles, h.c.id)
	if clean {
		delete(db.mu.collections, h.c.id)
	}
}

// Informers implements store.Store.
func (db *DB) Informers() ([]store.Info, error) {
	if db.memory != nil {
		return db.memory.Informers()
	}
	if db.closed.Load() {
		return nil, store.ErrClosed
	}
	var infos []store.Info
	err := db.view(func(s snapshot) error {
		return eachCollection(s, func(info store.Info) error {
			infos = append(infos, info)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	db.markInUse(infos)
	return infos, nil
}

// markInUse sets InUse and Owner.
func (db *DB) markInUse(infos []store.Info) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for i := range infos {
		if h, ok := db.mu.handles[infos[i].Identity]; ok {
			infos[i].InUse, infos[i].Owner = true, h.owner
		}
	}
}

// eachCollection describes the collections in the file, ordered by identity. It
// fails if one cannot be described.
func eachCollection(s snapshot, fn func(store.Info) error) error {
	cursor := s.names()
	prefix := []byte(headerPrefix)
	name, _, err := cursor.seek(prefix)
	for ; bytes.HasPrefix(name, prefix); name, _, err = cursor.next() {
		info, err := describe(s, name)
		if err == nil {
			err = fn(info)
		}
		if err != nil {
			return err
		}
	}
	return err
}

// describe reads what a header bucket says. A collection without a header was
// written, but no list of it has begun.
func describe(s snapshot, name []byte) (store.Info, error) {
	id, err := identityOf(name)
	if err != nil {
		return store.Info{}, err
	}
	bucket, err := s.bucket(name)
	if err == nil && bucket == nil {
		err = damaged("%q is not a bucket", name)
	}
	if err != nil {
		return store.Info{}, err
	}
	header, err := headerIn(bucket)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return store.Info{}, fmt.Errorf("%s: %w", id, err)
	}
	totals, err := totalsIn(bucket)
	if err != nil {
		return store.Info{}, fmt.Errorf("%s: %w", id, err)
	}
	return store.Info{Identity: id, Header: header, Totals: totals.objects, Departed: totals.departed.Count}, nil
}

// forgetting is the owner of an identity that is being forgotten.
const forgetting = "Forget"

// Forget implements store.Store.
func (db *DB) Forget(id store.Identity) error {
	switch {
	case db.memory != nil:
		return db.memory.Forget(id)
	case db.readOnly:
		return store.ErrReadOnly
	}
	c, err := db.reserveToForget(id)
	if err != nil {
		return err
	}
	err = db.do(func(tx *writeTx) error {
		if c.clean() && tx.Bucket(c.names.header) == nil {
			return fmt.Errorf("%w: %s", store.ErrNotFound, id)
		}
		return c.deleteCollection(tx)
	}, func() { db.discard(c) })
	db.mu.Lock()
	defer db.mu.Unlock()
	delete(db.mu.handles, id)
	return err
}

// discard drops what c still has waiting for a commit. It runs on the committer,
// so that no commit comes in between.
func (db *DB) discard(c *collection) {
	c.mu.Lock()
	c.dropLocked()
	c.mu.Unlock()
	db.mu.Lock()
	defer db.mu.Unlock()
	delete(db.mu.collections, c.id)
}

// reserveToForget makes id used by nobody, and unavailable until Forget ends.
func (db *DB) reserveToForget(id store.Identity) (*collection, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed.Load() {
		return nil, store.ErrClosed
	}
	if holder, used := db.mu.handles[id]; used {
		return nil, store.InUse(id, holder.owner, forgetting)
	}
	db.mu.handles[id] = &handle{owner: forgetting}
	if c := db.mu.collections[id]; c != nil {
		return c, nil
	}
	return newCollection(db, id, db.mu.generation), nil
}

// Close implements store.Store. It makes one last attempt to commit, waits for
// Views that are running, and releases the file.
func (db *DB) Close() error {
	if db.memory != nil {
		return db.memory.Close()
	}
	db.closing.Lock()
	defer db.closing.Unlock()
	if db.closed.Swap(true) {
		return nil
	}
	db.settle()
	db.stop()
	<-db.stopped
	var err error
	if !db.readOnly {
		err = db.unsaved()
	}
	return errors.Join(err, db.releaseFile())
}

// settle waits for every Apply that began before closed was set, so that the
// last commit has all that Apply has accepted.
func (db *DB) settle() {
	for _, c := range db.all() {
		c.writing.Lock()
		c.writing.Unlock() //nolint:staticcheck // a barrier, not a critical section
	}
}

// all returns the collections that are open or wait for a commit.
func (db *DB) all() []*collection {
	db.mu.Lock()
	defer db.mu.Unlock()
	return slices.Collect(maps.Values(db.mu.collections))
}

// stop makes the committer return after one last attempt.
func (db *DB) stop() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.mu.stopping = true
	db.kick()
}

// unsaved reports what the last attempt to commit did not write.
func (db *DB) unsaved() error {
	for _, c := range db.all() {
		if err := c.lost(); err != nil {
			return fmt.Errorf("close: %s was lost: %w", c.id, err)
		}
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	waiting := db.mu.pending.plus(db.mu.frozen)
	if waiting.count == 0 {
		return nil
	}
	return fmt.Errorf("close %s: %d changes (%d bytes) are lost: %w", db.path, waiting.count, waiting.bytes, db.mu.err)
}

// releaseFile closes bbolt and gives up the locks.
func (db *DB) releaseFile() error {
	var err error
	for g := db.current(); g != nil; g = g.before {
		err = errors.Join(err, db.closeGeneration(g))
	}
	if db.lock != nil {
		err = errors.Join(err, db.lock.release())
	}
	if err != nil {
		return fmt.Errorf("close %s: %w", db.path, err)
	}
	return nil
}

func (db *DB) closeGeneration(g *generation) error {
	f := g.opened.Load()
	if f == nil || f.released {
		return nil
	}
	// Views that are running end first, or damage shows in one of them: then it has
	// not given its transaction back, for which bbolt would wait.
	select {
	case <-f.mapping.close():
	case <-g.lost:
	}
	if g.damaged() != nil {
		return f.letGo()
	}
	return f.close()
}
