package apitest

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// watcher is one watch being served. It pulls changes from its table, so a slow
// client delays nobody; when it falls behind the window its stream is closed,
// as a real server closes it when its buffer is full.
type watcher struct {
	server *Server
	w      *response
	frames *frames
	scope  scope

	generation int
	// cursor is the version up to which changes have been handled.
	cursor uint64
	// start is the version that a bookmark must exceed. Changes that were there
	// when the watch began raise it even if the selector hides them.
	start     uint64
	deadline  time.Time
	bookmarks bool
	// initial is true while initial events are being sent.
	initial bool
	// sent and flushed count events.
	sent, flushed int
}

// watch answers with a stream. Bad parameters are refused with an HTTP status;
// otherwise it is 200, whatever happens.
func (s *Server) watch(w *response) error {
	f, err := formOf(w.request)
	if err != nil {
		return err
	}
	opts, err := s.listOptions(w.request)
	if err != nil {
		return err
	}
	aggregated := w.table.res.aggregated
	rv, err := aggregated.version(opts.ResourceVersion)
	if err != nil {
		return err
	}
	fr, err := newFrames(w, f)
	if err != nil {
		return err
	}
	wa := &watcher{
		server:    s,
		w:         w,
		frames:    fr,
		scope:     scopeOf(w.request, opts),
		cursor:    rv,
		deadline:  s.opts.Clock.Now().Add(watchTimeout(opts, w.faultOf())),
		bookmarks: opts.AllowWatchBookmarks && !w.table.res.uncached && !w.faultOf().NoBookmarks && !aggregated.NoBookmarks,
	}
	// The client may take the response for the beginning of the watch, so what
	// happens from now on has to be in it.
	first, err := wa.begin(w.Context())
	w.Header().Set("Content-Type", f.streamContentType())
	w.WriteHeader(http.StatusOK)
	w.flush()
	if err == nil {
		err = wa.serve(w.Context(), first)
	}
	return w.broken(wa.sendError(err))
}

// watchTimeout is what the client asks for, or 30 to 60 minutes, unless a fault
// makes it shorter.
func watchTimeout(opts *internalversion.ListOptions, f Fault) time.Duration {
	timeout := time.Duration(float64(30*time.Minute) * (1 + rand.Float64()))
	if opts.TimeoutSeconds != nil && *opts.TimeoutSeconds > 0 {
		timeout = time.Duration(*opts.TimeoutSeconds) * time.Second
	}
	if f.EndAfter > 0 {
		timeout = min(timeout, f.EndAfter)
	}
	return timeout
}

// initialEvents are sent before anything else.
type initialEvents struct {
	rows []*record
	rv   uint64
	// end asks for a bookmark after them.
	end bool
}

// begin takes the state to start from, or sets the version to go on from.
func (wa *watcher) begin(ctx context.Context) (*initialEvents, error) {
	s, t, opts := wa.server, wa.w.table, wa.scope.opts
	wa.generation = s.storage.generation(t)
	first := &initialEvents{}
	wanted := opts.SendInitialEvents
	if t.res.aggregated.NoInitialEvents {
		wanted = nil
	}
	switch {
	case wanted != nil && *wanted && opts.ResourceVersion == "":
		first.rows, first.rv = s.storage.latest(t)
		first.end = opts.AllowWatchBookmarks
	case wanted != nil && *wanted:
		if err := s.waitFor(ctx, t, wa.cursor); err != nil {
			return nil, err
		}
		first.rows, first.rv = s.storage.cached(t)
		first.end = opts.AllowWatchBookmarks
	case t.res.aggregated.NoReplay:
		_, first.rv = s.storage.cached(t)
	case wanted == nil && wa.cursor == 0:
		// Only without initial events, for which the defaults ask.
		first.rows, first.rv = s.storage.cached(t)
	case wa.cursor == 0:
		_, first.rv = s.storage.cached(t)
	default:
		newest, err := s.storage.canStart(t, wa.cursor)
		wa.start = max(wa.cursor, newest)
		return nil, err
	}
	wa.cursor, wa.start = first.rv, first.rv
	return first, nil
}

// serve sends the initial events, if any, and then what happens.
func (wa *watcher) serve(ctx context.Context, first *initialEvents) error {
	if first != nil {
		if err := wa.sendInitial(first); err != nil {
			return err
		}
	}
	return wa.follow(ctx)
}

// sendError tells an API error as an event: once a watch has been accepted, what
// is wrong with it is not an HTTP status any more. It returns other errors.
func (wa *watcher) sendError(err error) error {
	known, ok := err.(apierrors.APIStatus)
	if !ok {
		return err
	}
	status := known.Status()
	return wa.frames.object(watch.Error, &status)
}

// sendInitial sends a state as synthetic ADDED events, in order of key.
func (wa *watcher) sendInitial(first *initialEvents) error {
	wa.initial = true
	defer func() { wa.initial = false }()
	for _, row := range wa.scope.aggregated.shuffle(wa.scope.within(first.rows, ""), first.rv) {
		if !wa.scope.matches(row) {
			continue
		}
		if err := wa.send(watch.Added, row); err != nil {
			return err
		}
	}
	if !first.end {
		return nil
	}
	return wa.sendBookmark(first.rv, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
}

// follow sends changes and bookmarks as they come, until the deadline, the end
// of the watch cache's generation, or the end of the request.
//
// A bookmark must not overtake a change: seen is read together with the changes
// up to it, and sent after them.
func (wa *watcher) follow(ctx context.Context) error {
	c := wa.server.opts.Clock
	bookmark := wa.nextBookmark(c.Now())
	for ctx.Err() == nil {
		wa.server.faults.holdWatch(ctx, wa.w.entry)
		seen, changed, err := wa.sendChanges()
		if err != nil || changed == nil {
			return err
		}
		now := c.Now()
		if !bookmark.IsZero() && !now.Before(bookmark) {
			if err := wa.maybeBookmark(seen); err != nil {
				return err
			}
			bookmark = wa.nextBookmark(now)
		}
		wa.flush()
		if !now.Before(wa.deadline) {
			return nil
		}
		wa.server.sleep(ctx, wa.until(now, bookmark), changed)
	}
	return nil
}

// until is how long there is nothing to do unless something changes.
func (wa *watcher) until(now, bookmark time.Time) time.Duration {
	if bookmark.IsZero() || wa.deadline.Before(bookmark) {
		bookmark = wa.deadline
	}
	return bookmark.Sub(now)
}

// sendChanges sends what has happened since the cursor. It returns no channel
// when the stream has to end, with an error if that is to be told.
func (wa *watcher) sendChanges() (seen uint64, changed <-chan struct{}, err error) {
	win, ok := wa.server.storage.since(wa.w.table, wa.generation, wa.cursor)
	if !ok {
		return 0, nil, win.end
	}
	for _, c := range win.changes {
		if err := wa.sendChange(c); err != nil {
			return 0, nil, err
		}
		wa.cursor = c.rv
	}
	return win.seen, win.changed, nil
}

// sendChange translates a change into what it means within the selection: an
// object that comes to match is ADDED, one that ceases to is DELETED, with its
// last matching state at the version of the change.
func (wa *watcher) sendChange(c *change) error {
	is, was := wa.scope.matches(c.cur), wa.scope.matches(c.prev)
	switch {
	case is && was:
		return wa.send(watch.Modified, c.cur)
	case is:
		return wa.send(watch.Added, c.cur)
	case was:
		gone, err := c.departed()
		if err != nil {
			return err
		}
		return wa.send(watch.Deleted, gone)
	}
	return nil
}

func (wa *watcher) send(event watch.EventType, rec *record) error {
	if err := wa.frames.record(event, rec); err != nil {
		return err
	}
	wa.count(event)
	return nil
}

// count logs an event, and cuts the stream if it was the last that a fault lets
// through.
func (wa *watcher) count(event watch.EventType) {
	wa.sent++
	wa.w.entry.change(func(r *Request) {
		r.Events++
		switch {
		case event == watch.Bookmark:
			r.Bookmarks++
		case wa.initial:
			r.Items++
		}
	})
	if wa.sent == wa.w.faultOf().DropAfterEvents {
		wa.w.cut()
	}
}

// flush sends what is buffered, if there is anything: once for all changes that
// were found together, because a flush costs more than an event.
func (wa *watcher) flush() {
	if wa.sent > wa.flushed {
		wa.flushed = wa.sent
		wa.w.flush()
	}
}
