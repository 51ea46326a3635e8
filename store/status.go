package store

import "time"

// Status describes a store as a whole: what an operator wants to know. Counters
// start at zero when the store is opened.
type Status struct {
	// Persistent is false if there is no file: everything is in memory only,
	// because the file was held by another process. It does not change.
	Persistent bool
	// Err is why the file cannot be written at present; nil if it can. What is
	// applied meanwhile is kept in memory, and writing it is tried again. Without
	// a file it is why there is none.
	Err error
	// Committed is when the last commit that wrote something ended; zero if none
	// did.
	Committed time.Time
	// Commits counts the commits that wrote something, FailedCommits those that
	// failed. A commit that is tried again counts again.
	Commits, FailedCommits int64
	// PendingBytes is the size of what waits in memory for a commit.
	PendingBytes int64
	// FileBytes is the size of the file, FreeBytes the part of it that holds
	// nothing and is used again before the file grows.
	FileBytes, FreeBytes int64
	// Quarantines counts the files that were moved aside because they could not
	// be used, when the store was opened or since. Quarantined is the path that
	// the last one got; empty if there was none.
	Quarantines int64
	Quarantined string
	// Scrub is the search for damage in the background.
	Scrub ScrubStatus
}

// ScrubStatus describes the search for damage that an engine does in the
// background. It goes through the whole file again and again.
type ScrubStatus struct {
	// Passes counts the passes that came to their end, Completed is when the last
	// of them did; zero if none has.
	Passes    int64
	Completed time.Time
	// Problems counts what all passes have found damaged.
	Problems int64
	// Checked is how many bytes the current pass has gone through, of Total. Both
	// are 0 between passes.
	Checked, Total int64
}
