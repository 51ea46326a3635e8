package store

import (
	"errors"
	"fmt"
)

var (
	// ErrNotFound means that the key is not in the collection. It is never
	// returned for a key whose record could not be read.
	ErrNotFound = errors.New("not found")

	// ErrCorrupt means that stored bytes are not what was written: a checksum
	// or the structure of the file does not hold. Nothing that was read may be
	// used; list from the API server instead.
	ErrCorrupt = errors.New("stored data is damaged")

	// ErrLocked means that another process holds the file. The wrapping error
	// names the owner as far as it is known.
	ErrLocked = errors.New("file is in use by another process")

	// ErrNewerFormat means that the file was written by a newer version of
	// this library, which is needed to read it.
	ErrNewerFormat = errors.New("file has a newer format than this version knows")

	// ErrInUse means that the identity is already open in this process. Two
	// informers of one identity would overwrite each other's state.
	ErrInUse = errors.New("another informer has this identity")

	// ErrClosed is returned by every operation on a closed store or collection.
	// An informer in memory residency goes on from memory.
	ErrClosed = errors.New("store is closed")

	// ErrReadOnly is returned by writes to a store opened read-only.
	ErrReadOnly = errors.New("store is read-only")

	// ErrInvalidBatch means that a batch holds something that no engine can
	// store, such as an empty key or an index value that is too long. Nothing
	// of it was applied.
	ErrInvalidBatch = errors.New("invalid batch")
)

// InUse returns the error, wrapping ErrInUse, for somebody who wants the collection
// of id while holder has it open.
func InUse(id Identity, holder, wanted string) error {
	return fmt.Errorf("%w: %s is open for %q, and was asked for by %q", ErrInUse, id, holder, wanted)
}
