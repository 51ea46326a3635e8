package bolt

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/warmcache/warmcache/store"
)

// protect calls fn, in which bbolt is used, and turns a panic of bbolt or a
// fault in its mapping into an error wrapping store.ErrCorrupt. After one, the
// handle must not be touched again: its locks may be held for ever. No code of
// a caller may run in fn.
func protect(fn func() error) (panicked bool, err error) {
	// It is a setting of the goroutine, which may belong to a caller.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			panicked, err = true, fmt.Errorf("%w: bbolt: %v", store.ErrCorrupt, r)
		}
	}()
	return false, fn()
}

// guard is protect for a store that is open: a panic poisons it.
func (db *DB) guard(fn func() error) error {
	if err := db.poisoned(); err != nil {
		return err
	}
	panicked, err := protect(fn)
	if panicked {
		return db.poison(err)
	}
	return translate(err)
}

// view calls fn with a read transaction, guarded.
func (db *DB) view(fn func(*bbolt.Tx) error) error {
	return db.guard(func() error { return db.bolt.View(fn) })
}

// poison marks the store as damaged and returns the error that every operation
// returns from now on. The mark is also left in the lock file, so that the next
// Open quarantines the file even if this process is killed.
func (db *DB) poison(cause error) error {
	err := fmt.Errorf("%s: %w", db.path, cause)
	if !db.poisonErr.CompareAndSwap(nil, &err) {
		return db.poisoned()
	}
	db.log.Error(err, "The cache file is damaged and not used any more; the next start moves it aside")
	if db.lock != nil {
		db.lock.mark(phaseDamaged)
	}
	db.kick()
	return err
}

// poisoned returns the error of an earlier poison, or nil.
func (db *DB) poisoned() error {
	if err := db.poisonErr.Load(); err != nil {
		return *err
	}
	return nil
}

// translate maps bbolt's errors to the contract's.
func translate(err error) error {
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return store.ErrClosed
	}
	return err
}

// isFault says whether a panic value is an access to memory that is not there,
// such as a mapped page beyond the end of a truncated file. Dereferencing nil
// is not one.
func isFault(r any) bool {
	err, ok := r.(runtime.Error)
	if !ok {
		return false
	}
	_, ok = err.(interface{ Addr() uintptr })
	return ok
}
