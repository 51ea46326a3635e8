package bolt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/warmcache/warmcache/store"
)

// Problem is one thing in a file that does not hold.
//
//nolint:errname // it is a finding that can be used as an error
type Problem struct {
	// Collection is whose data it is in; the zero Identity if it concerns the
	// file.
	Collection store.Identity
	// Where says which part: "free list", "index \"node\"", "object \"a/b\"".
	Where string
	// Err wraps store.ErrCorrupt and says what is wrong.
	Err error
}

func (p Problem) String() string {
	if p.Collection == (store.Identity{}) {
		return fmt.Sprintf("%s: %v", p.Where, p.Err)
	}
	return fmt.Sprintf("%s: %s: %v", p.Collection, p.Where, p.Err)
}

// Error is String.
func (p Problem) Error() string { return p.String() }

// Unwrap returns Err.
func (p Problem) Unwrap() error { return p.Err }

// CheckOptions say what a check does with what it finds. Their functions are
// called by the goroutine that called Check.
type CheckOptions struct {
	// Found is called for each problem, as it is found, and ends the check if
	// it returns false. If it is nil, problems are only counted.
	Found func(Problem) bool
	// Record is called for each record whose checksum holds, those of departed
	// objects included, and returns what is wrong with it: the engine itself
	// does not decode. The record is valid until Record returns.
	Record func(id store.Identity, key string, sealed []byte) error
	// Progress is called at least once per megabyte with the pages that were
	// read and those that are in use. A check in the background may take its
	// time in it.
	Progress func(done, total int64)
}

// CheckReport says what a check has read.
type CheckReport struct {
	// Pages of the file, which are 4096 bytes each: all, those that are free,
	// and those that are neither free nor used.
	Pages, FreePages, UnreachablePages int64
	// TornMeta says that one of the two meta pages is not valid, as after a
	// crash in the middle of a commit. That is not a problem: the other one has
	// the state before, and the commit had not ended.
	TornMeta bool
	// Collections are those whose header bucket can be read.
	Collections []store.Info
	// Problems is how many were found.
	Problems int64
}

// Check reads the whole file at path, which nobody may have open for writing, and
// verifies all that holds for a sound file:
//
//   - each page is used once or free; branches and leaves are laid out as bbolt
//     does, of one depth, their keys in order and those that the parent says
//   - every value's checksum, the format, and every header
//   - the totals of objects, departed records and indices are those of what is
//     there
//   - every index entry belongs to an object that exists, every index that a
//     header lists has totals
//   - every bucket belongs to a collection
//
// Problems are reported and counted, and are no error. It goes on after one, as
// far as it can read: damage of one page may show as several problems. An error
// means that the check has not ended: *LockedError, store.ErrNewerFormat, a file
// that is not one of ours, an I/O error, or the end of ctx. A file that is cut
// short is a problem.
//
// Check reads without bbolt and holds whatever the bytes are. It changes nothing,
// and holds a shared lock like OpenReadOnly. It needs one byte of memory per page
// (1/4096 of the file), 8 bytes per object of the largest collection, and the
// directory of buckets.
func Check(ctx context.Context, path string, o CheckOptions) (CheckReport, error) {
	report, err := checkPathLocked(ctx, path, o)
	if errors.Is(err, store.ErrLocked) {
		return report, err // it names the path
	}
	if err != nil {
		return report, fmt.Errorf("check %q: %w", path, err)
	}
	return report, nil
}

func checkPathLocked(ctx context.Context, path string, o CheckOptions) (CheckReport, error) {
	defaults, err := Options{}.withDefaults()
	if err == nil {
		err = checkPath(path)
	}
	if err != nil {
		return CheckReport{}, err
	}
	file, err := os.Open(path)
	if err != nil {
		return CheckReport{}, err
	}
	defer file.Close()
	err = lockWithin(file, unix.LOCK_SH, &defaults, func() error {
		return &LockedError{Path: path, Owner: ownerOf(path)}
	})
	if err != nil {
		return CheckReport{}, err
	}
	size, err := sizeOf(file)
	if err != nil {
		return CheckReport{}, err
	}
	return checkReader(ctx, file, size, o)
}

// checkReader checks what its newest meta page describes.
func checkReader(ctx context.Context, file io.ReaderAt, size int64, o CheckOptions) (CheckReport, error) {
	c := newChecker(ctx, file, o)
	meta, torn, err := readMeta(file)
	if err != nil {
		if errors.Is(err, errForeign) {
			return CheckReport{}, err
		}
		return c.end(c.problemIn("meta pages", err))
	}
	c.report.TornMeta = torn
	return c.end(c.run(meta, size))
}

// Check is the function Check for an open file, as of its last commit. What waits
// in memory is not looked at. Commits go on meanwhile, but pages of the state
// that is checked are not reused until it has ended: the file may grow by what
// they write. It returns an error wrapping store.ErrClosed soon after Close.
//
// A store that keeps everything in memory has nothing to check.
func (db *DB) Check(ctx context.Context, o CheckOptions) (CheckReport, error) {
	if db.memory != nil {
		return CheckReport{}, nil
	}
	if db.closed.Load() {
		return CheckReport{}, store.ErrClosed
	}
	report, err := db.checkSnapshot(ctx, o)
	db.markInUse(report.Collections)
	if err != nil {
		return report, fmt.Errorf("check %q: %w", db.path, err)
	}
	return report, nil
}

// checkSnapshot uses bbolt only to begin and end a transaction, so that neither
// damage nor a function of the caller can panic in its hands.
func (db *DB) checkSnapshot(ctx context.Context, o CheckOptions) (report CheckReport, err error) {
	g := db.current()
	f := g.opened.Load()
	if f == nil {
		return CheckReport{}, fmt.Errorf("there is no file at present: %w", db.Status().Err)
	}
	if err := f.awaitTrusted(ctx); err != nil {
		return CheckReport{}, errors.Join(err, g.damaged(), db.Status().Err)
	}
	if !f.mapping.enter() {
		return CheckReport{}, g.damaged()
	}
	defer f.mapping.leave()
	var tx *bbolt.Tx
	err = db.guard(g, func() (err error) {
		tx, err = f.begin(false)
		return err
	})
	if err != nil {
		return CheckReport{}, err
	}
	defer func() { err = errors.Join(err, db.guard(g, func() error { return f.rollback(tx) })) }()
	var meta boltMeta
	err = db.guard(g, func() (err error) {
		meta, err = metaOf(tx)
		return err
	})
	if err != nil {
		return CheckReport{}, err
	}
	size, err := sizeOf(f.file)
	if err != nil {
		return CheckReport{}, err
	}
	c := newChecker(ctx, f.file, o)
	c.closed = func() error {
		if db.closed.Load() {
			return store.ErrClosed
		}
		return g.damaged()
	}
	return c.end(c.run(meta, size))
}

func sizeOf(file *os.File) (int64, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// metaOf returns the meta page of a transaction. The one in the file may have
// been replaced by later commits; a copy of the file begins with it.
func metaOf(tx *bbolt.Tx) (boltMeta, error) {
	var first firstPage
	_, err := tx.WriteTo(&first)
	if len(first.b) < pageHeader+metaSize {
		return boltMeta{}, err
	}
	meta, ok := parseMeta(first.b[pageHeader:])
	if !ok {
		return boltMeta{}, damaged("no valid meta page")
	}
	return meta, nil
}

// firstPage is a writer that takes the first page of a copy.
type firstPage struct{ b []byte }

func (w *firstPage) Write(b []byte) (int, error) {
	w.b = append(w.b, b...)
	return 0, io.ErrShortWrite
}
