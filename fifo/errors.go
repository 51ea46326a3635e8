package fifo

import "errors"

var (
	// ErrClosed is returned by PopBatch after Close.
	ErrClosed = errors.New("delta queue is closed")

	// ErrInvalidObject means that an object cannot be queued because it has no
	// key, or none is left after the transform. Nothing was queued; only a list
	// can bring the state that the object stood for.
	ErrInvalidObject = errors.New("object cannot be queued")
)
