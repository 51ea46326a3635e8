package indexer

import "errors"

// ErrNotLoaded means that objects cannot be changed because those in the
// attached collection have not been loaded: memory and file would drift apart.
var ErrNotLoaded = errors.New("stored objects have not been loaded")
