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

// openLocked locks file, and verifies what is needed to read it. After an error the file
// is closed.
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
		err = db.openHead(f)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return f, nil
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

// openHead verifies what is ours in the file, and what is needed to read it.
func (db *DB) openHead(f *openFile) error {
	size, err := sizeOf(f.file)
	if err != nil {
		return fmt.Errorf("open cache file: %w", err)
	}
	if f.meta, err = checkHead(f.file, size); err == nil {
		f.txid.Store(int64(f.meta.txid))
		err = f.read(func(s snapshot) (err error) {
			f.version, err = verifyContents(s)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("%s: %w", db.path, err)
	}
	return nil
}

// openBolt has bbolt open the file, whose structure was verified.
//
// bbolt gets a file of its own, which it closes, also after an error, while others read
// the other one. They share one lock, which bbolt may give up with an error, but not
// that of the lock file.
func (db *DB) openBolt(f *openFile) error {
	fd, err := unix.FcntlInt(f.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open cache file %s: %w", db.path, err)
	}
	file := os.NewFile(uintptr(fd), db.path)
	options := boltOptions()
	options.ReadOnly = db.readOnly
	options.InitialMmapSize = mapSize(f.file)
	options.OpenFile = func(string, int, os.FileMode) (*os.File, error) { return file, nil }
	panicked, err := protect(func() (err error) {
		f.bolt, err = bbolt.Open(db.path, fileMode, options)
		return err
	})
	if panicked {
		return errors.Join(err, file.Close())
	}
	if err != nil {
		return fmt.Errorf("open cache file %s: %w", db.path, err)
	}
	f.boltFile = file
	f.mapping.set(f.bolt, options.InitialMmapSize)
	return nil
}

// close closes a file that nobody reads any more.
func (f *openFile) close() error {
	if f.bolt == nil {
		return f.letGo()
	}
	panicked, err := protect(f.bolt.Close)
	if panicked {
		return errors.Join(err, f.letGo())
	}
	return errors.Join(err, f.file.Close())
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
func verifyContents(s snapshot) (version int, err error) {
	version, err = formatIn(s)
	switch {
	case err != nil:
		return 0, err
	case version > migrations.Current:
		return version, fmt.Errorf("%w: format %d, want at most %d", store.ErrNewerFormat, version, migrations.Current)
	case version < migrations.Current:
		// The upgrade may change what headers look like.
		return version, nil
	}
	return version, eachCollection(s, func(store.Info) error { return nil })
}

// formatIn reads the format version. A file without one is not ours.
func formatIn(s snapshot) (int, error) {
	meta, err := s.bucket(metaBucket)
	if err == nil && meta == nil {
		err = errForeign
	}
	if err != nil {
		return 0, err
	}
	sealed, err := meta.get(formatKey)
	if err != nil {
		return 0, err
	}
	return decodeFormat(sealed)
}
