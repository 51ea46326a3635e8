package contract

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

var watchTests = []test{
	{"Watch_FromVersion_ExclusiveAndInOrder", testWatchFromVersion},
	{"Watch_Deleted_LastStateAtVersionOfDeletion", testWatchDeleted},
	{"Watch_FutureVersion_SilentUntilTimeout", testWatchFuture},
	{"Watch_VersionZero_StateThenChanges", testWatchVersionZero},
	{"Watch_NoVersion_StateThenChanges", testWatchNoVersion},
	{"Watch_NoVersionWithBookmarks_EndsInitialEvents", testWatchNoVersionBookmarks},
	{"Watch_Name_OnlyThatObject", testWatchName},
	{"Watch_BadVersion_Refused", testWatchBadVersion},
}

var watchListTests = []test{
	{"WatchList_StateInOrderThenEndThenChanges", testWatchList},
	{"WatchList_SelectsNothing_CurrentVersion", testWatchListNothing},
	{"WatchList_NotOlderThan", testWatchListNotOlderThan},
	{"WatchList_WithoutBookmarks_NoEnd", testWatchListNoBookmarks},
	{"WatchList_SendInitialEventsFalse_OnlyChanges", testWatchListFalse},
	{"WatchList_WithoutMatch_Invalid", testWatchListInvalid},
	{"WatchList_TooLarge_ErrorEvent", testWatchListTooLarge},
}

func testWatchFromVersion(t *testing.T, s *suite) {
	a := s.put(t, "a", nil)
	st := s.watch(t, metav1.ListOptions{ResourceVersion: a.ResourceVersion})
	b := s.put(t, "b", nil)
	a2 := s.change(t, a, func(cm *corev1.ConfigMap) { cm.Data["key"] = "new" })
	s.remove(t, "b")
	if got := st.want(watch.Added, "b"); got.GetResourceVersion() != b.ResourceVersion {
		t.Errorf("b was added at %s, want %s", got.GetResourceVersion(), b.ResourceVersion)
	}
	if got := st.want(watch.Modified, "a"); got.GetResourceVersion() != a2.ResourceVersion {
		t.Errorf("a was modified at %s, want %s", got.GetResourceVersion(), a2.ResourceVersion)
	}
	st.want(watch.Deleted, "b")
	again := s.watch(t, metav1.ListOptions{ResourceVersion: b.ResourceVersion})
	again.want(watch.Modified, "a")
	again.want(watch.Deleted, "b")
}

func testWatchDeleted(t *testing.T, s *suite) {
	a := s.put(t, "a", nil)
	st := s.watch(t, metav1.ListOptions{ResourceVersion: a.ResourceVersion})
	before := s.touchOther(t)
	s.remove(t, "a")
	after := s.touchOther(t)
	gone := st.want(watch.Deleted, "a").(*corev1.ConfigMap)
	if compare(t, gone.ResourceVersion, before) <= 0 || compare(t, gone.ResourceVersion, after) >= 0 {
		t.Errorf("deleted at %s, want between %s and %s", gone.ResourceVersion, before, after)
	}
	if gone.UID != a.UID || gone.Data["key"] != a.Data["key"] {
		t.Errorf("the deleted object is %v, want %v", gone, a)
	}
}

func testWatchFuture(t *testing.T, s *suite) {
	rv := future(t, s.current(t))
	st := s.watch(t, metav1.ListOptions{ResourceVersion: rv, TimeoutSeconds: new(int64(3)), AllowWatchBookmarks: true})
	s.put(t, "a", nil)
	if events := st.rest(); len(events) != 0 {
		t.Errorf("got %v, want nothing", events)
	}
}

func testWatchVersionZero(t *testing.T, s *suite) {
	s.fill(t, 2)
	s.current(t) // so that the watch cache has seen them
	st := s.watch(t, metav1.ListOptions{LabelSelector: labelSuite, ResourceVersion: "0"})
	st.want(watch.Added, "a")
	st.want(watch.Added, "b")
	s.put(t, "c", nil)
	st.want(watch.Added, "c")
}

func testWatchNoVersion(t *testing.T, s *suite) {
	s.fill(t, 2)
	st := s.watch(t, metav1.ListOptions{LabelSelector: labelSuite})
	st.want(watch.Added, "a")
	st.want(watch.Added, "b")
	s.put(t, "c", nil)
	st.want(watch.Added, "c")
}

func testWatchNoVersionBookmarks(t *testing.T, s *suite) {
	s.fill(t, 1)
	st := s.watch(t, metav1.ListOptions{LabelSelector: labelSuite, AllowWatchBookmarks: true})
	st.want(watch.Added, "a")
	st.wantEnd()
}

func testWatchName(t *testing.T, s *suite) {
	rv := s.current(t)
	st := s.watch(t, metav1.ListOptions{ResourceVersion: rv, FieldSelector: "metadata.name=b"})
	s.fill(t, 2)
	st.want(watch.Added, "b")
}

func testWatchBadVersion(t *testing.T, s *suite) {
	if _, err := s.configMaps().Watch(s.ctx, metav1.ListOptions{ResourceVersion: "abc"}); err == nil {
		t.Error("a watch from abc was accepted")
	}
	match := metav1.ListOptions{ResourceVersion: "1", ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	if _, err := s.configMaps().Watch(s.ctx, match); !apierrors.IsInvalid(err) {
		t.Errorf("a watch at exactly 1: got %v, want Invalid", err)
	}
}

// watchList is the options of a WatchList that sees the suite's objects.
func watchList(rv string) metav1.ListOptions {
	return metav1.ListOptions{
		LabelSelector:        labelSuite,
		ResourceVersion:      rv,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		SendInitialEvents:    new(true),
		AllowWatchBookmarks:  true,
	}
}

func testWatchList(t *testing.T, s *suite) {
	for _, name := range []string{"c", "a-b", "a.b", "a"} {
		s.put(t, name, nil)
	}
	written := s.touchOther(t)
	st := s.watch(t, watchList(""))
	for _, name := range []string{"a", "a-b", "a.b", "c"} {
		st.want(watch.Added, name)
	}
	if end := st.wantEnd(); compare(t, end, written) < 0 {
		t.Errorf("initial events end at %s, which is before %s", end, written)
	}
	s.put(t, "b", nil)
	st.want(watch.Added, "b")
	s.remove(t, "a")
	st.want(watch.Deleted, "a")
}

func testWatchListNothing(t *testing.T, s *suite) {
	s.fill(t, 2)
	written := s.touchOther(t)
	opts := watchList("")
	opts.FieldSelector = "metadata.name=no-such"
	if end := s.watch(t, opts).wantEnd(); compare(t, end, written) < 0 {
		t.Errorf("got version %s, want the current one, %s or later", end, written)
	}
	events := must(s.typed.CoreV1().Events(s.ns).Watch(s.ctx, opts))(t)
	if end := newStream(t, events).wantEnd(); compare(t, end, written) < 0 {
		t.Errorf("events, which have no watch cache: got version %s, want %s or later", end, written)
	}
}

func testWatchListNotOlderThan(t *testing.T, s *suite) {
	all := s.fill(t, 2)
	rv := all[1].ResourceVersion
	st := s.watch(t, watchList(rv))
	st.want(watch.Added, "a")
	st.want(watch.Added, "b")
	if end := st.wantEnd(); compare(t, end, rv) < 0 {
		t.Errorf("initial events end at %s, which is before %s", end, rv)
	}
}

func testWatchListNoBookmarks(t *testing.T, s *suite) {
	s.fill(t, 1)
	opts := watchList("")
	opts.AllowWatchBookmarks = false
	st := s.watch(t, opts)
	st.want(watch.Added, "a")
	s.put(t, "b", nil)
	st.want(watch.Added, "b")
}

func testWatchListFalse(t *testing.T, s *suite) {
	all := s.fill(t, 1)
	opts := watchList(all[0].ResourceVersion)
	opts.SendInitialEvents = new(false)
	st := s.watch(t, opts)
	s.put(t, "b", nil)
	st.want(watch.Added, "b")
}

func testWatchListInvalid(t *testing.T, s *suite) {
	opts := watchList("")
	opts.ResourceVersionMatch = ""
	if _, err := s.configMaps().Watch(s.ctx, opts); !apierrors.IsInvalid(err) {
		t.Errorf("got %v, want Invalid", err)
	}
}

func testWatchListTooLarge(t *testing.T, s *suite) {
	st := s.watch(t, watchList(future(t, s.current(t))))
	e := st.next()
	err := apierrors.FromObject(e.Object)
	if e.Type != watch.Error || !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		t.Errorf("got %s %v, want an error event with cause %s", e.Type, err, metav1.CauseTypeResourceVersionTooLarge)
	}
}
