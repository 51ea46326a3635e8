package bolt

import (
	"fmt"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// OnLocked says what Open does when another process still holds the file after
// Options.LockTimeout.
type OnLocked int

const (
	// Fail returns a *LockedError.
	Fail OnLocked = iota
	// Wait is Fail with a longer default LockTimeout: what a rolling update on
	// one volume needs, where the new process starts while the old one stops.
	Wait
	// MemoryOnly returns a working store that keeps everything in memory and
	// nothing on disk; DB.Persistent is false, Durability has an error wrapping
	// store.ErrLocked, and Open logs who holds the file. It stays so until the
	// process opens the file again, also when the holder goes away: what a running
	// cache has in memory cannot be laid over what the other process has written.
	MemoryOnly
)

// Defaults of Options.
const (
	DefaultFlushInterval = time.Second
	DefaultMaxDirty      = 20_000
	DefaultMaxDirtyBytes = 16 << 20
	DefaultDepartedBytes = 64 << 20
	DefaultScrubInterval = 24 * time.Hour
	DefaultScrubRate     = 4 << 20
	// DefaultLockTimeout covers a process that is just exiting.
	DefaultLockTimeout = time.Second
	// DefaultWaitTimeout is DefaultLockTimeout for Wait: more than the default
	// termination grace period of a pod.
	DefaultWaitTimeout = time.Minute
)

// Options configure a DB. The zero value of each field is a good default.
//
// Files are always created with mode 0600, in a directory that is created with
// mode 0700 if it does not exist, because they hold what the API server
// authorised the process to read. No option changes that; Open says what it does
// about files that are there.
type Options struct {
	// FlushInterval is the longest time that an applied change waits for a
	// commit on a healthy disk; DefaultFlushInterval if zero.
	FlushInterval time.Duration
	// MaxDirty and MaxDirtyBytes start a commit earlier, when that many changes
	// or bytes wait; DefaultMaxDirty and DefaultMaxDirtyBytes if zero. Apply
	// blocks at four times MaxDirtyBytes.
	MaxDirty      int
	MaxDirtyBytes int64

	// OnLocked says what to do when another process holds the file.
	OnLocked OnLocked
	// LockTimeout is how long Open waits for that process; DefaultLockTimeout,
	// or DefaultWaitTimeout with Wait, if zero.
	LockTimeout time.Duration

	// DepartedBytes limits the departed records of one collection, in bytes;
	// the oldest are dropped, and a log line says so. DefaultDepartedBytes if
	// zero.
	DepartedBytes int64

	// ScrubInterval is the pause between two passes of the scrub, which reads the
	// whole file in the background and verifies every checksum and total. The
	// first pass begins with Open. DefaultScrubInterval if zero; a negative value
	// turns it off.
	ScrubInterval time.Duration
	// ScrubRate limits the scrub, in bytes per second; DefaultScrubRate if zero.
	ScrubRate int64

	// Clock tells the time and makes timers; the real one if nil.
	Clock clock.Clock
	// Logger is used for everything that no caller hears about; klog's
	// background logger if nil.
	Logger *klog.Logger

	// beforeCommit and afterCommit, if set by a test, run before and after each
	// commit and can fail it; after, it has reached the disk all the same.
	beforeCommit, afterCommit func() error
	// beforeVerify, if set by a test, runs before the trees of a file are verified,
	// and can fail that.
	beforeVerify func() error
	// scrubChunk is how many bytes the scrub reads at a time.
	scrubChunk int
	// fileSystem, if set by a test, stands in for fileSystemOf.
	fileSystem func(dir string) (string, error)
}

// withDefaults returns o with every zero field set, or an error that wraps
// ErrInvalidOptions.
func (o Options) withDefaults() (Options, error) {
	for field, negative := range map[string]bool{
		"FlushInterval": o.FlushInterval < 0,
		"MaxDirty":      o.MaxDirty < 0,
		"MaxDirtyBytes": o.MaxDirtyBytes < 0,
		"LockTimeout":   o.LockTimeout < 0,
		"DepartedBytes": o.DepartedBytes < 0,
		"ScrubRate":     o.ScrubRate < 0,
	} {
		if negative {
			return o, fmt.Errorf("%w: %s must not be negative", ErrInvalidOptions, field)
		}
	}
	if o.OnLocked < Fail || o.OnLocked > MemoryOnly {
		return o, fmt.Errorf("%w: OnLocked must be Fail, Wait or MemoryOnly", ErrInvalidOptions)
	}
	setDefault(&o.FlushInterval, DefaultFlushInterval)
	setDefault(&o.MaxDirty, DefaultMaxDirty)
	setDefault(&o.MaxDirtyBytes, DefaultMaxDirtyBytes)
	setDefault(&o.DepartedBytes, DefaultDepartedBytes)
	setDefault(&o.ScrubInterval, DefaultScrubInterval)
	setDefault(&o.ScrubRate, DefaultScrubRate)
	setDefault(&o.scrubChunk, defaultScrubChunk)
	if o.OnLocked == Wait {
		setDefault(&o.LockTimeout, DefaultWaitTimeout)
	}
	setDefault(&o.LockTimeout, DefaultLockTimeout)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.fileSystem == nil {
		o.fileSystem = fileSystemOf
	}
	if o.Logger == nil {
		logger := klog.Background()
		o.Logger = &logger
	}
	return o, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
