package contract

import (
	"errors"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

var bookmarkTests = []test{
	{"Bookmark_BeforeDeadline_VersionOfLastList", testBookmarkAfterList},
	{"Bookmark_BeforeDeadline_AfterHiddenChange", testBookmarkAfterHiddenChange},
	{"Bookmark_AfterChange_HasItsVersion", testBookmarkAfterChange},
	{"Bookmark_None_NothingNewer", testNoBookmarkSameVersion},
	{"Bookmark_None_HiddenChangeBeforeWatch", testNoBookmarkHiddenBefore},
	{"Bookmark_None_NotAllowed", testNoBookmarkNotAllowed},
	{"Bookmark_None_DeadlineTooClose", testNoBookmarkOneSecond},
	{"Bookmark_None_Uncached", testNoBookmarkUncached},
}

var expiryTests = []test{
	{"Expired_ErrorEventAndCurrentVersionResumes", testExpired},
}

// short is a watch for which the server sends a bookmark, if at all, two
// seconds before it ends.
func short(rv string) metav1.ListOptions {
	return metav1.ListOptions{ResourceVersion: rv, TimeoutSeconds: new(int64(3)), AllowWatchBookmarks: true}
}

func testBookmarkAfterList(t *testing.T, s *suite) {
	s.put(t, "a", nil)
	persisted := s.current(t)
	s.touchOther(t)
	server := s.current(t)
	if compare(t, persisted, server) >= 0 {
		t.Fatalf("the server is at %s, want it above %s", server, persisted)
	}
	wantBookmarks(t, s.watch(t, short(persisted)), server)
}

func testBookmarkAfterHiddenChange(t *testing.T, s *suite) {
	opts := short(s.current(t))
	opts.LabelSelector = "no=such"
	st := s.watch(t, opts)
	hidden := s.put(t, "a", nil).ResourceVersion
	wantBookmarks(t, st, hidden)
}

func testBookmarkAfterChange(t *testing.T, s *suite) {
	st := s.watch(t, short(s.current(t)))
	a := s.put(t, "a", nil)
	st.want(watch.Added, "a")
	wantBookmarks(t, st, a.ResourceVersion)
}

// wantBookmarks reads a stream to its end, where only bookmarks may come: one at
// least, and none older than rv. (A real server sends a second one when its
// timer was early with the first.)
func wantBookmarks(t *testing.T, st *stream, rv string) {
	t.Helper()
	got := bookmarks(t, st.rest())
	if len(got) == 0 || compare(t, got[0], rv) < 0 {
		t.Errorf("got bookmarks at %v, want one at %s or later", got, rv)
	}
}

// wantSilence runs a watch that should get no bookmark. It tries again when the
// server has something newer to tell after all, because somebody else wrote.
func wantSilence(t *testing.T, start func() (from string, st *stream)) {
	t.Helper()
	for range 3 {
		from, st := start()
		got := bookmarks(t, st.rest())
		if len(got) == 0 {
			return
		}
		for _, rv := range got {
			if compare(t, rv, from) <= 0 {
				t.Fatalf("got a bookmark at %s, want none that is not above %s", rv, from)
			}
		}
		t.Logf("bookmarks at %v, above %s: trying again", got, from)
	}
	t.Error("there were bookmarks each time, want none")
}

func testNoBookmarkSameVersion(t *testing.T, s *suite) {
	s.put(t, "a", nil)
	wantSilence(t, func() (string, *stream) {
		rv := s.current(t)
		return rv, s.watch(t, short(rv))
	})
}

func testNoBookmarkHiddenBefore(t *testing.T, s *suite) {
	persisted := s.current(t)
	cm := s.put(t, "a", nil)
	wantSilence(t, func() (string, *stream) {
		cm = s.change(t, cm, func(cm *corev1.ConfigMap) { cm.Data["key"] += "!" })
		// The watch must not begin before the watch cache has seen the change.
		s.current(t)
		opts := short(persisted)
		opts.LabelSelector = "no=such"
		return cm.ResourceVersion, s.watch(t, opts)
	})
}

func testNoBookmarkNotAllowed(t *testing.T, s *suite) {
	persisted := s.current(t)
	s.touchOther(t)
	s.current(t)
	opts := short(persisted)
	opts.AllowWatchBookmarks = false
	if events := s.watch(t, opts).rest(); len(events) != 0 {
		t.Errorf("got %v, want nothing", events)
	}
}

func testNoBookmarkOneSecond(t *testing.T, s *suite) {
	persisted := s.current(t)
	s.touchOther(t)
	s.current(t)
	opts := short(persisted)
	opts.TimeoutSeconds = new(int64(1))
	if events := s.watch(t, opts).rest(); len(events) != 0 {
		t.Errorf("got %v, want nothing", events)
	}
}

// testNoBookmarkUncached watches Events, which have no watch cache.
func testNoBookmarkUncached(t *testing.T, s *suite) {
	events := s.typed.CoreV1().Events(s.ns)
	persisted := must(events.List(s.ctx, metav1.ListOptions{Limit: 1}))(t).ResourceVersion
	s.touchOther(t)
	must(events.List(s.ctx, metav1.ListOptions{Limit: 1}))(t)
	st := newStream(t, must(events.Watch(s.ctx, short(persisted)))(t))
	if got := st.rest(); len(got) != 0 {
		t.Errorf("got %v, want nothing", got)
	}
}

// testExpired lets the server forget once, because that may take a restart.
func testExpired(t *testing.T, s *suite) {
	if s.target.ForgetHistory == nil {
		t.Skip("the target cannot forget its history")
	}
	before := s.current(t)
	s.put(t, "a", nil)
	unchanged := s.current(t)
	s.touchOther(t)
	s.target.ForgetHistory(t)

	st := s.watch(t, short(before))
	st.wantExpired()
	if more := st.rest(); len(more) != 0 {
		t.Errorf("%v after the error", more)
	}
	// A watch cache does not know that nothing happened before it was filled.
	s.watch(t, short(unchanged)).wantExpired()

	st = s.watch(t, metav1.ListOptions{ResourceVersion: s.current(t)})
	s.put(t, "b", nil)
	st.want(watch.Added, "b")
}

// wantExpired wants the next event to be what a watch gets instead of an HTTP
// status when its version is too old.
func (st *stream) wantExpired() {
	st.t.Helper()
	e := st.next()
	err := apierrors.FromObject(e.Object)
	if e.Type != watch.Error || !apierrors.IsResourceExpired(err) {
		st.t.Fatalf("got %s %v, want an error event that says Expired", e.Type, err)
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Code != http.StatusGone {
		st.t.Errorf("code is %d, want %d", status.Status().Code, http.StatusGone)
	}
}
