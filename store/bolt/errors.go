package bolt

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/warmcache/warmcache/store"
)

// ErrInvalidOptions is wrapped by the error of Open for options that make no
// sense; the message names the field.
var ErrInvalidOptions = errors.New("invalid options")

// errUnreadable means that the disk did not let something be read, which says
// nothing of what is there.
var errUnreadable = errors.New("the disk cannot be read")

// errForeign marks files that no version of this library has written.
var errForeign = errors.New("not a warmcache file")

// errMoved means that a file got another name while its lock was waited for.
var errMoved = errors.New("the cache file was moved aside or replaced while its lock was waited for; open it again")

// LockedError is returned by Open when another process holds the file. It wraps
// store.ErrLocked.
type LockedError struct {
	// Path is the database file.
	Path string
	// Owner is who holds it, as far as that is known. It is the zero Owner if
	// the file is held by something that leaves no record, such as OpenReadOnly
	// or the bbolt command.
	Owner Owner
}

func (e *LockedError) Error() string {
	if host, _ := os.Hostname(); e.Owner.PID == os.Getpid() && e.Owner.Host == host {
		return fmt.Sprintf("%s: this process has it open already, since %s", e.Path, e.Owner.Since.Format(time.RFC3339))
	}
	if e.Owner.PID == 0 {
		return fmt.Sprintf("%s: %v, which left no record (a reader?); stop it or use another path", e.Path, store.ErrLocked)
	}
	return fmt.Sprintf("%s: %v: %s; stop it, or use another path", e.Path, store.ErrLocked, e.Owner)
}

// Unwrap returns store.ErrLocked.
func (e *LockedError) Unwrap() error { return store.ErrLocked }

// Owner says which process has a file open.
type Owner struct {
	// Host is the host name, which in a pod is the pod's name.
	Host string `json:"host,omitempty"`
	// PID is the process id, as seen by the process itself.
	PID int `json:"pid,omitempty"`
	// Since is when it opened the file, in UTC.
	Since time.Time `json:"since,omitzero"`
}

func (o Owner) String() string {
	return fmt.Sprintf("host %s, pid %d, since %s", o.Host, o.PID, o.Since.Format(time.RFC3339))
}
