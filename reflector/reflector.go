package reflector

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Queue is where a reflector puts what it reads. Its methods are called by one
// goroutine, except CaughtUp.
type Queue interface {
	// Add, Update and Delete queue what a watch reported.
	Add(obj any) error
	// Update is for a modified object.
	Update(obj any) error
	// Delete is given the final state.
	Delete(obj any) error
	// Bookmark says that everything up to rv has been queued.
	Bookmark(rv string) error
	// NewReplacement begins a list of the whole collection.
	NewReplacement() Replacement
	// Reset says that what is known belongs to another cluster.
	Reset()
	// CaughtUp marks the point from which the state may be shown.
	CaughtUp(confirmed bool)
	// Failed delivers the error of a consumer that needs a list to go on. If it
	// has a method LostVersion() string, and the result can be compared, the list
	// is of the state at that version, if the server still has it.
	Failed() <-chan error
}

// Replacement is a list of the whole collection under way. It ends in Commit, or
// else in Abort, and another list.
type Replacement interface {
	// Add adds an object, or replaces the one of its key. It may wait for a slow
	// consumer, but not beyond the end of the context of Run. After an error the
	// list is aborted; it is the object's, unless Failed has something to deliver.
	Add(obj any) error
	// Remove takes an object out again. Its errors are those of Add.
	Remove(obj any) error
	// Keep adds the object that is stored under a key, as it is, provided that it is
	// the given version of it. Otherwise the consumer fails, sooner or later. Errors
	// are those of Add.
	Keep(key, uid, rv string) error
	// Commit queues the list as the state at rv.
	Commit(rv string)
	// Abort says that the list will not arrive whole. After Commit it is called
	// too, and does nothing.
	Abort()
}

// Origin describes the stored copy that a reflector begins with.
type Origin struct {
	// RV is the version of the copy. Empty means that there is none that a
	// watch could resume from; Reason says why.
	RV, Reason string
	// Cluster and Schema are what the copy was made from; empty if unknown.
	Cluster, Schema string
	// NoBookmarks says that the server was seen not to send bookmarks, so that
	// waiting for a proof is pointless.
	NoBookmarks bool
	// Replays and Newest are those of an earlier Status.
	Replays bool
	Newest  ObjectRef
	// Bytes is the size of the copy.
	Bytes int64
	// Clean says that handlers have been told nothing that is not in the copy.
	Clean bool
}

// Options configure a Reflector.
type Options struct {
	// ListerWatcher and Queue are required.
	ListerWatcher cache.ListerWatcher
	Queue         Queue
	// Expected is an example of the objects; nil accepts any type.
	Expected runtime.Object
	// Name and TypeDescription are for logs and the watch error handler.
	Name, TypeDescription string

	// Origin is the stored copy; the zero value lists.
	Origin Origin
	// Policy decides when the copy may be shown.
	Policy StartPolicy
	// ListBelow lists a clean copy at once, instead of proving that a watch has caught up,
	// when the copy is smaller than this many bytes. The proof takes the server
	// 1 to 2 s.
	ListBelow int64
	// Cluster and Schema, if set, identify the cluster and the schema of the
	// resource; see Origin. An empty answer means that it cannot be known, as
	// does an error or no answer within 5 s while the collection itself can be
	// read. They are asked once; Cluster again before a list that follows a watch that
	// was cut, which must not be answered from memory. How clusters compare is said at
	// IssuerKeys.
	Cluster, Schema func(context.Context) (string, error)

	// Sparse, if set, lets lists read what differs only, where that is worthwhile.
	Sparse *Sparse

	// WatchErrorHandler defaults to cache.DefaultWatchErrorHandler.
	WatchErrorHandler cache.WatchErrorHandlerWithContext
	// Backoff defaults to client-go's: 0.8 s doubling to 30 s, with jitter, which
	// begins anew every 2 min. A server that asks for a longer pause gets it.
	Backoff *wait.Backoff
	// Clock defaults to the real one.
	Clock clock.WithTicker
}

// Reflector fills a queue from the API server; see the package documentation.
type Reflector struct {
	lw          cache.ListerWatcherWithContext
	queue       Queue
	origin      Origin
	policy      StartPolicy
	listBelow   int64
	cluster     func(context.Context) (string, error)
	schema      func(context.Context) (string, error)
	handleError cache.WatchErrorHandlerWithContext
	delay       wait.DelayFunc
	clock       clock.WithTicker

	expectedType reflect.Type
	expectedGVK  *schema.GroupVersionKind
	description  string
	streamLists  bool
	sparse       *Sparse
	stock        *stock

	// run belongs to the goroutine of Run.
	run struct {
		// rv is the version up to which events have been queued.
		rv string
		// versioned says that the server gives its lists a version: the last one had
		// one, or the stored copy.
		versioned bool
		// listReason, if not empty, says why the next thing to do is a list.
		listReason string
		// forgotten is set when the reason is that the server has forgotten the
		// changes since rv, and nothing else.
		forgotten bool
		// notSparse is set when the objects were found not to be large.
		notSparse bool
		// ahead has the versions of objects that are newer than rv. It is not
		// emptied when rv has passed them, but there are few.
		ahead map[string]string
		// exact, if not empty, is the version at which to list, because the consumer
		// has lost what it had then. exactFailures counts the attempts that the
		// server has answered with an error.
		exact         string
		exactFailures int
		identified    bool
		// unsure is set when the server may be of another cluster than was asked for.
		unsure bool
		// unanswered counts questions about cluster and schema in vain.
		unanswered int
		// target is the server's version at the first probe, or of the last list
		// that was current.
		target string
		// silentRounds and cutRounds count rounds of resuming in which nothing
		// arrived: those that lasted their time and those that did not.
		silentRounds, cutRounds int
		newest                  newestObject
		// failures counts watches in a row that failed, or ended at once, although
		// the server was there.
		failures int
		// refused is set when a watch could not be opened: it is not known whether
		// the server is there.
		refused bool
		// opened is when the watch was asked for.
		opened time.Time
		// due is when the server will end the watch. cut is set when it ended
		// before: the server may be another one, or restored, when it can be
		// reached again.
		due time.Time
		cut bool
		// replaysAsked is set once the server was asked whether it replays.
		replaysAsked bool
		// ended is set when a watch has ended, in time or not, since the last list.
		ended bool
	}

	mu struct {
		sync.Mutex
		status Status
		// shown is set once the queue has been given a mark. The lock is held
		// while it is given, so that it does not get behind a Reset.
		shown bool
		// resuming is set while a watch of a round is open. A server that
		// accepted it and is silent is not out of reach.
		resuming bool
	}
}

// client-go's backoff (tools/cache/reflector.go).
const (
	backoffInit  = 800 * time.Millisecond
	backoffMax   = 30 * time.Second
	backoffReset = 2 * time.Minute
)

// New returns a reflector that has not started.
func New(o Options) *Reflector {
	r := &Reflector{
		lw:          cache.ToListerWatcherWithContext(o.ListerWatcher),
		queue:       o.Queue,
		origin:      o.Origin,
		policy:      o.Policy,
		listBelow:   o.ListBelow,
		cluster:     o.Cluster,
		schema:      o.Schema,
		sparse:      o.Sparse,
		handleError: o.WatchErrorHandler,
		clock:       o.Clock,
	}
	if r.clock == nil {
		r.clock = clock.RealClock{}
	}
	if r.handleError == nil {
		r.handleError = cache.DefaultWatchErrorHandler
	}
	r.delay = backoffOrDefault(o.Backoff).DelayWithReset(r.clock, backoffReset)
	r.streamLists = features.FeatureGates().Enabled(features.WatchListClient) &&
		!watchlist.DoesClientNotSupportWatchListSemantics(o.ListerWatcher) &&
		(isUnversioned(o.Origin.RV) || o.Origin.Replays) // else an earlier run has seen no streamed list to its end
	r.stock = newStock(o)
	r.description = r.stock.TypeDescription()
	r.expect(o.Expected)
	r.mu.status.Phase = PhaseStarting
	r.run.rv, r.run.listReason = o.Origin.RV, firstReason(o)
	r.run.versioned = !isUnversioned(o.Origin.RV)
	r.run.newest.ref, r.mu.status.Newest = o.Origin.Newest, o.Origin.Newest
	r.mu.status.Replays = o.Origin.Replays
	return r
}

func backoffOrDefault(b *wait.Backoff) wait.Backoff {
	if b != nil {
		return *b
	}
	return wait.Backoff{
		Duration: backoffInit,
		Cap:      backoffMax,
		Steps:    int(math.Ceil(float64(backoffMax) / float64(backoffInit))),
		Factor:   2,
		Jitter:   1,
	}
}

func (r *Reflector) expect(example runtime.Object) {
	if example == nil {
		return
	}
	r.expectedType = reflect.TypeOf(example)
	switch example.(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
		if gvk := example.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
			r.expectedGVK = &gvk
		}
	}
}

// firstReason says why the first thing to do is a list, or returns "".
func firstReason(o Options) string {
	_, err := resourceversion.CompareResourceVersion(o.Origin.RV, o.Origin.RV)
	switch {
	case o.Origin.RV == "" && o.Origin.Reason != "":
		return o.Origin.Reason
	case o.Origin.RV == "":
		return "nothing is stored"
	case err != nil:
		return fmt.Sprintf("the stored resourceVersion %q cannot be compared", o.Origin.RV)
	case o.Origin.Clean && o.Origin.Bytes < o.ListBelow:
		return fmt.Sprintf("listing %d bytes is cheaper than proving that they are current", o.Origin.Bytes)
	}
	return ""
}

// Run reads until ctx ends. It must be called once.
func (r *Reflector) Run(ctx context.Context) {
	defer r.setPhase(PhaseStopped)
	ctx, cancel := context.WithCancel(ctx)
	var wg wait.Group
	defer wg.Wait()
	defer cancel()
	if r.policy.stale > 0 && r.origin.RV != "" {
		wg.StartWithContext(ctx, r.showStale)
	}
	for ctx.Err() == nil {
		if r.attempt(ctx) {
			continue
		}
		select {
		case <-ctx.Done():
		case <-r.clock.After(r.pause()):
		}
	}
}

// pause is how long to wait before the next attempt.
func (r *Reflector) pause() time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(r.Status().Err) // Retry-After
	return max(r.delay(), time.Duration(seconds)*time.Second)
}

// attempt runs one cycle and reports whether the next one may follow without a
// pause. Like client-go it survives a panic of the ListerWatcher or the transform
// if crashes are configured not to end the process.
func (r *Reflector) attempt(ctx context.Context) (ok bool) {
	defer utilruntime.HandleCrashWithContext(ctx)
	err := r.cycle(ctx)
	if err == nil || ctx.Err() != nil {
		return true
	}
	var own unreported
	if errors.As(err, &own) {
		r.failed(own.error)
		r.log(ctx, own.error)
		return false
	}
	r.failed(err)
	r.handleError(ctx, r.stock.at(r.run.rv), err)
	return false
}

// log logs an error that watch error handlers are not told of, at client-go's
// levels.
func (r *Reflector) log(ctx context.Context, err error) {
	var failed queueError
	logger := klog.FromContext(ctx)
	switch {
	case errors.Is(err, ErrUnusable):
		utilruntime.HandleErrorWithContext(ctx, err, "Unexpected watch event", "reflector", r.stock.Name(), "type", r.description)
	case isExpired(err), isPassing(err), errors.Is(err, errNoReplay), errors.As(err, &failed): // the consumer logs why it failed
		logger.V(4).Info("Watch closed", "reflector", r.stock.Name(), "type", r.description, "err", err)
	default:
		logger.Info("Warning: watch ended with error", "reflector", r.stock.Name(), "type", r.description, "err", err)
	}
}

// cycle goes through the picture once, from wherever the last one ended, until an
// error calls for a pause or a list for none.
func (r *Reflector) cycle(ctx context.Context) (err error) {
	select {
	case err := <-r.queue.Failed():
		r.listNext(r.consumerFailed(err).cause.Error())
	default:
	}
	if err := r.identify(ctx); err != nil {
		return err
	}
	if r.run.listReason == "" && !r.Status().CaughtUp {
		if err := r.catchUp(ctx); err != nil {
			return err
		}
	}
	var w watch.Interface
	if r.run.listReason != "" {
		if err := r.identifyAgain(ctx); err != nil {
			return err
		}
		if w, err = r.list(ctx); err != nil || !r.Status().CaughtUp {
			return err
		}
	}
	return r.watch(ctx, w)
}

// listNext makes a list the next thing to do.
func (r *Reflector) listNext(reason string) {
	r.run.forgotten = false
	if r.run.listReason == "" {
		r.run.listReason = reason
	}
}

// caughtUp marks the queue: everything the server had at the start has been
// queued.
func (r *Reflector) caughtUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.shown = true
	r.mu.status.CaughtUp = true
	r.queue.CaughtUp(true)
}

// show marks the queue without proof, unless it is marked already or what it
// holds is not of this cluster.
func (r *Reflector) show(ctx context.Context, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.shown || r.mu.status.Foreign {
		return
	}
	r.mu.shown = true
	logger := klog.FromContext(ctx).V(2)
	if r.policy.stale > 0 {
		logger = klog.FromContext(ctx) // nobody knows for how long they will be all there is
	}
	logger.Info("Showing stored objects before they are confirmed", "type", r.description, "reason", why)
	r.queue.CaughtUp(false)
}

// showResumed shows a copy from which a watch was accepted, if the policy wants that
// and nothing speaks against it.
func (r *Reflector) showResumed(ctx context.Context) {
	if r.policy.resumed && r.run.newest.doubt == (doubt{}) {
		r.show(ctx, "the watch was accepted")
	}
}

// showStale waits until the server has been out of reach for the time that the
// policy says.
func (r *Reflector) showStale(ctx context.Context) {
	start := r.clock.Now()
	for {
		left := r.policy.stale - r.outOfReach(start)
		if left <= 0 {
			r.show(ctx, "the server cannot be reached")
		}
		if left <= 0 || r.Status().CaughtUp {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-r.clock.After(left):
		}
	}
}

// outOfReach returns for how long, since start, the server has not answered.
func (r *Reflector) outOfReach(start time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := start
	if r.mu.status.Contact.After(since) {
		since = r.mu.status.Contact
	}
	// A server that says no is not asked again for up to a minute. That it has not
	// answered since says nothing.
	if r.mu.resuming || isDenied(r.mu.status.Err) {
		return 0
	}
	return r.clock.Since(since)
}
