package metrics

import "errors"

var (
	// ErrForeignInformer means that the informer was not made by this module,
	// such as one of client-go's own, and has no status to report.
	ErrForeignInformer = errors.New("informer is not one of warmcache's; make it with its factory or with informer.New")

	// ErrInvalidName means that a name cannot be the value of a label: it is
	// empty or not UTF-8.
	ErrInvalidName = errors.New("name of an informer must be UTF-8 and not empty")

	// ErrNameInUse means that the collector reports another informer under this
	// name. Remove that first, or choose another name.
	ErrNameInUse = errors.New("another informer has this name")
)
