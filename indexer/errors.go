package indexer

import "errors"

// ErrNotLoaded means that objects cannot be changed because those in the
// attached collection have not been loaded: memory and file would drift apart.
var ErrNotLoaded = errors.New("stored objects have not been loaded")

// ErrTransactionType means that a cache.Transaction says neither add nor update
// nor delete. client-go's store takes it for done, and does nothing.
var ErrTransactionType = errors.New("unknown type of transaction")

// ErrUnreadable means that an indexer in disk residency cannot read its objects,
// because the file was found damaged, and has not been filled by another list yet.
// It says nothing about whether an object exists: try again.
var ErrUnreadable = errors.New("stored objects cannot be read until they have been listed again")

// ErrResidency means that something is only possible in disk residency.
var ErrResidency = errors.New("the indexer is not in disk residency")

// ErrForeignStore means that a cache.Store is not an indexer of this package.
var ErrForeignStore = errors.New("the store is not an indexer of warmcache")

// errUndecodable means that a record whose checksum holds cannot be decoded: it is
// not damaged, but this program does not understand it.
var errUndecodable = errors.New("the stored record is whole, but not understood")
