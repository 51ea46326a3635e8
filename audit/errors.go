package audit

import "errors"

// The errors that Report.Err wraps, besides those of the server and of the context.
var (
	// ErrRestored means that the server is at a version before one that it has had: it
	// was restored from a backup. Everything has to be listed.
	ErrRestored = errors.New("the server was restored to an earlier state")

	// ErrBehind means that the cache did not reach the version of a page in time: its
	// watch is behind, or the server sends no bookmarks and nothing has changed. What
	// differs may be on its way.
	ErrBehind = errors.New("the cache has not reached the version of the page")

	// ErrUnsettled means that the cache was being filled by a list, or could not be
	// read, each time that a page was to be compared.
	ErrUnsettled = errors.New("the cache is being filled")

	// ErrBusy means that too many objects were deleted during the run to remember
	// them all. A higher rate makes runs shorter.
	ErrBusy = errors.New("too many objects were deleted during the audit")

	// ErrDisorder means that the server does not list in the order of the keys, so
	// that a page does not say what is between two of them.
	ErrDisorder = errors.New("the server does not list in the order of the keys")

	// ErrIncomparable means that versions are not numbers that can be compared, or
	// that the transform has removed them from what is stored.
	ErrIncomparable = errors.New("resourceVersions cannot be compared")

	// ErrUnrepaired means that a list was made and has not removed what was found, so
	// that none is made again as long as nothing else is found: most likely the
	// transform changes names, UIDs or versions, or the ListerWatcher changes what it lists.
	ErrUnrepaired = errors.New("a list has not removed the differences: the transform, or somebody else, makes other objects of what the server lists")
)
