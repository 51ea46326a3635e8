package reflector

import (
	"errors"
	"fmt"
	"time"
)

// StartPolicy decides when stored objects may be shown to handlers before, or
// without, proof that they are up to date. The zero value is Confirmed.
type StartPolicy struct {
	resumed bool
	stale   time.Duration
	invalid bool
}

// Confirmed waits for the proof that the store holds everything the server had
// when the informer started. It is the default.
var Confirmed = StartPolicy{}

// Resumed waits until the server has accepted the watch from the stored version
// and its first burst of events has been applied: the freshness that client-go
// gives with a list at resourceVersion 0. The proof follows.
var Resumed = StartPolicy{resumed: true}

// Stale is Confirmed as long as the server can be reached. When it cannot be for
// the given time, which must be positive, the stored objects are shown as they
// are. If there are none, it waits as Confirmed does. A server that answers with 401, 403
// or 404 counts as reached.
func Stale(after time.Duration) StartPolicy {
	return StartPolicy{stale: max(after, 1), invalid: after <= 0}
}

// Validate reports a time that is not positive.
func (p StartPolicy) Validate() error {
	if p.invalid {
		return errors.New("Stale needs a positive time")
	}
	return nil
}

// String returns the name of the policy.
func (p StartPolicy) String() string {
	switch {
	case p.resumed:
		return "Resumed"
	case p.stale > 0:
		return fmt.Sprintf("Stale(%s)", p.stale)
	}
	return "Confirmed"
}
