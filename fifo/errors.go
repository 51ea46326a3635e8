package fifo

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed is returned by PopBatch after Close.
	ErrClosed = errors.New("delta queue is closed")

	// ErrInvalidObject means that an object cannot be queued because it has no
	// key, or none is left after the transform. Nothing was queued; only a list
	// can bring the state that the object stood for.
	ErrInvalidObject = errors.New("object cannot be queued")

	// ErrAbandoned is wrapped by what a streamed Replacement returns once the
	// consumer has failed within the list: the rest of it is not wanted. Failed
	// delivers why.
	ErrAbandoned = errors.New("list was given up")
)

// LostError is what a consumer fails with that no longer has the objects that it
// had at RV, although handlers know of them. An ordinary list would not tell what
// has been deleted since; a list of the state at RV, from which a watch goes on,
// does. Use it as a pointer.
type LostError struct {
	// RV is the resourceVersion of the state that was lost, never empty.
	RV string
	// Err is how it was lost.
	Err error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("the objects of resourceVersion %s are lost: %v", e.RV, e.Err)
}

// Unwrap returns Err.
func (e *LostError) Unwrap() error { return e.Err }

// LostVersion returns RV, for those who know the error by this method.
func (e *LostError) LostVersion() string { return e.RV }
