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

// watch answers with a stream. Bad parameters are still refused with a status;
// after that the answer is 200, whatever happens.
func (s *Server) watch(w *response) error {
	f, err := formOf(w.request)
	if err != nil {
		return err
	}
	opts, err := s.listOptions(w.request)
	if err != nil {
		return err
	}
	rv, err := parseRV(opts.ResourceVersion)
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
		deadline:  s.opts.Clock.Now().Add(watchTimeout(opts)),
		bookmarks: opts.AllowWatchBookmarks && !w.table.res.uncached && !w.faultOf().NoBookmarks,
	}
	w.Header().Set("Content-Type", f.streamContentType())
	w.WriteHeader(http.StatusOK)
	w.flush()
	return w.broken(wa.serve(w.Context()))
}

// watchTimeout is what the client asks for, or 30 to 60 minutes.
func watchTimeout(opts *internalversion.ListOptions) time.Duration {
	if opts.TimeoutSeconds != nil && *opts.TimeoutSeconds > 0 {
		return time.Duration(*opts.TimeoutSeconds) * time.Second
	}
	return time.Duration(float64(30*time.Minute) * (1 + rand.Float64()))
}

// serve runs until the stream ends. Once a watch has begun, what is wrong with
// it is told as an ERROR event, not as an HTTP status.
func (wa *watcher) serve(ctx context.Context) error {
	err := wa.begin(ctx)
	if status, ok := err.(apierrors.APIStatus); ok {
		known := status.Status()
		return wa.frames.object(watch.Error, &known)
	}
	if err != nil {
		return err
	}
	return wa.follow(ctx)
}

// begin sends the initial events, if any, and sets where to go on from.
func (wa *watcher) begin(ctx context.Context) error {
	s, t, opts := wa.server, wa.w.table, wa.scope.opts
	wa.generation = s.storage.generation(t)
	initial := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	switch {
	case initial && opts.ResourceVersion == "":
		rows, current := s.storage.latest(t)
		return wa.sendInitial(rows, current)
	case initial:
		if err := s.waitFor(ctx, t, wa.cursor); err != nil {
			return err
		}
		rows, current := s.storage.cached(t)
		return wa.sendInitial(rows, current)
	case wa.cursor == 0 && opts.SendInitialEvents == nil:
		// Only without the WatchList feature, whose defaults set it to true.
		rows, current := s.storage.cached(t)
		return wa.sendRows(rows, current)
	case wa.cursor == 0:
		_, current := s.storage.cached(t)
		wa.cursor, wa.start = current, current
		return nil
	}
	wa.start = wa.cursor
	return s.storage.canStart(t, wa.cursor)
}

// sendInitial sends a WatchList: the rows, and if bookmarks are allowed one that
// marks their end.
func (wa *watcher) sendInitial(rows []*record, rv uint64) error {
	if err := wa.sendRows(rows, rv); err != nil {
		return err
	}
	if !wa.scope.opts.AllowWatchBookmarks {
		return nil
	}
	return wa.sendBookmark(rv, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
}

// sendRows sends the state at rv as synthetic ADDED events, in order of key.
func (wa *watcher) sendRows(rows []*record, rv uint64) error {
	wa.cursor, wa.start = rv, rv
	wa.initial = true
	defer func() { wa.initial = false }()
	for _, row := range wa.scope.within(rows, "") {
		if !wa.scope.matches(row) {
			continue
		}
		if err := wa.send(watch.Added, row); err != nil {
			return err
		}
	}
	return nil
}

// follow sends changes and bookmarks as they come, until the deadline, the end
// of the watch cache's generation, or the end of the request.
//
// A bookmark must not overtake a change: seen is read together with the changes
// up to it, and sent after them.
func (wa *watcher) follow(ctx context.Context) error {
	c := wa.server.opts.Clock
	bookmark := wa.nextBookmark(c.Now())
	for caughtUp := false; ctx.Err() == nil; caughtUp = true {
		wa.server.faults.holdWatch(ctx, wa.w.entry)
		seen, changed, err := wa.sendChanges()
		if err != nil || changed == nil {
			return err
		}
		if !caughtUp {
			// What was there at the start is part of it, sent or not.
			wa.start = max(wa.start, wa.cursor)
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
// when the stream has to end.
func (wa *watcher) sendChanges() (seen uint64, changed <-chan struct{}, err error) {
	win, ok := wa.server.storage.since(wa.w.table, wa.generation, wa.cursor)
	if !ok {
		return 0, nil, nil
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
