package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/warmcache/warmcache/store"
)

// generation is one database file in the life of a DB: the one that Open found
// or made, or the one that takes the place of a file that was found damaged
// since. A collection belongs to the generation that its overlays lie over.
//
// Damage ends a generation, and begins the next in the same instant. The next one
// reads as empty until the committer has moved the damaged file aside and created
// a new one. It takes in what is applied meanwhile, so that a disk which does not
// let the file be created is like one that does not let it be written.
type generation struct {
	// damage is why the file must not be used any more; nil as long as it is
	// good. lost is closed right after it is set.
	damage atomic.Pointer[error]
	lost   chan struct{}
	// opened is the file; nil as long as there is none.
	opened atomic.Pointer[openFile]

	// The rest is the committer's.

	// before is the generation whose file has to be moved aside first; nil once
	// it has been.
	before *generation
	// notBefore is when the file may be created: a disk that damages every file
	// must not make all informers write everything again and again.
	notBefore time.Time
	// reported is set once it was logged that the file cannot be created.
	reported bool
}

// openFile is a database file that is open.
type openFile struct {
	// file is locked. meta is its meta page when it was opened, version its format.
	file    *os.File
	inode   uint64
	meta    boltMeta
	version int
	// bolt is nil until the file was verified. boltFile is the file that it uses, for
	// when its Close cannot be called.
	bolt     *bbolt.DB
	boltFile *os.File
	// mapping is what bbolt has mapped the file to. Whoever reads it enters it.
	mapping mapping
	// txid is the transaction of the last commit that is known to have succeeded.
	txid atomic.Int64
	// unclosed is set if the process before has not closed the file.
	unclosed bool
	// unsettled is set when a commit has failed whose meta page may be in the
	// page cache and not on the disk; see settle.
	unsettled bool
	// released is set once its lock was given up, ahead of bbolt's Close.
	released bool
	// gate is held where bbolt takes its lock of the meta pages; see exclusive.
	gate struct {
		sync.Mutex
		dead bool
	}
	// abandoned is set when a commit was left behind that still uses the file.
	abandoned atomic.Bool
	// died is closed when a panic has left that lock held for ever.
	died chan struct{}

	verification
}

func newGeneration(f *openFile) *generation {
	g := &generation{lost: make(chan struct{})}
	if f != nil {
		g.opened.Store(f)
	}
	return g
}

// damaged returns why the file must not be used any more, or nil.
func (g *generation) damaged() error {
	if err := g.damage.Load(); err != nil {
		return *err
	}
	return nil
}

// ready says whether there is a file, and it can be written to.
func (g *generation) ready() bool {
	f := g.opened.Load()
	return f != nil && f.trusted.Load()
}

// letGo is Close for a damaged file, whose bbolt cannot be closed: see mapping.
func (f *openFile) letGo() error {
	if f.bolt != nil {
		f.mapping.end(f.bolt)
	}
	if f.abandoned.Load() {
		return unlock(f.file)
	}
	err := errors.Join(unlock(f.file), f.file.Close())
	if f.boltFile != nil {
		err = errors.Join(err, f.boltFile.Close())
	}
	return err
}

const (
	// After the second file in a row that was damaged within patience, the next
	// is not created at once but after a pause, which doubles.
	minPause = time.Second
	maxPause = time.Hour
	patience = time.Hour
)

// current returns the generation that a collection begins on.
func (db *DB) current() *generation {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.mu.generation
}

// condemn ends g because of cause and returns the error that everything returns
// which uses g from now on. The mark in the lock file makes the next Open move the
// file aside should this process not live to do it.
func (db *DB) condemn(g *generation, cause error) error {
	err := fmt.Errorf("%s: %w", db.path, cause)
	if !db.succeed(g, err) {
		return g.damaged()
	}
	if db.readOnly {
		return err
	}
	if errors.Is(cause, errRemoved) {
		db.log.Error(err, "The cache file is gone from its path; beginning another", "path", db.path)
	} else {
		db.log.Error(err, "The cache file is damaged; moving it aside and beginning another", "path", db.path)
	}
	db.kick()
	return err
}

// succeed makes another generation take the place of g, unless that has happened.
func (db *DB) succeed(g *generation, err error) bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	if !g.damage.CompareAndSwap(nil, &err) {
		return false
	}
	close(g.lost)
	f := g.opened.Load()
	if f != nil {
		f.giveUp()
	}
	if db.readOnly {
		return true
	}
	if f != nil {
		// Before another file can take the place of this one, and its inode: a
		// small write into the page cache, once, is worth holding the lock.
		db.lock.condemn(f.inode)
	}
	next := newGeneration(nil)
	next.before = g
	now := db.options.Clock.Now()
	if db.mu.replaced.IsZero() || now.Sub(db.mu.replaced) > patience {
		db.mu.pause = 0
	} else {
		db.mu.pause = min(max(2*db.mu.pause, minPause), maxPause)
	}
	next.notBefore = now.Add(db.mu.pause)
	db.mu.generation = next
	db.mu.err, db.mu.backoff, db.mu.retryAt = err, 0, next.notBefore
	return true
}

// fileOf returns the file of g to write to, verified. It creates it if there is none,
// after moving the damaged one aside that g replaces. It runs on the committer.
func (db *DB) fileOf(g *generation) (*openFile, error) {
	if err := g.damaged(); err != nil {
		return nil, err
	}
	if f := g.opened.Load(); f != nil {
		return f, db.verify(g, f)
	}
	if now := db.options.Clock.Now(); g.before != nil && now.Before(g.notBefore) && !db.isStopping() {
		return nil, &pauseError{g.before.damaged(), g.notBefore.Sub(now)}
	}
	f, err := db.replace(g)
	if err == nil {
		g.opened.Store(f)
		db.replaced()
		db.log.Info("A new cache file is in use", "path", db.path)
		return f, db.verify(g, f)
	}
	if !g.reported {
		g.reported = true
		db.log.Error(err, "Cannot create a new cache file; serving from memory and trying again", "path", db.path)
	}
	return nil, err
}

// pauseError means that a file is not created yet. It is no failure of its own.
type pauseError struct {
	damage error
	left   time.Duration
}

func (e *pauseError) Error() string {
	return fmt.Sprintf("%v (another file is created in %s)", e.damage, e.left.Round(time.Second/10))
}

// Unwrap returns why there is no file.
func (e *pauseError) Unwrap() error { return e.damage }

// isStopping says whether there will be no other attempt.
func (db *DB) isStopping() bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.mu.stopping
}

// replace moves aside what is at the path and creates an empty file.
func (db *DB) replace(g *generation) (*openFile, error) {
	if err := os.MkdirAll(filepath.Dir(db.path), dirMode); err != nil {
		return nil, fmt.Errorf("create the directory of the cache file: %w", err)
	}
	if err := db.lock.hold(db.path, db.options); err != nil {
		return nil, err
	}
	if before := g.before; before != nil {
		if err := db.retire(before); err != nil {
			return nil, err
		}
		g.before = nil
	}
	return db.openUsable()
}

// retire lets go of the damaged file of g and moves it aside. The path may have
// another file by now, or none: whatever is there is moved, so that the next
// generation begins with nothing.
func (db *DB) retire(g *generation) error {
	reason := reasonDamaged
	f := g.opened.Load()
	if f != nil && !f.released {
		// Before anybody can know where the file went. The lock file keeps
		// others away from the path.
		f.released = true
		if err := f.letGo(); err != nil {
			db.log.Error(err, "Cannot release the lock of the damaged cache file", "path", db.path)
		}
	}
	switch info, err := os.Lstat(db.path); {
	case errors.Is(err, os.ErrNotExist):
		reason = ""
	case err != nil:
		return fmt.Errorf("move the damaged cache file aside: %w", err)
	case f != nil && inodeIn(info) != f.inode:
		reason = reasonReplaced
	}
	if reason != "" {
		return db.quarantine(reason, g.damaged())
	}
	return nil
}

// replaced notes that a new file exists.
func (db *DB) replaced() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.mu.replaced = db.options.Clock.Now()
	// Or the commit that follows would be said to have healed something.
	db.mu.err = nil
}

// errRemoved means that the path does not lead to the open file any more. What is
// written to that would be lost with the process.
var errRemoved = fmt.Errorf("%w: the file was removed or replaced under the running process", store.ErrCorrupt)

// checkPlace returns errRemoved if the file is not at its path any more. An error
// of the file system says nothing.
func (db *DB) checkPlace(f *openFile) error {
	info, err := os.Lstat(db.path)
	if errors.Is(err, os.ErrNotExist) || err == nil && inodeIn(info) != f.inode {
		return errRemoved
	}
	return nil
}
