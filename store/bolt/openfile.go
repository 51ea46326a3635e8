package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/warmcache/warmcache/migrations"
	"github.com/warmcache/warmcache/store"
)

// openOrCreate opens the file for writing.
func (db *DB) openOrCreate() (*openFile, error) {
	info, err := os.Stat(db.path)
	if err == nil && info.Size() == 0 {
		err = fs.ErrNotExist
	}
	switch {
	case err == nil:
		// The process that created it may have ended before its name was durable.
		err = syncDir(filepath.Dir(db.path))
	case errors.Is(err, fs.ErrNotExist):
		err = create(db.path, db.now())
		// What the previous owner has left is about a file that is gone, whose
		// inode the new one may have.
		db.lock.found = ownerRecord{}
	}
	if err != nil {
		return nil, err
	}
	file, err := openRegular(db.path, os.O_RDWR)
	if err != nil {
		return nil, fmt.Errorf("open cache file: %w", err)
	}
	f, err := db.openLocked(file)
	if err == nil {
		err = db.upgrade(f)
	}
	return f, err
}

// openLocked locks file, verifies it, and has bbolt open it. After an error the
// file is closed.
func (db *DB) openLocked(file *os.File) (*openFile, error) {
	how := unix.LOCK_EX
	if db.readOnly {
		how = unix.LOCK_SH
	}
	err := lockWithin(file, how, &db.options, func() error {
		return &LockedError{Path: db.path, Owner: db.otherOwner()}
	})
	f := &openFile{file: file, died: make(chan struct{}), verification: verification{tried: make(chan struct{})}}
	if err == nil && !isAt(file, db.path) {
		err = errMoved
	}
	if err == nil {
		f.inode, err = inodeOf(file)
	}
	if err == nil && db.lock != nil {
		f.unclosed = !db.lock.closedBefore(f.inode)
		err = db.begin(f)
	}
	if err == nil {
		err = db.verifyHead(f)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return f, db.openBolt(f)
}

// otherOwner is who holds the database's own lock. If we hold the lock file, it
// is somebody who leaves no record.
func (db *DB) otherOwner() Owner {
	if db.lock != nil {
		return Owner{}
	}
	return ownerOf(db.path)
}

// begin marks that opening begins.
func (db *DB) begin(f *openFile) error {
	if condemned := db.lock.begin(f.inode); condemned != "" {
		return &condemnedError{condemned}
	}
	return refusePlanted(f.file)
}

func (db *DB) verifyHead(f *openFile) error {
	size, err := sizeOf(f.file)
	if err != nil {
		return fmt.Errorf("open cache file: %w", err)
	}
	if err := checkHead(f.file, size); err != nil {
		return fmt.Errorf("%s: %w", db.path, err)
	}
	return nil
}

// openBolt has bbolt open f.file, and verifies what is ours in it. After an error
// the file is closed.
func (db *DB) openBolt(f *openFile) error {
	options := boltOptions()
	options.ReadOnly = db.readOnly
	options.InitialMmapSize = mapSize(f.file)
	options.OpenFile = func(string, int, os.FileMode) (*os.File, error) { return f.file, nil }
	panicked, err := protect(func() (err error) {
		f.bolt, err = bbolt.Open(db.path, fileMode, options)
		return err
	})
	if panicked {
		return errors.Join(err, f.letGo())
	}
	if err != nil {
		// bbolt has closed the file.
		return fmt.Errorf("open cache file %s: %w", db.path, err)
	}
	f.mapping.set(f.bolt, options.InitialMmapSize)
	panicked, err = protect(func() error {
		return f.view(func(tx *bbolt.Tx) error {
			f.txid.Store(int64(tx.ID()))
			return verifyContents(tx)
		})
	})
	if panicked {
		return errors.Join(err, f.letGo())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", db.path, err), f.close())
	}
	return nil
}

// close closes a file that nobody reads any more.
func (f *openFile) close() error {
	panicked, err := protect(f.bolt.Close)
	if panicked {
		err = f.letGo()
	}
	return err
}

// maxMapSize is the address space that is reserved for the file. As long as it
// suffices, a growing file is never mapped anew, for which bbolt would wait for
// every reader and let no new one begin.
const maxMapSize = 64 << 30

// mapSize returns how much of the address space can be reserved for file: half
// as much again and again where there is a limit, or 0 for bbolt's default.
func mapSize(file *os.File) int {
	if strconv.IntSize < 64 {
		return 0
	}
	for size := int64(maxMapSize); size >= 1<<20; size /= 2 {
		reserved, err := unix.Mmap(int(file.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
		if err == nil && unix.Munmap(reserved) == nil {
			return int(size)
		}
	}
	return 0
}

// verifyContents checks that the file is ours, that its format is known, and
// that every header can be read.
func verifyContents(tx *bbolt.Tx) error {
	version, err := formatIn(tx)
	if err != nil {
		return err
	}
	if version > migrations.Current {
		return fmt.Errorf("%w: format %d, want at most %d", store.ErrNewerFormat, version, migrations.Current)
	}
	if version < migrations.Current {
		// The upgrade may change what headers look like.
		return nil
	}
	return eachCollection(tx, func(store.Info) error { return nil })
}

// formatIn reads the format version. A file without one is not ours.
func formatIn(tx *bbolt.Tx) (int, error) {
	meta := tx.Bucket(metaBucket)
	if meta == nil {
		return 0, errForeign
	}
	return decodeFormat(meta.Get(formatKey))
}
