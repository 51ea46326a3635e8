package reflector

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// streamWarning is how often the log says that a streamed list has not ended and
// has nothing more to say, as in client-go.
const streamWarning = 10 * time.Second

// streamPatience is for how long a streamed list may have nothing to say. Servers that
// leave watches to storage of their own ignore that the initial state is wanted, and
// never say where it ends; proxies that buffer, or leave out bookmarks, hold that back
// until the watch times out.
const streamPatience = 30 * time.Second

// errNoEnd says that a streamed list ended before it was complete.
var errNoEnd = errors.New("streamed list ended early")

// errSilent says that a streamed list does not seem to have an end.
var errSilent = fmt.Errorf("streamed list has had nothing to say for %s", streamPatience)

// list reads the whole collection into the queue, at the server's current version,
// and marks it caught up. If the list was streamed, the watch that goes on behind it
// is returned. What the consumer has lost is listed at an earlier version; if that is
// before the target, a watch has to catch up from there.
func (r *Reflector) list(ctx context.Context) (watch.Interface, error) {
	r.setPhase(PhaseListing)
	reason := r.run.listReason
	r.update(func(s *Status) { s.ListReason = reason })
	klog.FromContext(ctx).V(2).Info("Listing", "type", r.description, "reason", reason)
	r.run.ahead = nil
	w, err := r.readList(ctx)
	if err != nil {
		return nil, err
	}
	r.run.listReason, r.run.forgotten = "", false
	r.run.failures, r.run.ended, r.run.cut, r.run.refused = 0, false, false, false
	if !r.reachedTarget() {
		r.update(func(s *Status) { s.CaughtUp = false })
		return nil, nil //nolint:nilnil // there is no watch behind a list in pages
	}
	// Also when it was marked before: the queue drops marks when the consumer
	// fails, and a list is what follows.
	r.caughtUp()
	return w, nil
}

func (r *Reflector) readList(ctx context.Context) (watch.Interface, error) {
	if r.run.exact != "" {
		err := r.exactList(ctx)
		if err == nil || ctx.Err() != nil || !r.isRefusedExactly(err) {
			return nil, err
		}
		klog.FromContext(ctx).Info("Warning: what was deleted since the store was lost may go unnoticed",
			"type", r.description, "lostRV", r.run.exact, "err", err)
		r.run.exact = ""
	}
	if r.mayBeSparse() {
		err := r.sparseList(ctx)
		if err == nil || ctx.Err() != nil || isBusy(err) || errors.As(err, new(queueError)) {
			return nil, err
		}
		r.run.forgotten = false
		klog.FromContext(ctx).V(2).Info("Listing all of the objects", "type", r.description, "cause", err)
	}
	if r.streamLists {
		w, err := r.streamList(ctx)
		if err == nil || ctx.Err() != nil || isBusy(err) || errors.As(err, new(queueError)) {
			return w, err
		}
		// Older servers, or those with the feature off, refuse to stream. To wait for
		// a proxy once is enough.
		r.streamLists = !errors.Is(err, noAnswerError{answerTimeout}) && !errors.Is(err, errSilent)
		klog.FromContext(ctx).V(4).Info("Listing in pages", "type", r.description, "cause", err)
	}
	return nil, r.pageList(ctx)
}

// newReplacement begins a list. What it brings is the server's history from now on, and
// nothing else: an earlier attempt may have seen objects that have gone since.
func (r *Reflector) newReplacement() Replacement {
	r.run.newest.doubt = doubt{}
	r.setNewest(ObjectRef{})
	return r.queue.NewReplacement()
}

// commit queues a list that has arrived whole.
func (r *Reflector) commit(list Replacement, rv string) {
	list.Commit(rv)
	r.run.rv, r.run.versioned = rv, !isUnversioned(rv)
	current := rv != r.run.exact
	if current {
		r.run.target = rv
	}
	r.run.exact = ""
	r.contacted()
	r.update(func(s *Status) {
		s.Lists++
		s.RV = rv
		if current {
			s.ServerRV = rv
		}
	})
}

// streamList asks for a watch that begins with the current state (KEP-3157): an
// ADDED event for every object, changes that happen meanwhile, and a bookmark
// that ends it.
func (r *Reflector) streamList(ctx context.Context) (watch.Interface, error) {
	options := r.watchOptions()
	options.ResourceVersion = ""
	options.SendInitialEvents = ptr.To(true)
	options.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	w, err := r.open(ctx, options)
	if err != nil {
		return nil, err
	}
	complete := false
	defer func() {
		if !complete {
			w.Stop()
		}
	}()
	list := r.newReplacement()
	defer list.Abort()
	rv, err := r.readStream(ctx, w, list)
	if err != nil {
		return nil, err
	}
	r.update(func(s *Status) { s.Replays = true }) // see there
	r.commit(list, rv)
	complete = true
	return w, nil
}

// readStream reads up to the bookmark that ends the initial state and returns
// its version.
func (r *Reflector) readStream(ctx context.Context, w watch.Interface, list Replacement) (string, error) {
	warning := r.clock.NewTicker(streamWarning)
	defer warning.Stop()
	last := r.clock.Now()
	for {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-warning.C():
			silent := r.clock.Since(last)
			switch {
			case silent >= streamPatience:
				return "", errSilent
			case silent < streamWarning:
				continue
			}
			klog.FromContext(ctx).Info("Warning: still waiting for the end of the streamed list", "type", r.description, "silentFor", silent)
		case event, ok := <-w.ResultChan():
			if !ok {
				return "", errNoEnd
			}
			rv, ended, err := r.addToList(event, list)
			last = r.clock.Now() // the consumer may have been slow
			if err != nil || ended {
				return rv, err
			}
		}
	}
}

// addToList puts one event of a streamed list into list.
func (r *Reflector) addToList(event watch.Event, list Replacement) (rv string, ended bool, err error) {
	if event.Type == watch.Error {
		return "", false, unreported{apierrors.FromObject(event.Object)}
	}
	if rv, err = r.accept(event.Object); err != nil {
		return "", false, err
	}
	switch event.Type {
	case watch.Added, watch.Modified:
		r.seen(event.Object, rv)
		err = list.Add(event.Object)
	case watch.Deleted:
		r.gone(event.Object)
		err = list.Remove(event.Object)
	case watch.Bookmark:
		// It says nothing about other bookmarks: servers that send no others
		// send the one that ends the initial events.
		ended = endsInitialEvents(event.Object)
	default:
		err = fmt.Errorf("unknown event type %q", event.Type)
	}
	return rv, ended, r.listError(err)
}

// listError explains why an object could not be put into a list: because of the
// object, unless the consumer has failed and wants no more of this list.
func (r *Reflector) listError(err error) error {
	if err == nil || errors.Is(err, ErrUnusable) {
		return err
	}
	select {
	case cause := <-r.queue.Failed():
		return unreported{r.consumerFailed(cause)}
	default:
		return fmt.Errorf("%w: %w", ErrUnusable, err)
	}
}

func endsInitialEvents(bookmark runtime.Object) bool {
	accessor, err := meta.Accessor(bookmark)
	return err == nil && accessor.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// pageList reads the collection in pages, or whole if a page token expires
// before the end.
func (r *Reflector) pageList(ctx context.Context) error {
	err := r.listPages(ctx, metav1.ListOptions{Limit: pager.New(nil).PageSize})
	if isExpired(err) {
		err = r.listPages(ctx, metav1.ListOptions{})
	}
	if err != nil {
		return fmt.Errorf("listing %s: %w", r.description, err)
	}
	return nil
}

// listPages makes a list of all pages, of which the first is asked for with options.
func (r *Reflector) listPages(ctx context.Context, options metav1.ListOptions) error {
	list := r.newReplacement()
	defer list.Abort()
	rv, err := r.readPages(ctx, options, list)
	if err != nil {
		return err
	}
	r.commit(list, rv)
	return nil
}

func (r *Reflector) readPages(ctx context.Context, options metav1.ListOptions, list Replacement) (rv string, err error) {
	exact := options.ResourceVersion
	for {
		page, err := r.listCall(ctx, options)
		if err != nil {
			return "", err
		}
		accessor, err := meta.ListAccessor(page)
		if err == nil && isTable(page) {
			err = errTable
		}
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrUnusable, err)
		}
		if options.Continue == "" {
			// Later pages may be of a later state, if the server had to give up
			// the first one; a watch from the first misses nothing.
			rv = accessor.GetResourceVersion()
		}
		if exact != "" && accessor.GetResourceVersion() != exact {
			return "", errInexact
		}
		if err := r.addPage(page, list); err != nil {
			return "", err
		}
		// The token stands for the version, too.
		options = metav1.ListOptions{Limit: options.Limit, Continue: accessor.GetContinue()}
		if options.Continue == "" {
			return rv, nil
		}
	}
}

// addPage puts the objects of a page into list. They are copied out of the page,
// so that one of them that is kept does not keep the others in memory.
func (r *Reflector) addPage(page runtime.Object, list Replacement) error {
	return r.listError(meta.EachListItemWithAlloc(page, func(obj runtime.Object) error {
		rv, err := r.accept(obj)
		if err != nil {
			return err
		}
		r.seen(obj, rv)
		return list.Add(obj)
	}))
}

// listCall makes one request for a list. An answer that has nothing in it is taken
// for an empty collection only if the server is not known to give versions.
func (r *Reflector) listCall(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := interruptible(ctx, func() (runtime.Object, error) { return r.lw.ListWithContext(ctx, options) }, nil)
	if err == nil && isBlank(list) && (r.run.versioned || options.Continue != "") {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, errBlank)
	}
	return list, err
}

// isBlank reports whether an answer has neither objects nor a version. That is how
// client-go decodes JSON which is not a list of the expected type: {}, a Status of
// success, another kind. Proxies and portals say such things, with status 200.
func isBlank(list runtime.Object) bool {
	accessor, err := meta.ListAccessor(list)
	return err == nil && accessor.GetResourceVersion() == "" && accessor.GetContinue() == "" && meta.LenList(list) == 0
}
