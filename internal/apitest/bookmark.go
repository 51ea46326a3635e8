package apitest

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
)

// nextBookmark is when to send one: after an interval, and once shortly before
// the deadline, so that a client which renews its watch starts at a recent
// version. Zero means never.
func (wa *watcher) nextBookmark(now time.Time) time.Time {
	if !wa.bookmarks {
		return time.Time{}
	}
	next := now.Add(wa.server.opts.BookmarkInterval)
	if last := wa.deadline.Add(-wa.server.opts.BookmarkLead); last.Before(next) {
		next = last
	}
	if !next.After(now) {
		return time.Time{}
	}
	return next
}

// maybeBookmark sends a bookmark unless it would tell nothing that the client
// did not know when it began to watch.
func (wa *watcher) maybeBookmark(seen uint64) error {
	if seen <= wa.start {
		return nil
	}
	return wa.sendBookmark(seen, nil)
}

// sendBookmark sends an object of the watched kind that has nothing but a
// version, and annotations if there are any.
func (wa *watcher) sendBookmark(rv uint64, annotations map[string]string) error {
	obj, err := wa.frames.blank(wa.w.table.res)
	if err != nil {
		return err
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	accessor.SetResourceVersion(wa.w.table.res.aggregated.Lists.format(rv, 0))
	accessor.SetAnnotations(annotations)
	if err := wa.frames.object(watch.Bookmark, obj); err != nil {
		return err
	}
	wa.count(watch.Bookmark)
	return nil
}
