package reflector

import (
	"time"
)

// Phase is where a reflector is in the picture of the package documentation.
type Phase string

const (
	// PhaseStarting is before the first request.
	PhaseStarting Phase = "Starting"
	// PhaseProbing asks for the server's current version.
	PhaseProbing Phase = "Probing"
	// PhaseResuming watches from the stored version until caught up.
	PhaseResuming Phase = "Resuming"
	// PhaseListing reads the whole collection.
	PhaseListing Phase = "Listing"
	// PhaseWatching follows changes.
	PhaseWatching Phase = "Watching"
	// PhaseStopped is after Run has returned.
	PhaseStopped Phase = "Stopped"
)

// Status is a snapshot of what a reflector knows.
type Status struct {
	Phase Phase
	// RV is the version up to which the server has been read.
	RV string
	// ServerRV is the version that the server had at the last probe or list.
	ServerRV string
	// CaughtUp says that RV has reached what the server had at the start.
	CaughtUp bool
	// Contact is when the server last answered; zero if it never has.
	Contact time.Time
	// Err is why the last request failed, nil after one that did not.
	Err error
	// Lists counts lists of the whole collection, Watches accepted watches.
	Lists, Watches int
	// SparseLists counts those of Lists that read what differs only.
	SparseLists int
	// ListReason says why the last list was made.
	ListReason string
	// Foreign says that the stored copy was of another cluster.
	Foreign bool
	// Cluster and Schema are what Options.Cluster and Options.Schema said.
	Cluster, Schema string
	// Bookmarks says whether the server sends bookmarks, nil if not known yet.
	Bookmarks *bool
	// Replays says that the server is known to keep the changes since the versions that
	// it gives out, because it has sent a bookmark, be it the one that ends a streamed
	// list.
	Replays bool
	// Newest is the newest object that the server is known to have had, as far as
	// it has not been deleted since; zero if none is known. A server that no longer
	// has it, and does not say what has become of it, has another history.
	Newest ObjectRef
}

// ObjectRef names one version of an object, as the server has it.
type ObjectRef struct {
	Key, UID, RV string
}

// Status returns the current status. It is safe for concurrent use.
func (r *Reflector) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.status
}

func (r *Reflector) setPhase(phase Phase) {
	r.update(func(s *Status) { s.Phase = phase })
}

// update changes the status.
func (r *Reflector) update(change func(*Status)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.mu.status)
}

// contacted notes that the server has answered.
func (r *Reflector) contacted() {
	now := r.clock.Now()
	r.update(func(s *Status) { s.Contact, s.Err = now, nil })
}

// failed notes why the last request failed. A server that says no has answered.
func (r *Reflector) failed(err error) {
	now := r.clock.Now()
	r.update(func(s *Status) {
		s.Err = err
		if isDenied(err) {
			s.Contact = now
		}
	})
}
