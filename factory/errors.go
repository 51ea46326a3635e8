package factory

import (
	"errors"
	"fmt"
)

var (
	// ErrInvalidOptions is wrapped by the errors of constructors. They name the
	// option.
	ErrInvalidOptions = errors.New("invalid factory options")

	// ErrUnknownResource means that the clientset does not say how to list a type:
	// it has no accessor for it, or more than one. Use a factory for dynamic
	// clients, or give InformerFor a function that builds the informer.
	ErrUnknownResource = errors.New("clientset has no unique accessor")

	// ErrAlreadyRegistered means that a factory had an informer for a type before
	// Adopt was called for it. The factory goes on with that one.
	ErrAlreadyRegistered = errors.New("factory has an informer of this type already")

	// ErrNotIdentified is in the status of an informer of NewInformerFunc that works
	// in memory because nobody knows what it lists. The error that wraps it says
	// what to do.
	ErrNotIdentified = errors.New("what the informer lists is not known")

	// errOnlySeen ends a request that was only to be seen.
	errOnlySeen = errors.New("the request only shows what an informer lists, and is not sent")
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalidOptions, fmt.Errorf(format, args...))
}
