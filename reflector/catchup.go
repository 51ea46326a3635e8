package reflector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"
)

const (
	// With a timeout of 3 s kube-apiserver sends a bookmark 2 s before the
	// deadline, 0.1 to 2 s after the start; shorter timeouts get none and longer
	// ones wait longer (measured on 1.37, see docs/design.md).
	resumeTimeoutSeconds = 3
	// resumeDeadline ends a round that the server, or a proxy, does not end.
	resumeDeadline = 10 * time.Second
	// maxSilentRounds is how many rounds may pass without any event. A filtered
	// or lagging watch cache needs 2, random backends up to 3 (measured).
	maxSilentRounds = 4
	// quiet is how long a resumed watch must have nothing to say for its first
	// burst to count as over. A refusal arrives at once.
	quiet = 100 * time.Millisecond
)

// identify asks, once, for cluster and schema and compares them with those of
// the stored copy.
func (r *Reflector) identify(ctx context.Context) error {
	if r.run.identified {
		return nil
	}
	r.setPhase(PhaseProbing)
	cluster, err := ask(ctx, r.cluster)
	if err != nil {
		return fmt.Errorf("asking which cluster this is: %w", err)
	}
	schema, err := ask(ctx, r.schema)
	if err != nil {
		return fmt.Errorf("asking for the schema of %s: %w", r.description, err)
	}
	r.run.identified = true
	r.update(func(s *Status) { s.Cluster, s.Schema = cluster, schema })
	if differ(cluster, r.origin.Cluster) {
		klog.FromContext(ctx).Info("Stored objects belong to another cluster and are dropped",
			"type", r.description, "stored", r.origin.Cluster, "cluster", cluster)
		r.update(func(s *Status) { s.Foreign = true })
		r.queue.Reset()
		r.listNext("the stored objects belong to another cluster")
	}
	if differ(schema, r.origin.Schema) {
		r.listNext("the schema of the resource has changed")
	}
	return nil
}

func ask(ctx context.Context, question func(context.Context) (string, error)) (string, error) {
	if question == nil {
		return "", nil
	}
	return question(ctx)
}

// differ reports whether two answers are known and not the same.
func differ(a, b string) bool { return a != "" && b != "" && a != b }

// catchUp proves that the stored copy and what a watch adds to it are current,
// or makes a list the next thing to do.
func (r *Reflector) catchUp(ctx context.Context) error {
	if r.run.target == "" {
		rv, err := r.probe(ctx)
		if err != nil {
			return err
		}
		r.run.target = rv
		r.compareWithStored(rv)
	}
	for r.run.listReason == "" && !r.Status().CaughtUp && ctx.Err() == nil {
		if err := r.round(ctx); err != nil {
			return err
		}
	}
	return nil
}

// compareWithStored decides what the first probe says about the stored version.
func (r *Reflector) compareWithStored(serverRV string) {
	order, err := resourceversion.CompareResourceVersion(serverRV, r.run.rv)
	switch {
	case err != nil:
		r.listNext(fmt.Sprintf("the server's resourceVersion %q cannot be compared", serverRV))
	case order < 0:
		r.listNext(fmt.Sprintf("the server is at resourceVersion %s, before the stored %s: it was restored", serverRV, r.run.rv))
	case order == 0:
		r.caughtUp()
	case r.origin.NoBookmarks:
		r.listNext("the server does not send bookmarks for this resource")
	}
}

// probe returns the server's current version of the collection. The list it
// makes also brings that server's watch cache up to date, which a watch alone
// does not.
func (r *Reflector) probe(ctx context.Context) (string, error) {
	r.setPhase(PhaseProbing)
	list, err := r.lw.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", fmt.Errorf("probing %s: %w", r.description, err)
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return "", fmt.Errorf("probing %s: %w: %w", r.description, ErrUnusable, err)
	}
	rv := accessor.GetResourceVersion()
	r.contacted()
	r.update(func(s *Status) { s.ServerRV = rv })
	return rv, nil
}

// round watches for up to 3 s. If that brings no proof it probes again.
func (r *Reflector) round(ctx context.Context) error {
	r.setPhase(PhaseResuming)
	timeout := int64(resumeTimeoutSeconds)
	w, err := r.open(ctx, metav1.ListOptions{
		ResourceVersion:     r.run.rv,
		AllowWatchBookmarks: true,
		TimeoutSeconds:      &timeout,
	})
	if err != nil {
		return r.watchEnded(err)
	}
	deadline := r.clock.NewTimer(resumeDeadline)
	defer deadline.Stop()
	stream := stream{watch: w, deadline: deadline.C()}
	if r.policy.resumed {
		timer := r.clock.NewTimer(quiet)
		defer timer.Stop()
		stream.quiet = timer
	}
	events, err := r.consume(ctx, stream)
	if err != nil && !errors.Is(err, errDeadline) {
		return r.watchEnded(err)
	}
	if r.Status().CaughtUp {
		return nil
	}
	if r.policy.resumed {
		// The round ended by itself: the watch was accepted.
		r.show(ctx, "the watch was accepted")
	}
	r.countRound(events)
	if r.run.listReason != "" {
		return nil
	}
	_, err = r.probe(ctx)
	return err
}

func (r *Reflector) countRound(events int) {
	if events > 0 {
		r.run.silentRounds = 0
		return
	}
	if r.run.silentRounds++; r.run.silentRounds < maxSilentRounds {
		return
	}
	r.noteBookmarks(false)
	r.listNext(fmt.Sprintf("the server sent no bookmark in %d rounds", r.run.silentRounds))
}

// noteBookmarks remembers whether bookmarks come, for the next start.
func (r *Reflector) noteBookmarks(come bool) {
	r.update(func(s *Status) { s.Bookmarks = &come })
}

// observe notes that everything up to rv has been queued and whether that is the
// proof.
func (r *Reflector) observe(rv string) {
	r.run.rv = rv
	r.run.internalErrors = 0
	now := r.clock.Now()
	r.update(func(s *Status) { s.RV, s.Contact, s.Err = rv, now, nil })
	if r.run.target == "" || r.run.listReason != "" || r.Status().CaughtUp {
		return
	}
	if order, err := resourceversion.CompareResourceVersion(rv, r.run.target); err == nil && order >= 0 {
		r.caughtUp()
	}
}
