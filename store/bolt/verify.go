package bolt

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/warmcache/warmcache/store"
)

// verification is what is known of the trees of a file: see checkTrees. Open leaves
// them to the committer, so that what it takes does not depend on how much is in the
// file. Until they were verified
//
//   - bbolt opens buckets, which are in the directory, and does not walk their trees
//   - Views read them page by page: see pageBucket
//   - nothing is committed; what is applied waits in the overlays
type verification struct {
	// trusted is set once they were found sound.
	trusted atomic.Bool
	// tried is closed when that was tried for the first time, whatever came of it: on
	// a disk that cannot be read, it may be tried for ever.
	tried chan struct{}
	// unreadable is set when the disk did not let the last try end. It is the
	// committer's.
	unreadable bool
}

// end notes how a try has ended.
func (v *verification) end(err error) {
	v.trusted.Store(err == nil)
	select {
	case <-v.tried:
	default:
		close(v.tried)
	}
}

// verified is for what needs no verification.
var verified = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// verify verifies the trees of the file of g, unless that was done. It runs on the
// goroutine that alone writes to the file, or closes it. Damage ends the generation.
// An error of the disk says nothing about the file; the next commit tries again.
func (db *DB) verify(g *generation, f *openFile) (err error) {
	if f.trusted.Load() {
		return nil
	}
	defer func() { f.end(err) }()
	if err = call(db.options.beforeVerify); err == nil {
		err = db.checkTrees(g, f)
	}
	switch {
	case errors.Is(err, store.ErrCorrupt):
		return db.condemn(g, err)
	case errors.Is(err, errUnreadable) && db.lock != nil:
		f.unreadable = true
		db.lock.unreadable()
	case err == nil && f.unreadable:
		f.unreadable = false
		db.lock.opened(f.inode)
	}
	return err
}

// checkTrees reads the pages of the file until something does not hold. It ends early
// when somebody else has found damage, and when the store is closed, unless a change
// waits for it.
func (db *DB) checkTrees(g *generation, f *openFile) error {
	size, err := sizeOf(f.file)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return checkTrees(f.file, size, func(uint64) error {
		if err := g.damaged(); err != nil {
			return err
		}
		if db.abandoned() {
			return errStopped
		}
		return nil
	})
}

// abandoned says whether the store is being closed, and nothing waits for a commit.
func (db *DB) abandoned() bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.mu.stopping && db.mu.pending.plus(db.mu.frozen).count == 0 && len(db.mu.requests) == 0
}

// verifyOnly is the committer of a store that is read-only.
func (db *DB) verifyOnly() {
	defer close(db.stopped)
	g := db.current()
	if err := db.verify(g, g.opened.Load()); err != nil && !errors.Is(err, errStopped) {
		db.log.Error(err, "The cache file cannot be verified", "path", db.path)
	}
}

// Verified implements store.Collection.
func (h *handle) Verified() <-chan struct{} {
	if f := h.c.generation().opened.Load(); f != nil {
		return f.tried
	}
	return verified // an empty file is going to be created
}
