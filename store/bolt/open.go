package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/warmcache/warmcache/migrations"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/internal/memory"
)

// Open opens the file at path, or creates it. The caller must Close the result.
//
// What happens to a file that is there:
//
//   - held by another process: see Options.OnLocked
//   - of an older format: upgraded, after a copy was made
//   - of zero length: replaced, because nothing is in it
//   - damaged, truncated, half-written, not one of ours, of a newer format, or
//     one that has crashed three processes in a row while they opened it: moved
//     aside unharmed, logged, and replaced by an empty one. DB.Quarantined says
//     where to. The newest three such files are kept, and all of a newer format.
//
// An error means that nothing is lost: a path that is not a regular file, a
// directory that cannot be written, no space for an empty file (the one that could
// not be used may have been moved aside by then), a lock that is held
// (*LockedError), options that make no sense (ErrInvalidOptions), a disk that
// cannot be read, or, in a directory that everybody can write to, a file that
// another user has put there. A file that could not be read three times in a row
// is moved aside by the next Open.
//
// Others lose their access to the file and to what is next to it (lock file,
// files moved aside, backups); a log line says so. Links are not followed. A
// directory that others can write to, and a file system that is not local, are
// warned about.
//
// How long Open takes does not depend on the number of objects. It verifies what it
// needs to find the collections. The rest of the structure, the first page of every
// branch and leaf, is verified in the background; collections can be read and changed
// meanwhile, and nothing is written before: see store.Collection.Verified. Damage that
// is found then costs the file as damage always does: it is moved aside, and the
// collections are lost. The records are not read.
func Open(path string, o Options) (*DB, error) {
	o, err := o.withDefaults()
	if err == nil {
		err = checkPath(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open cache file %q: %w", path, err)
	}
	db := newDB(path, o)
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return nil, fmt.Errorf("create the directory of the cache file: %w", err)
	}
	db.warnAboutPlace()
	if err := db.own(); err != nil {
		if errors.Is(err, store.ErrLocked) && o.OnLocked == MemoryOnly {
			return db.inMemory(err), nil
		}
		return nil, err
	}
	go db.run()
	return db, nil
}

// checkPath refuses what cannot be a database file.
func checkPath(path string) error {
	if path == "" {
		return fmt.Errorf("%w: the path is empty", ErrInvalidOptions)
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return errors.New("it is a directory; give the path of a file")
	case info.Mode()&fs.ModeSymlink != 0:
		return errors.New("it is a symbolic link; give the path that it leads to")
	case !info.Mode().IsRegular():
		return errors.New("it is not a regular file")
	}
	return nil
}

// inMemory makes db a store without a file.
func (db *DB) inMemory(reason error) *DB {
	db.log.Error(reason, "Keeping everything in memory; nothing will be there after a restart", "path", db.path)
	db.memory = memory.New(memory.Options{Clock: db.options.Clock, Volatile: reason}).Open()
	return db
}

// own takes the lock of the path and opens the file at it.
func (db *DB) own() error {
	lock, err := acquireLock(db.path, &db.options)
	if err != nil {
		return err
	}
	db.lock = lock
	db.makePrivate()
	f, err := db.openUsable()
	if errors.Is(err, errUnreadable) {
		lock.unreadable()
	}
	if err != nil {
		return errors.Join(err, lock.release())
	}
	db.mu.generation = newGeneration(f)
	db.measure(f)
	return nil
}

// openUsable opens the file, or an empty one in its place if it is unusable.
func (db *DB) openUsable() (*openFile, error) {
	f, err := db.openOrCreate()
	if reason := unusable(err); reason != "" {
		if err := db.quarantine(reason, err); err != nil {
			return nil, err
		}
		f, err = db.openOrCreate()
	}
	if err != nil {
		return nil, err
	}
	db.lock.opened(f.inode)
	return f, nil
}

// condemnedError means that a file must not be touched because of what happened
// to the processes that did.
type condemnedError struct{ reason string }

func (e *condemnedError) Error() string { return "an earlier process marked it: " + e.reason }

// unusable returns why a file has to be quarantined after err, or "".
func unusable(err error) string {
	var condemned *condemnedError
	switch {
	case errors.As(err, &condemned):
		return condemned.reason
	case errors.Is(err, store.ErrNewerFormat):
		return reasonNewer
	case errors.Is(err, migrations.ErrNoPath):
		return reasonUpgrade
	case errors.Is(err, errForeign):
		return reasonForeign
	case errors.Is(err, store.ErrCorrupt):
		return reasonDamaged
	}
	return ""
}
