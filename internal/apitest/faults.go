package apitest

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fault is something that goes wrong with the requests it matches. Effects can
// be combined; they act in the order of the fields.
type Fault struct {
	// Verb and Resource select requests, as in the request log; empty matches
	// all.
	Verb, Resource string
	// Match selects further, if set. It must not call the Server.
	Match func(Request) bool
	// Times ends the fault after so many requests; 0 means until it is removed.
	Times int

	// Delay holds the answer back.
	Delay time.Duration
	// Stall never answers: the request hangs, with its connection open, until
	// the fault is removed or the client gives up. Without Times it also
	// silences matching watches that are already running.
	Stall bool
	// Status is the HTTP status to answer with: 401, 403, 404, 429, 500, ...
	// The body is the Status object that a real server would send.
	Status int
	// RetryAfter is sent with Status, in whole seconds.
	RetryAfter time.Duration
	// Cause is in the Details of that object.
	Cause metav1.CauseType
	// Body is sent instead of what the server has to say, with Status (200 by
	// default): what a proxy or a portal on the way may answer. ContentType is
	// text/html by default.
	Body, ContentType string
	// EndAfter ends a watch in good order after that time, if it would last
	// longer.
	EndAfter time.Duration
	// DropAfterEvents cuts the connection of a watch after so many events.
	DropAfterEvents int
	// DropAfterBytes cuts the connection after so many bytes of a body, in the
	// middle of whatever is being sent.
	DropAfterBytes int64
	// NoBookmarks sends none, except the one that ends initial events.
	NoBookmarks bool
}

// Injected is a fault in force.
type Injected struct {
	fault   Fault
	set     *faultSet
	removed chan struct{}
	hits    int // guarded by set.mu
}

type faultSet struct {
	mu struct {
		sync.Mutex
		active []*Injected
	}
}

func newFaultSet() *faultSet { return &faultSet{} }

// Inject puts a fault in force. When several match a request, the first one
// injected acts.
func (s *Server) Inject(f Fault) *Injected {
	in := &Injected{fault: f, set: s.faults, removed: make(chan struct{})}
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.mu.active = append(s.faults.mu.active, in)
	return in
}

// Remove ends the fault and releases requests that it stalls. Further calls do
// nothing.
func (in *Injected) Remove() {
	in.set.mu.Lock()
	defer in.set.mu.Unlock()
	if i := slices.Index(in.set.mu.active, in); i >= 0 {
		in.set.mu.active = slices.Delete(in.set.mu.active, i, i+1)
	}
	select {
	case <-in.removed:
	default:
		close(in.removed)
	}
}

// Hits is the number of requests that the fault has acted on.
func (in *Injected) Hits() int {
	in.set.mu.Lock()
	defer in.set.mu.Unlock()
	return in.hits
}

// match returns the fault that acts on a new request, or nil.
func (f *faultSet) match(r *logEntry) *Injected {
	view := r.view()
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, in := range f.mu.active {
		if !in.fault.matches(view) {
			continue
		}
		in.hits++
		if in.fault.Times > 0 && in.hits >= in.fault.Times {
			// Not in force for later requests, but this one may have to
			// wait for Remove.
			f.mu.active = slices.Delete(f.mu.active, i, i+1)
		}
		return in
	}
	return nil
}

func (f *Fault) matches(r Request) bool {
	return (f.Verb == "" || f.Verb == r.Verb) &&
		(f.Resource == "" || f.Resource == r.Resource) &&
		(f.Match == nil || f.Match(r))
}

// holdWatch waits while a lasting Stall matches a running watch.
func (f *faultSet) holdWatch(ctx context.Context, r *logEntry) {
	for {
		in := f.stalling(r.view())
		if in == nil {
			return
		}
		select {
		case <-in.removed:
		case <-ctx.Done():
			return
		}
	}
}

func (f *faultSet) stalling(r Request) *Injected {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, in := range f.mu.active {
		if in.fault.Stall && in.fault.Times == 0 && in.fault.matches(r) {
			return in
		}
	}
	return nil
}

// fail lets the fault act before the request is answered. It returns true if
// that was the answer.
func (s *Server) fail(w *response) bool {
	fault := w.fault.fault
	s.sleep(w.Context(), fault.Delay, nil)
	if fault.Stall {
		select {
		case <-w.fault.removed:
		case <-w.Context().Done():
		}
	}
	switch {
	case w.Context().Err() != nil:
	case fault.Body != "":
		w.Header().Set("Content-Type", cmp.Or(fault.ContentType, "text/html"))
		w.WriteHeader(cmp.Or(fault.Status, http.StatusOK))
		// An error means that the client is gone; nobody is left to tell.
		_, _ = io.WriteString(w, fault.Body)
	case fault.Status != 0:
		w.error(statusError(fault, w.request))
	default:
		return false
	}
	return true
}

// statusError is what a real server says with the given code.
func statusError(f Fault, r *request) error {
	seconds := int(f.RetryAfter / time.Second)
	err := apierrors.NewGenericServerResponse(f.Status, r.verb, r.gvr.GroupResource(), r.name, "injected fault", seconds, false)
	if f.Status == http.StatusGone {
		err.ErrStatus.Reason = metav1.StatusReasonExpired
	}
	if f.Cause != "" {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: f.Cause})
	}
	return err
}
