package reflector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

const (
	// A watch ends after a random time between these, as in client-go, to
	// spread the load on API servers.
	minWatchTimeout = 5 * time.Minute
	maxWatchTimeout = 10 * time.Minute
	// shortWatch is how long a watch without events must last not to count as
	// an error, as in client-go.
	shortWatch = time.Second
	// overdue is for how long after its timeout the end of a watch is waited for.
	// Without it, and with HTTP/1.1, a watch whose connection is lost without
	// notice would be silent for ever.
	overdue = 30 * time.Second
	// answerTimeout is for how long a probe, or the beginning of a watch, may take: a
	// proxy may hold back that of a watch until its end, and client-go waits in a
	// request, up to ten times, for as long as Retry-After says. Without a limit, and
	// with HTTP/1.1, it is the kernel that gives up a lost connection.
	answerTimeout = maxWatchTimeout + overdue
	// maxFailures is how many watches in a row may fail, while the collection can
	// be read, before it is listed instead.
	maxFailures = 5
)

// errDeadline ends a watch that the server did not end.
var errDeadline = errors.New("watch outlived its timeout")

// watch follows the collection until it has to be listed or an error calls for a
// pause. w, if not nil, is a watch that a streamed list has left open.
func (r *Reflector) watch(ctx context.Context, w watch.Interface) (err error) {
	r.run.opened = r.clock.Now()
	for ctx.Err() == nil {
		if w == nil {
			if err := r.askAgain(ctx); err != nil {
				return err
			}
			if w, err = r.open(ctx, r.watchOptions()); err != nil {
				return r.watchEnded(err)
			}
		}
		if err := r.follow(ctx, w); err != nil {
			return r.watchEnded(err)
		}
		r.run.failures = 0
		w = nil
	}
	if w != nil {
		w.Stop() // the reflector was stopped right after a list
	}
	return nil
}

// askAgain probes before a watch goes on after one that did not end in time or
// could not be opened. The server may have been restored from a backup meanwhile: a
// version of its future is accepted, and then silent for ever
// (kubernetes/kubernetes#135452). And a watch that fails although the probe did not
// is one that trying again will not mend.
//
// A server that is not known to replay what happens between two watches is asked
// after each. If it has moved on, or cannot tell, the collection is listed.
func (r *Reflector) askAgain(ctx context.Context) error {
	replays := !r.run.ended || r.run.versioned && r.replays(ctx)
	if !r.run.cut && !r.run.refused && replays {
		return nil
	}
	r.run.unsure = r.run.unsure || r.run.cut || r.run.refused
	if !r.run.versioned {
		r.listNext("the server gives its lists no version that a watch could go on from")
		return unreported{errNoReplay}
	}
	rv, err := r.probeNewest(ctx)
	switch {
	case err == nil && !replays && r.run.listReason == "" && rv != r.run.rv:
		r.listNext("the server is not known to tell what has happened between two watches")
		return unreported{errNoReplay}
	case isPassing(err):
		return unreported{err}
	case err == nil && r.run.listReason != "":
		return unreported{historyError{r.run.listReason}}
	}
	return err
}

// follow queues the events of a watch until it ends. An error says that it should
// not have ended like that.
func (r *Reflector) follow(ctx context.Context, w watch.Interface) error {
	r.setPhase(PhaseWatching)
	deadline := r.clock.NewTimer(r.run.due.Add(overdue).Sub(r.clock.Now()))
	defer deadline.Stop()
	events, err := r.consume(ctx, stream{watch: w, deadline: deadline.C()})
	lasted := r.clock.Since(r.run.opened)
	klog.FromContext(ctx).V(4).Info("Watch closed", "type", r.description, "events", events, "duration", lasted, "err", err)
	if errors.Is(err, errDeadline) {
		return nil // It may be that the server does not know timeouts.
	}
	if err == nil && events == 0 && lasted < shortWatch && ctx.Err() == nil {
		return unreported{&cache.VeryShortWatchError{Name: r.stock.Name()}}
	}
	return err
}

// watchOptions returns the options of the next watch. While the newest object is in
// doubt after a probe, that is one of a round, which brings a bookmark, and with it the
// answer, within seconds instead of a minute.
func (r *Reflector) watchOptions() metav1.ListOptions {
	timeout := (minWatchTimeout + rand.N(maxWatchTimeout-minWatchTimeout)).Truncate(time.Second)
	if probed := r.run.cut || r.run.refused; probed && r.run.newest.doubt != (doubt{}) {
		timeout = resumeTimeoutSeconds * time.Second
	}
	r.run.due = r.clock.Now().Add(timeout)
	return metav1.ListOptions{
		ResourceVersion:     r.run.rv,
		AllowWatchBookmarks: true,
		TimeoutSeconds:      ptr.To(int64(timeout.Seconds())),
	}
}

// request is a watch whose request ends with it.
type request struct {
	watch.Interface
	cancel func()
}

// Stop ends the request first. Closing the body of a compressed answer waits for who
// reads it, which takes as long as nothing comes.
func (w request) Stop() {
	w.cancel()
	w.Interface.Stop()
}

// open opens a watch, unless there is no answer in time. Errors that watch error
// handlers are told of are not wrapped, as in client-go: they compare them.
func (r *Reflector) open(ctx context.Context, options metav1.ListOptions) (w watch.Interface, err error) {
	// Before the request: some proxies hold back the answer until the first event,
	// or the end.
	r.run.opened = r.clock.Now()
	ctx, answered, cancel := patience(ctx, r.clock, answerTimeout)
	defer func() {
		if answered(); w == nil {
			cancel()
		}
	}()
	opened, err := interruptible(ctx, func() (watch.Interface, error) {
		return r.lw.WatchWithContext(ctx, options)
	}, func(late watch.Interface) { late.Stop() })
	r.run.refused = err != nil && !isOverloaded(err)
	if isPassing(err) {
		return nil, unreported{err}
	}
	if err != nil {
		return nil, err
	}
	r.contacted()
	r.update(func(s *Status) { s.Watches++ })
	return request{opened, cancel}, nil
}

// watchEnded decides what follows from the error that ended a watch: usually
// another one from the same version, after a pause. It returns nil if what
// follows is a list that needs no pause.
func (r *Reflector) watchEnded(err error) error {
	var failed queueError
	switch {
	case errors.As(err, new(historyError)):
		return nil
	case isExpired(err):
		first := r.run.listReason == ""
		r.listNext("the server has forgotten the changes since " + r.run.rv)
		r.run.forgotten = first && !r.run.newest.isGone()
		if !r.Status().CaughtUp {
			return nil
		}
	case errors.As(err, &failed) && r.Status().Lists == 0:
		// What the stored copy and the watch said does not go together.
		r.listNext(err.Error())
		return nil
	case isTooLarge(err), isRejected(err), errors.Is(err, ErrUnusable), errors.As(err, &failed),
		// An object cannot be decoded: an event of it will never come.
		apierrors.IsStoreReadError(err):
		r.listNext(err.Error())
	case !isOverloaded(err):
		if r.run.failures++; r.run.failures >= maxFailures {
			r.listNext(fmt.Sprintf("watches keep failing: %v", err))
		}
	}
	return err
}

// stream is an open watch and what else ends or interrupts reading it.
type stream struct {
	watch    watch.Interface
	deadline <-chan time.Time
	// quiet, if set, fires when the first burst is over. It is restarted by
	// every event of the first second.
	quiet clock.Timer
}

// consume queues the events of a stream until it ends, and stops it. It returns
// how many came.
func (r *Reflector) consume(ctx context.Context, s stream) (events int, err error) {
	defer stopWatch(s.watch)
	defer func() { r.run.ended, r.run.cut = true, err != nil || r.clock.Now().Before(r.run.due) }()
	var quietC <-chan time.Time
	if s.quiet != nil {
		quietC = s.quiet.C()
	}
	start := r.clock.Now()
	for {
		select {
		case <-ctx.Done():
			return events, nil
		case err := <-r.queue.Failed():
			return events, unreported{r.consumerFailed(err)}
		case <-s.deadline:
			return events, errDeadline
		case <-quietC:
			r.showResumed(ctx)
		case event, ok := <-s.watch.ResultChan():
			if !ok {
				return events, nil
			}
			if r.isUseless(ctx, event) {
				continue
			}
			if err := r.queueEvent(event); isBroken(err) {
				return events, nil
			} else if err != nil {
				return events, unreported{err}
			}
			events++
			if s.quiet != nil && r.clock.Since(start) < maxBurst {
				s.quiet.Reset(quiet)
			}
		}
	}
}

// stopWatch stops a watch and takes what it still delivers. A watch.Filter that is
// stopped while it delivers would otherwise wait for ever.
func stopWatch(w watch.Interface) {
	w.Stop()
	go func() {
		for range w.ResultChan() { // nobody wants it any more
		}
	}()
}

// isUseless reports whether an event is a bookmark that cannot be understood. It
// is ignored, because it stands for no change.
func (r *Reflector) isUseless(ctx context.Context, event watch.Event) bool {
	if event.Type != watch.Bookmark {
		return false
	}
	rv, err := r.accept(event.Object)
	if err == nil && rv == "" {
		err = errNoVersion
	}
	if err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Ignoring bookmark", "reflector", r.stock.Name(), "type", r.description)
	}
	return err != nil
}

// queueEvent puts one watch event into the queue.
func (r *Reflector) queueEvent(event watch.Event) error {
	if event.Type == watch.Error {
		return apierrors.FromObject(event.Object)
	}
	rv, err := r.accept(event.Object)
	if err != nil {
		return err
	}
	if event.Type != watch.Bookmark && r.isBehind(event, rv) {
		if err := r.queue.Bookmark(rv); err != nil {
			return fmt.Errorf("%w: %w", ErrUnusable, err)
		}
		return r.observe(rv)
	}
	switch event.Type {
	case watch.Added:
		r.seen(event.Object, rv)
		err = r.queue.Add(event.Object)
	case watch.Modified:
		r.seen(event.Object, rv)
		err = r.queue.Update(event.Object)
	case watch.Deleted:
		r.gone(event.Object)
		err = r.queue.Delete(event.Object)
	case watch.Bookmark:
		r.noteBookmarks(true)
		err = r.queue.Bookmark(rv)
	default:
		err = fmt.Errorf("unknown event type %q", event.Type)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	if rv == "" || event.Type == watch.Added && isUnversioned(r.run.rv) {
		// A watch from no version begins with what exists, in no order.
		r.contacted()
		return nil
	}
	return r.observe(rv)
}

// accept checks that an object is what this reflector expects and returns its
// version. An object of another type would reach handlers that cannot cast it;
// skipping it, as client-go does, would lose a change for good.
func (r *Reflector) accept(obj runtime.Object) (string, error) {
	if obj == nil {
		return "", fmt.Errorf("%w: the event has no object", ErrUnusable)
	}
	if r.expectedType != nil && reflect.TypeOf(obj) != r.expectedType {
		return "", fmt.Errorf("%w: got type %T, want %s", ErrUnusable, obj, r.expectedType)
	}
	if isTable(obj) {
		return "", fmt.Errorf("%w: %w", ErrUnusable, errTable)
	}
	if !r.isExpectedKind(obj) {
		return "", fmt.Errorf("%w: got %s, want %s", ErrUnusable, obj.GetObjectKind().GroupVersionKind(), r.expectedGVK)
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	return accessor.GetResourceVersion(), nil
}

// isExpectedKind reports whether an object is of the kind of the example, if that
// has one. Servers do not say what kind metadata is of. Clients that know it,
// such as controller-runtime's, put it in.
func (r *Reflector) isExpectedKind(obj runtime.Object) bool {
	gvk := obj.GetObjectKind().GroupVersionKind()
	if r.expectedGVK == nil || gvk == *r.expectedGVK {
		return true
	}
	_, isMetadata := obj.(*metav1.PartialObjectMetadata)
	return isMetadata && (gvk.Empty() || gvk.Group == metav1.GroupName && gvk.Kind == "PartialObjectMetadata")
}

// isTable reports whether obj is what a server sends to a client that asked for
// a human-readable form (kubernetes/kubernetes#132926).
func isTable(obj runtime.Object) bool {
	gvk := obj.GetObjectKind().GroupVersionKind()
	return gvk.Group == metav1.GroupName && gvk.Kind == "Table"
}
