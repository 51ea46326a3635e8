package bolt

import (
	"errors"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// exclusive calls fn, in which bbolt begins or ends a transaction.
//
// It does so under its lock of the meta pages, and if it panics there, because none
// of them is valid, it leaves the lock held: whoever comes next would wait for it
// for ever. Here the next one is turned away.
func (f *openFile) exclusive(fn func() error) error {
	f.gate.Lock()
	defer f.gate.Unlock()
	if f.gate.dead {
		return damaged("a transaction has panicked when it began")
	}
	f.gate.dead = true
	defer func() {
		if f.gate.dead {
			close(f.died)
		}
	}()
	err := fn()
	f.gate.dead = false
	return err
}

// begin begins a transaction. One that is older than the last commit has come back
// from the disk with a meta page of that time.
func (f *openFile) begin(writable bool) (tx *bbolt.Tx, err error) {
	last := f.txid.Load()
	if writable {
		last++
	}
	err = f.exclusive(func() (err error) {
		tx, err = f.bolt.Begin(writable)
		return err
	})
	if err == nil && int64(tx.ID()) < last {
		err = errors.Join(damaged("transaction %d after %d", tx.ID(), last), f.rollback(tx))
	}
	return tx, err
}

// rollback ends a transaction without committing it. It may have ended.
func (f *openFile) rollback(tx *bbolt.Tx) error {
	err := f.exclusive(tx.Rollback)
	if errors.Is(err, berrors.ErrTxClosed) {
		return nil
	}
	return err
}

// view calls fn with a read transaction.
func (f *openFile) view(fn func(*bbolt.Tx) error) error {
	if !f.mapping.enter() {
		return berrors.ErrDatabaseNotOpen
	}
	defer f.mapping.leave()
	tx, err := f.begin(false)
	if err != nil {
		return err
	}
	return errors.Join(fn(tx), f.rollback(tx))
}

// read calls fn with a snapshot.
func (f *openFile) read(fn func(snapshot) error) error {
	if !f.mapping.enter() {
		return berrors.ErrDatabaseNotOpen
	}
	defer f.mapping.leave()
	if f.untrusted() {
		defer f.untrusting.RUnlock()
		return fn(f.pages(func(err error) error { return err }))
	}
	return f.view(func(tx *bbolt.Tx) error { return fn(boltSnapshot{tx}) })
}

// commit commits a transaction. To write the meta page bbolt takes the lock that a
// reader may have left held: then the commit is abandoned where it is, and ended is
// false. It may go on to use the file.
func (f *openFile) commit(tx *bbolt.Tx) (ended bool, err error) {
	done := make(chan error, 1)
	f.mapping.enter() // it is not over: only the committer, and Close after it, end it
	go func() {
		defer f.mapping.leave()
		_, err := protect(tx.Commit)
		done <- withErrno(err)
	}()
	select {
	case err := <-done:
		return true, err
	case <-f.died:
		f.abandoned.Store(true)
		return false, damaged("a transaction has panicked when it began")
	}
}
