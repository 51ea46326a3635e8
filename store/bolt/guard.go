package bolt

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

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

// guard is protect for a generation: damage ends it, which bbolt answers with a
// panic or, where it finds one kind of entry in place of another, with an error.
func (db *DB) guard(g *generation, fn func() error) error {
	if err := g.damaged(); err != nil {
		return err
	}
	_, err := protect(fn)
	if err = translate(err); errors.Is(err, store.ErrCorrupt) {
		return db.condemn(g, err)
	}
	if damage := g.damaged(); err != nil && damage != nil {
		// The file may have been closed meanwhile.
		return damage
	}
	return err
}

// view calls fn with a snapshot, guarded; not at all as long as the generation has no
// file, and with it nothing to read.
func (db *DB) view(fn func(snapshot) error) error {
	g := db.current()
	f := g.opened.Load()
	if f == nil {
		return g.damaged()
	}
	return db.guard(g, func() error { return f.read(fn) })
}

// translate maps bbolt's errors to the contract's.
func translate(err error) error {
	switch {
	case errors.Is(err, berrors.ErrDatabaseNotOpen):
		return store.ErrClosed
	case errors.Is(err, berrors.ErrIncompatibleValue):
		// A bucket in place of a value, or the other way round.
		return fmt.Errorf("%w: bbolt: %w", store.ErrCorrupt, err)
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
