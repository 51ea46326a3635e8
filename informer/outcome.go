package informer

import (
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"
)

// Outcome is what came of the stored copy when an informer started.
type Outcome string

const (
	// OutcomeResumed means that the stored copy was proven to be current, or
	// became so with the events of a watch from its version. Nothing was listed.
	OutcomeResumed Outcome = "resumed"
	// OutcomeReconciled means that there was a stored copy, and a list was made
	// and compared with it all the same: the server had forgotten its version, the
	// schema had changed, the copy was so small that a list is cheaper, ...
	OutcomeReconciled Outcome = "reconciled"
	// OutcomeCold means that everything was listed with nothing to compare it
	// with: nothing was stored, the informer works in memory, the copy was of
	// another cluster, damaged, or written by another version of the type or the
	// transform. In the last case the keys of what was stored are known, and deletes
	// are delivered; the objects themselves are written anew.
	OutcomeCold Outcome = "cold"
)

// startOutcome says how a start ended.
type startOutcome struct {
	outcome Outcome
	reason  string
}

// noteCold notes why there is no stored copy to go on from.
func (i *sharedIndexInformer) noteCold(reason string) {
	i.delivery.Lock()
	defer i.delivery.Unlock()
	i.delivery.cold = reason
}

// concludeStart decides the outcome, before anybody sees HasSynced under the
// Confirmed policy. It is called under the delivery lock.
func (i *sharedIndexInformer) concludeStart() {
	status := i.start.reflector.Status()
	o := &startOutcome{outcome: OutcomeReconciled, reason: status.ListReason}
	switch {
	case i.delivery.cold != "":
		o.outcome, o.reason = OutcomeCold, i.delivery.cold
	case !i.delivery.listed:
		o.outcome, o.reason = OutcomeResumed, i.resumedReason()
	}
	i.outcome.Store(o)
}

func (i *sharedIndexInformer) resumedReason() string {
	stored := i.start.storedRV
	if rv := i.indexer.LastStoreSyncResourceVersion(); rv != stored {
		return fmt.Sprintf("the watch went on from resourceVersion %s to %s", stored, rv)
	}
	return "the server is still at resourceVersion " + stored
}

// logStart writes the one line that every start has at level 0. It is called under
// the delivery lock.
func (i *sharedIndexInformer) logStart(ctx context.Context) {
	o := i.outcome.Load()
	_, persistent := i.durability()
	klog.FromContext(ctx).Info("Informer started", "informer", i.name(), "outcome", o.outcome, "reason", o.reason,
		"objects", i.indexer.Len(), "departed", i.delivery.departed.replayed,
		"duration", i.clock.Since(i.start.at).Round(time.Millisecond), "persistent", persistent)
}
