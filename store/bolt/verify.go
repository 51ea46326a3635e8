package bolt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/warmcache/warmcache/store"
)

// verification is what is known of the trees of a file: see checkTrees. Open leaves
// them to the committer, so that what it takes does not depend on how much is in the
// file. Until they were verified
//
//   - bbolt has not opened the file, which it begins with reading the whole free list
//   - Views read the file page by page: see pageSnapshot
//   - nothing is committed; what is applied waits in the overlays
type verification struct {
	// trusted is set once they were found sound, and bbolt has opened the file.
	trusted atomic.Bool
	// untrusting is held for reading by those who read page by page. They must have
	// left before a commit may use pages again that were free.
	untrusting sync.RWMutex
	// tried is closed once when that was tried for the first time, whatever came of it:
	// on a disk that cannot be read, it may be tried for ever.
	tried chan struct{}
	once  sync.Once
}

// untrusted says whether the file has to be read page by page. Then the caller must
// unlock untrusting when it has done so.
func (v *verification) untrusted() bool {
	for !v.trusted.Load() {
		if !v.untrusting.TryRLock() {
			continue // trusted has been set
		}
		if !v.trusted.Load() {
			return true
		}
		v.untrusting.RUnlock()
	}
	return false
}

// end notes how a try has ended. If well, it waits for those who have begun to read
// page by page.
func (v *verification) end(err error) {
	if err == nil {
		v.trusted.Store(true)
		v.untrusting.Lock()
		v.untrusting.Unlock() //nolint:staticcheck // a barrier, not a critical section
	}
	v.giveUp()
}

// giveUp ends the wait for a verification that may never come.
func (v *verification) giveUp() { v.once.Do(func() { close(v.tried) }) }

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
		err = f.checkTrees(func() error { return db.stopVerifying(g) })
	}
	if err == nil {
		err = db.openVerified(f)
	}
	switch {
	case errors.Is(err, store.ErrCorrupt):
		return db.condemn(g, err)
	case errors.Is(err, errUnreadable) && db.lock != nil:
		db.lock.unreadable()
	}
	return err
}

// openVerified is openBolt of which a process that dies counts as one that died in Open.
func (db *DB) openVerified(f *openFile) error {
	if db.lock == nil {
		return db.openBolt(f)
	}
	db.lock.goOn()
	defer db.lock.wentOn()
	return db.openBolt(f)
}

// checkTrees reads the pages of the file until something does not hold, or stop, which
// is asked all the time, returns an error.
func (f *openFile) checkTrees(stop func() error) error {
	size, err := sizeOf(f.file)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return checkTrees(f.file, size, func(uint64) error { return stop() })
}

// stopVerifying returns why the file of g need not be verified any more: somebody else
// has found damage, or the store is being closed and nothing waits for a commit.
func (db *DB) stopVerifying(g *generation) error {
	if err := g.damaged(); err != nil {
		return err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.mu.stopping && db.mu.pending.plus(db.mu.frozen).count == 0 && len(db.mu.requests) == 0 {
		return errStopped
	}
	return nil
}

// verifyFirst verifies the file that was opened. What is applied meanwhile is not due
// for a commit because of that; an error is for the commit that tries again.
func (db *DB) verifyFirst() {
	g := db.current()
	f := g.opened.Load()
	if f == nil {
		return // found damaged already
	}
	err := db.verify(g, f)
	if db.readOnly && err != nil && !errors.Is(err, errStopped) {
		db.log.Error(err, "The cache file cannot be verified", "path", db.path)
	}
}

// verifyOnly is the committer of a store that is read-only.
func (db *DB) verifyOnly() {
	defer close(db.stopped)
	db.verifyFirst()
}

// awaitTrusted waits until the file may be read by bbolt.
func (f *openFile) awaitTrusted(ctx context.Context) error {
	select {
	case <-f.tried:
	case <-ctx.Done():
		return ctx.Err()
	}
	if !f.trusted.Load() {
		return errors.New("the file could not be verified")
	}
	return nil
}

// Verified implements store.Collection.
func (h *handle) Verified() <-chan struct{} {
	if f := h.c.generation().opened.Load(); f != nil {
		return f.tried
	}
	return verified // an empty file is going to be created
}
