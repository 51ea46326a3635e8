package store

import (
	"iter"
	"time"
)

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
	// CommitTimes is how long those took that wrote something and succeeded.
	CommitTimes Durations
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

// durationBounds are the upper bounds of the classes that Durations counts. A commit
// takes 0.6 to 10 ms on a disk that is well, and tens of seconds on one that hangs.
var durationBounds = [...]time.Duration{
	time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond,
	300 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second, 30 * time.Second,
}

// Durations is a histogram of how long something took. The zero value is empty.
type Durations struct {
	// Count is how often it was done, Total how long all of it took.
	Count int64
	Total time.Duration
	// atMost[i] counts what took no longer than durationBounds[i].
	atMost [len(durationBounds)]int64
}

// Add counts one that took the given time.
func (d *Durations) Add(took time.Duration) {
	d.Count++
	d.Total += took
	for i, bound := range durationBounds {
		if took <= bound {
			d.atMost[i]++
		}
	}
}

// AtMost yields upper bounds, in ascending order, and how many took no longer.
func (d Durations) AtMost() iter.Seq2[time.Duration, int64] {
	return func(yield func(time.Duration, int64) bool) {
		for i, bound := range durationBounds {
			if !yield(bound, d.atMost[i]) {
				return
			}
		}
	}
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
