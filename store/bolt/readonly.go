package bolt

import (
	"errors"
	"fmt"
	"os"
)

// OpenReadOnly opens an existing file that no other process has open for
// writing, without changing it or anything next to it. It holds a shared lock:
// others can read, and a process that wants to write has to wait.
//
// Writes to the store give an error wrapping store.ErrReadOnly. Nothing is
// quarantined: a newer format gives store.ErrNewerFormat, damage
// store.ErrCorrupt, here or from whatever reads the file once it is found, and a file
// that is held *LockedError. FlushInterval and what
// else is about writing is ignored.
func OpenReadOnly(path string, o Options) (*DB, error) {
	o, err := o.withDefaults()
	if err == nil && o.OnLocked == MemoryOnly {
		err = fmt.Errorf("%w: MemoryOnly makes no sense for OpenReadOnly", ErrInvalidOptions)
	}
	if err == nil {
		err = checkPath(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open cache file %q: %w", path, err)
	}
	db := newDB(path, o)
	db.readOnly = true
	f, err := db.openForReading()
	if err != nil {
		return nil, err
	}
	db.mu.generation = newGeneration(f)
	db.measure(f)
	go db.verifyOnly()
	return db, nil
}

// openForReading opens the file. Its owner may move it aside while we wait for
// its lock: then it begins anew with the one that is there.
func (db *DB) openForReading() (*openFile, error) {
	for {
		file, err := openRegular(db.path, os.O_RDONLY)
		if err != nil {
			return nil, fmt.Errorf("open cache file: %w", err)
		}
		f, err := db.openLocked(file)
		if !errors.Is(err, errMoved) {
			return f, err
		}
	}
}
