package indexer

import (
	"fmt"
	"sync"
)

// health says whether the objects of an indexer in disk residency can be read. They
// cannot from the moment that damage is found until a list has filled the
// collection again.
type health struct {
	mu sync.Mutex
	// err is why not, or nil. begun is set once the collection has begun anew, so that
	// a list can fill it.
	err   error
	begun bool
	// losses counts failures, and each time that the collection has begun anew. Whoever
	// reads compares it before and after: what it has read in between may have been of a
	// collection that was being filled.
	losses uint64
	// changed is closed when anything of this changes, and replaced.
	changed chan struct{}
	// failed is closed while err is set.
	failed chan struct{}
	// ended is set once nobody will fill the collection any more.
	ended bool
}

func newHealth() *health {
	return &health{changed: make(chan struct{}), failed: make(chan struct{})}
}

// count returns the number of losses.
func (h *health) count() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.losses
}

// check returns why nothing can be read, or could not at some time since the given
// number of losses.
func (h *health) check(losses uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.err != nil:
		return h.err
	case h.losses != losses:
		return fmt.Errorf("%w: they were lost meanwhile", ErrUnreadable)
	}
	return nil
}

// why returns why nothing can be read, or nil.
func (h *health) why() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// fail notes why nothing can be read, as found by somebody who began to read at the
// given number of losses, and reports whether it is news. If that is what is there now,
// it calls condemn, under its lock: the collection does not begin anew meanwhile.
func (h *health) fail(cause error, losses uint64, condemn func()) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if losses != h.losses {
		return false
	}
	condemn()
	h.begun = false
	if h.err != nil {
		return false
	}
	h.err = fmt.Errorf("%w: %w", ErrUnreadable, cause)
	h.losses++
	close(h.failed)
	h.broadcastLocked()
	return true
}

// begin notes that the collection has begun anew, whoever found out that it had to. What
// was read before says nothing about it.
func (h *health) begin(cause error) {
	h.fail(cause, h.count(), func() {})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begun = true
	h.losses++
}

// mustBegin says that the collection has to begin anew before it can be filled.
func (h *health) mustBegin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err != nil && !h.begun
}

// heal notes that everything can be read again.
func (h *health) heal() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		h.err = nil
		h.failed = make(chan struct{})
		h.broadcastLocked()
	}
}

// end lets go of everybody who waits.
func (h *health) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	h.broadcastLocked()
}

// poke makes those who wait look again.
func (h *health) poke() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broadcastLocked()
}

func (h *health) broadcastLocked() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// lost returns a channel that is closed while nothing can be read.
func (h *health) lost() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}

// await waits until a condition holds, and returns false if stop is closed before,
// or nothing will change any more. The condition is called under a lock.
func (h *health) await(stop <-chan struct{}, condition func() bool) bool {
	for {
		h.mu.Lock()
		ok, ended, changed := condition(), h.ended, h.changed
		h.mu.Unlock()
		if ok || ended {
			return ok
		}
		select {
		case <-changed:
		case <-stop:
			return false
		}
	}
}
