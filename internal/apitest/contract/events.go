package contract

import (
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
)

// stream is a watch being read by a test.
type stream struct {
	t *testing.T
	w watch.Interface
}

// watch starts a watch of ConfigMaps in the suite's namespace.
func (s *suite) watch(t *testing.T, opts metav1.ListOptions) *stream {
	t.Helper()
	return newStream(t, must(s.configMaps().Watch(s.ctx, opts))(t))
}

func newStream(t *testing.T, w watch.Interface) *stream {
	t.Cleanup(w.Stop)
	return &stream{t: t, w: w}
}

// next returns the next event, which has to come.
func (st *stream) next() watch.Event {
	st.t.Helper()
	select {
	case e, ok := <-st.w.ResultChan():
		if !ok {
			st.t.Fatal("the stream ended, want an event")
		}
		return e
	case <-time.After(patience):
		st.t.Fatal("no event came")
	}
	return watch.Event{}
}

// want returns the object of the next event, which has to be of the type and
// have the name.
func (st *stream) want(typ watch.EventType, name string) metav1.Object {
	st.t.Helper()
	e := st.next()
	obj, err := meta.Accessor(e.Object)
	if err != nil {
		st.t.Fatalf("got %s with %#v, want %s %s", e.Type, e.Object, typ, name)
	}
	if e.Type != typ || obj.GetName() != name {
		st.t.Fatalf("got %s %q, want %s %q", e.Type, obj.GetName(), typ, name)
	}
	return obj
}

// rest returns all events until the server ends the stream.
func (st *stream) rest() []watch.Event {
	st.t.Helper()
	var all []watch.Event
	timeout := time.After(patience)
	for {
		select {
		case e, ok := <-st.w.ResultChan():
			if !ok {
				return all
			}
			all = append(all, e)
		case <-timeout:
			st.t.Fatalf("the stream did not end; it had %d events", len(all))
		}
	}
}

// isEnd reports whether an event marks the end of initial events.
func isEnd(obj metav1.Object) bool {
	return obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// wantEnd returns the version of the next event, which has to be the bookmark
// that ends the initial events.
func (st *stream) wantEnd() string {
	st.t.Helper()
	obj := st.want(watch.Bookmark, "")
	if !isEnd(obj) {
		st.t.Fatalf("got a bookmark with annotations %v, want the end of initial events", obj.GetAnnotations())
	}
	return obj.GetResourceVersion()
}

// bookmarks returns the versions of the bookmarks among events, and fails on
// anything else.
func bookmarks(t *testing.T, events []watch.Event) []string {
	t.Helper()
	var versions []string
	for _, e := range events {
		obj, err := meta.Accessor(e.Object)
		if err != nil || e.Type != watch.Bookmark {
			t.Fatalf("got %s with %#v, want bookmarks only", e.Type, e.Object)
		}
		versions = append(versions, obj.GetResourceVersion())
	}
	return versions
}

// compare orders two versions, -1, 0 or 1.
func compare(t *testing.T, a, b string) int {
	t.Helper()
	c, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// future is a version that the server has not reached and will not reach while
// the suite runs.
func future(t *testing.T, rv string) string {
	t.Helper()
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.FormatUint(n+1_000_000, 10)
}

func names(list *corev1.ConfigMapList) []string {
	all := make([]string, 0, len(list.Items))
	for _, item := range list.Items {
		all = append(all, item.Name)
	}
	return all
}
