package reflector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

const (
	// With a timeout of 3 s kube-apiserver sends a bookmark 2 s before the
	// deadline, 0.1 to 2 s after the start; shorter timeouts get none and longer
	// ones wait longer (measured on 1.37, see docs/design.md).
	resumeTimeoutSeconds = 3
	// resumeDeadline ends a round that the server, or a proxy, does not end.
	resumeDeadline = 10 * time.Second
	// maxSilentRounds is how many rounds may pass without progress. A filtered
	// or lagging watch cache needs 2, random backends up to 3 (measured).
	maxSilentRounds = 4
	// maxCutRounds is how many rounds in a row may be cut off, without progress. That
	// says nothing about bookmarks, but on a bad link a list has to do what the
	// rounds do not get the time for.
	maxCutRounds = 8
	// quiet is how long a resumed watch must have nothing to say for its first
	// burst to count as over. A refusal arrives at once.
	quiet = 100 * time.Millisecond
	// maxBurst is when the first burst is over where there is always something
	// to say.
	maxBurst = time.Second
	// askTimeout bounds waiting for what is only good to know.
	askTimeout = 5 * time.Second
	// maxUnanswered is how often a server that can be reached is asked in vain.
	maxUnanswered = 3
)

// identify asks, once, for cluster and schema and compares them with those of
// the stored copy.
func (r *Reflector) identify(ctx context.Context) error {
	if r.run.identified {
		return nil
	}
	r.setPhase(PhaseProbing)
	cluster, clusterErr := r.ask(ctx, r.cluster)
	schema, schemaErr := r.ask(ctx, r.schema)
	if err := errors.Join(clusterErr, schemaErr); err != nil {
		// Either the server cannot be reached, which the probe tells too, or it
		// serves this collection and not the answer. client-go would not ask, so
		// that the answer is worth a few tries, and only if there is something to
		// compare it with.
		if probeErr := r.probe(ctx); probeErr != nil {
			return probeErr
		}
		if r.run.unanswered++; r.origin.RV != "" && r.run.unanswered < maxUnanswered {
			return err
		}
		klog.FromContext(ctx).Info("Warning: going on without knowing whether cluster and schema are those of the stored objects",
			"type", r.description, "err", err)
	}
	foreign, err := r.isForeign(ctx, cluster)
	if err != nil {
		return err
	}
	r.run.identified = true
	r.update(func(s *Status) { s.Cluster, s.Schema, s.Foreign = cluster, schema, foreign })
	if foreign {
		klog.FromContext(ctx).Info("Warning: stored objects belong to another cluster and are dropped",
			"type", r.description, "stored", r.origin.Cluster, "cluster", cluster)
		r.queue.Reset()
		r.run.exact = ""
		r.run.newest.doubt = doubt{}
		r.setNewest(ObjectRef{})
		// Whatever else it was that does not fit has this reason.
		r.run.listReason = "the stored objects belong to another cluster"
	}
	if schema != "" && r.origin.Schema != "" && schema != r.origin.Schema {
		r.listNext("the schema of the resource has changed")
	}
	return nil
}

// ask returns "" for a question that there is none of, or that is not answered in
// time.
func (r *Reflector) ask(ctx context.Context, question func(context.Context) (string, error)) (string, error) {
	if question == nil {
		return "", nil
	}
	return answerWithin(ctx, r.clock, askTimeout, question)
}

// catchUp proves that the stored copy and what a watch adds to it are current,
// or makes a list the next thing to do.
func (r *Reflector) catchUp(ctx context.Context) error {
	if r.run.target == "" {
		if err := r.firstProbe(ctx); err != nil {
			return err
		}
	}
	for r.run.listReason == "" && !r.Status().CaughtUp && ctx.Err() == nil {
		r.replays(ctx) // else events prove nothing
		if err := r.round(ctx); err != nil {
			return err
		}
	}
	return nil
}

// firstProbe sets the target of catching up.
func (r *Reflector) firstProbe(ctx context.Context) error {
	rv, err := r.probeNewest(ctx)
	if err != nil {
		return err
	}
	r.run.target = rv
	switch {
	case r.run.listReason != "":
	case rv == r.run.rv:
		r.caughtUp()
	case r.hasNoBookmarks():
		r.listNext("the server does not send bookmarks for this resource")
	}
	return nil
}

// probe asks for the server's current version of the collection, and makes a list
// the next thing to do if what has been read cannot be an earlier state of it. The
// request also brings that server's watch cache up to date, which a watch alone
// does not.
func (r *Reflector) probe(ctx context.Context) error {
	_, _, err := r.probeWith(ctx, metav1.ListOptions{Limit: 1})
	return err
}

// probeWith is probe with the given options, and returns the version and the answer.
func (r *Reflector) probeWith(ctx context.Context, options metav1.ListOptions) (rv string, list runtime.Object, err error) {
	r.setPhase(PhaseProbing)
	patient, _, cancel := patience(ctx, r.clock, answerTimeout)
	defer cancel()
	if list, err = r.listCall(patient, options); err != nil {
		return "", nil, fmt.Errorf("probing %s: %w", r.description, err)
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return "", nil, fmt.Errorf("probing %s: %w: %w", r.description, ErrUnusable, err)
	}
	rv = accessor.GetResourceVersion()
	r.contacted()
	r.update(func(s *Status) { s.ServerRV = rv })
	order, err := resourceversion.CompareResourceVersion(rv, r.run.rv)
	switch {
	case err != nil:
		r.listNext(fmt.Sprintf("the server's resourceVersion %q cannot be compared with %q", rv, r.run.rv))
	case order < 0:
		r.listNext(fmt.Sprintf("the server is at resourceVersion %s, before our %s: it was restored", rv, r.run.rv))
	}
	return rv, list, nil
}

// round watches for up to 3 s. If that brings no proof it probes again.
func (r *Reflector) round(ctx context.Context) error {
	if r.run.refused || r.run.cut {
		if err := r.askAgain(ctx); err != nil && r.run.listReason == "" {
			return err
		}
	}
	if r.run.listReason != "" {
		return nil
	}
	r.setPhase(PhaseResuming)
	before := r.run.rv
	err := r.resume(ctx)
	switch {
	case err != nil && !errors.Is(err, errDeadline):
		return r.watchEnded(err)
	case ctx.Err() != nil || r.Status().CaughtUp:
		return nil //nolint:nilerr // a deadline ends a round like any other end
	}
	// The round has ended: the watch was accepted.
	r.showResumed(ctx)
	cut := err == nil && r.run.cut
	if r.countRound(r.run.rv != before, cut); r.run.listReason != "" || r.run.cut {
		return nil // The next round begins with a probe if this one did not end in time.
	}
	return r.probe(ctx)
}

// resume opens and reads the watch of one round.
func (r *Reflector) resume(ctx context.Context) error {
	w, err := r.open(ctx, metav1.ListOptions{
		ResourceVersion:     r.run.rv,
		AllowWatchBookmarks: true,
		TimeoutSeconds:      ptr.To[int64](resumeTimeoutSeconds),
	})
	if err != nil {
		return err
	}
	r.run.due = r.run.opened.Add(resumeTimeoutSeconds * time.Second)
	r.setResuming(true)
	defer r.setResuming(false)
	deadline := r.clock.NewTimer(resumeDeadline)
	defer deadline.Stop()
	stream := stream{watch: w, deadline: deadline.C()}
	if r.policy.resumed {
		stream.quiet = r.clock.NewTimer(quiet)
		defer stream.quiet.Stop()
	}
	_, err = r.consume(ctx, stream)
	return err
}

// setResuming notes whether a watch of a round is open. Its end is the last sign
// of the server.
func (r *Reflector) setResuming(resuming bool) {
	now := r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.resuming = resuming
	r.mu.status.Contact = now
}

// countRound counts rounds that bring nothing, and cut ones apart from others: only
// those say something about the server.
func (r *Reflector) countRound(moved, cut bool) {
	if r.reachedTarget() {
		r.listNext("the server is not known to tell what has happened since a version, so that its events prove nothing")
		return
	}
	switch {
	case moved:
		r.run.silentRounds, r.run.cutRounds = 0, 0
	case cut:
		if r.run.cutRounds++; r.run.cutRounds >= maxCutRounds {
			r.listNext(fmt.Sprintf("%d watches were cut off before the server sent a bookmark", r.run.cutRounds))
		}
	default:
		if r.run.silentRounds++; r.run.silentRounds >= maxSilentRounds {
			r.noteBookmarks(false)
			r.listNext(fmt.Sprintf("the server sent no bookmark in %d rounds", r.run.silentRounds))
		}
	}
}

// noteBookmarks remembers whether bookmarks come, for the next start.
func (r *Reflector) noteBookmarks(come bool) {
	r.update(func(s *Status) { s.Bookmarks, s.Replays = &come, s.Replays || come })
}

// observe notes that everything up to rv has been queued and whether that is the
// proof. It returns an error if it proves the contrary.
func (r *Reflector) observe(rv string) error {
	r.run.rv = rv
	r.run.failures = 0
	now := r.clock.Now()
	r.update(func(s *Status) { s.RV, s.Contact, s.Err = rv, now, nil })
	r.checkDoubt()
	switch {
	case r.run.listReason != "":
		return historyError{r.run.listReason}
	case !r.Status().CaughtUp && r.reachedTarget() && r.Status().Replays:
		r.caughtUp()
	}
	return nil
}

// reachedTarget reports whether everything that the server is known to have had
// has been queued.
func (r *Reflector) reachedTarget() bool {
	order, err := resourceversion.CompareResourceVersion(r.run.rv, r.run.target)
	return r.run.rv == r.run.target || err == nil && order >= 0
}
