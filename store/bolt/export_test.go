package bolt

import (
	"context"
	"errors"
	"os"

	"go.etcd.io/bbolt"

	"github.com/warmcache/warmcache/store"
)

// FailCommits makes o run hook before each commit, which fails with its error.
func FailCommits(o Options, hook func() error) Options {
	o.beforeCommit = hook
	return o
}

// FailAfterCommits is FailCommits, but each commit has then reached the disk.
func FailAfterCommits(o Options, hook func() error) Options {
	o.afterCommit = hook
	return o
}

// ScrubAllTheTime makes o scrub without a pause, so many bytes between commits.
func ScrubAllTheTime(o Options, chunk int) Options {
	o.ScrubInterval, o.ScrubRate, o.scrubChunk = 1, 1<<40, chunk
	return o
}

// OnFileSystem makes o ask fn for the file system of a directory.
func OnFileSystem(o Options, fn func(dir string) (string, error)) Options {
	o.fileSystem = fn
	return o
}

// LockPath is the name of the lock file of a database.
var LockPath = lockPath

const (
	MaxStrikes     = maxStrikes
	MaxQuarantined = maxQuarantined
)

// WithDefaults is what Open does to its options.
func WithDefaults(o Options) (Options, error) { return o.withDefaults() }

// SetFormat writes a format version into a closed file.
func SetFormat(path string, version int) error {
	db, err := bbolt.Open(path, fileMode, boltOptions())
	if err != nil {
		return err
	}
	err = upgradeFile{bolt: db}.Update(version, func(*bbolt.Tx) error { return nil })
	return errors.Join(err, db.Close())
}

// DieWhileOpening leaves what a process leaves that dies in Open.
func DieWhileOpening(path string) error {
	return beginOnly(path, func(l *lockFile) error { return l.file.Close() })
}

// FailToRead leaves what an Open leaves that the disk does not let read the file.
func FailToRead(path string) error {
	return beginOnly(path, func(l *lockFile) error {
		l.unreadable()
		return l.release()
	})
}

// beginOnly begins to open a file, and ends as end does.
func beginOnly(path string, end func(*lockFile) error) error {
	o, err := Options{}.withDefaults()
	if err != nil {
		return err
	}
	lock, err := acquireLock(path, &o)
	if err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	inode, err := inodeOf(file)
	lock.begin(inode)
	return errors.Join(err, file.Close(), end(lock))
}

// Closed says whether Close has begun.
func (db *DB) Closed() bool { return db.closed.Load() }

// DieOpen leaves what a process leaves that dies with the file open.
func DieOpen(path string, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	db := newDB(path, o)
	if err := db.own(); err != nil {
		return err
	}
	return errors.Join(db.current().opened.Load().letGo(), db.lock.file.Close())
}

// DieDamaged leaves what a process leaves that finds damage and dies before it has
// moved the file aside.
func DieDamaged(path string) error {
	o, err := Options{}.withDefaults()
	if err != nil {
		return err
	}
	db := newDB(path, o)
	if err := db.own(); err != nil {
		return err
	}
	g := db.current()
	_ = db.condemn(g, store.ErrCorrupt) // the committer, which acts on it, never ran
	return errors.Join(g.opened.Load().letGo(), db.lock.file.Close())
}

// Pages returns how many pages of the file are in use, free ones included, and
// how many of them are free or wait for a reader to end.
func Pages(db *DB) (used, free int64, err error) {
	f := db.current().opened.Load()
	if err := f.awaitTrusted(context.Background()); err != nil {
		return 0, 0, err
	}
	err = f.view(func(tx *bbolt.Tx) error {
		used = tx.Size() / pageSize
		for id := int64(0); id < used; id++ {
			page, err := tx.Page(int(id))
			if err != nil {
				return err
			}
			if page.Type == "free" {
				free++
				continue
			}
			id += int64(page.OverflowCount)
		}
		return nil
	})
	return used, free, err
}
