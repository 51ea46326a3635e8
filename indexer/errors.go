package indexer

import "errors"

// ErrNotLoaded means that objects cannot be changed because those in the
// attached collection have not been loaded: memory and file would drift apart.
var ErrNotLoaded = errors.New("stored objects have not been loaded")

// ErrTransactionType means that a cache.Transaction says neither add nor update
// nor delete. client-go's store takes it for done, and does nothing.
var ErrTransactionType = errors.New("unknown type of transaction")

// errUndecodable means that a record whose checksum holds cannot be decoded: it is
// not damaged, but this program does not understand it.
var errUndecodable = errors.New("the stored record is whole, but not understood")
