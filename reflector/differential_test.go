package reflector_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// TestReflector_AsClientGo lets client-go's reflector and ours read the same
// history from a server with the same faults. In the end both must hold what the
// server holds, be at its version, and have told the watch error handler the same.
func TestReflector_AsClientGo(t *testing.T) {
	forbidden := apierrors.NewForbidden(resource, "", errors.New("no"))
	busy := apierrors.NewTooManyRequests("busy", 1)
	down := errors.New("down")
	ending := func(es ...watch.Event) []fault { return []fault{{events: es, cut: true}} }
	failing := func(errs ...error) (faults []fault) {
		for _, err := range errs {
			faults = append(faults, fault{err: err})
		}
		return faults
	}
	other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "other", ResourceVersion: "900"}}
	annotated := end("900")
	annotated.Object.(*corev1.ConfigMap).Annotations[metav1.InitialEventsAnnotationKey] = "false"
	for _, test := range []struct {
		name      string
		streaming bool
		lists     []fault
		watches   []fault
	}{
		{name: "no faults"},
		{name: "lists fail", lists: failing(internal(), forbidden, down, apierrors.NewNotFound(resource, ""))},
		{name: "lists find the server busy", lists: failing(busy, busy)},
		{name: "lists find the server away", lists: failing(syscall.ECONNREFUSED, syscall.ECONNREFUSED)},
		{name: "lists expire", lists: failing(expired(), expired(), down)},
		{name: "watches are refused", watches: failing(forbidden, internal(), down)},
		{name: "watches find the server busy", watches: failing(busy, busy)},
		{name: "watches find the server away", watches: failing(syscall.ECONNREFUSED, syscall.ECONNREFUSED)},
		{name: "the version has expired", watches: failing(expired())},
		{name: "the version is too large", watches: failing(tooLarge())},
		{name: "a watch expires", watches: ending(failure(expired()))},
		{name: "a watch is broken off", watches: ending(failure(internal()))},
		{name: "a watch is broken off for being too much", watches: ending(failure(busy))},
		{name: "a watch is broken off because of what cannot be read", watches: ending(failure(storeRead()))},
		{name: "a watch is broken off with what is no status", watches: ending(watch.Event{Type: watch.Error, Object: object("a", "9")})},
		{name: "a watch is broken off with nothing", watches: ending(watch.Event{Type: watch.Error})},
		{name: "a watch ends at once", watches: ending()},
		{name: "a watch ends after an event", watches: ending(bookmark("3"))},
		{name: "an event of another type", watches: []fault{{events: []watch.Event{{Type: watch.Added, Object: other}}}}},
		{name: "an event without an object", watches: []fault{{events: []watch.Event{{Type: watch.Added}}}}},
		{name: "an event of an unknown kind", watches: []fault{{events: []watch.Event{{Type: "NEWS", Object: object("a", "3")}}}}},
		{name: "a bookmark of another type", watches: []fault{{events: []watch.Event{{Type: watch.Bookmark, Object: other}}}}},
		{name: "a bookmark without an object", watches: []fault{{events: []watch.Event{{Type: watch.Bookmark}}}}},

		{name: "streamed", streaming: true},
		{name: "a stream is refused", streaming: true, watches: failing(apierrors.NewInvalid(kind, "", nil))},
		{name: "a stream fails", streaming: true, watches: failing(down)},
		{name: "a stream finds the server busy", streaming: true, watches: failing(busy, busy)},
		{name: "a stream ends before its end", streaming: true, watches: ending()},
		{name: "a stream is broken off", streaming: true, watches: ending(failure(internal()))},
		{name: "a stream is broken off for being too much", streaming: true, watches: ending(failure(busy))},
		{name: "a stream expires", streaming: true, watches: ending(failure(expired()))},
		{name: "a stream with changes", streaming: true, watches: []fault{{events: []watch.Event{
			added("gone", "1"), added("b", "1"), modified("b", "2"), deleted("gone", "3"), bookmark("3"),
		}}}},
		{name: "a stream with another annotation", streaming: true, watches: ending(annotated)},
		{name: "a stream with an event of another type", streaming: true, watches: []fault{{events: []watch.Event{{Type: watch.Added, Object: other}}}}},
		{name: "a stream, and nothing to watch behind it", streaming: true, watches: append([]fault{{}}, failing(forbidden, expired())...)},
		{name: "nothing streams, and lists fail", streaming: true, watches: failing(down, down), lists: failing(down)},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				read := func(by func(*testing.T, *timeline, func()) outcome) (outcome, outcome) {
					l := newTimeline()
					l.streaming, l.lists, l.watches = test.streaming, test.lists, test.watches
					for _, name := range []string{"a", "b", "c"} {
						l.write(watch.Added, name)
					}
					got := by(t, l, func() { goOn(l) })
					state, rv := l.state()
					return got, outcome{State: state, RV: rv, Told: got.Told}
				}
				got, server := read(ours)
				want, _ := read(theirs)
				if diff := cmp.Diff(server, got, told); diff != "" {
					t.Errorf("what the server holds, and we (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(want, got, told); diff != "" {
					t.Errorf("client-go, and we (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// goOn changes the server for five minutes, with a long silence at the end.
func goOn(l *timeline) {
	for n := range 10 {
		time.Sleep(10 * time.Second)
		l.write(watch.Modified, "a")
		l.write(watch.Added, fmt.Sprint("new", n))
		if n%2 == 1 {
			l.write(watch.Deleted, fmt.Sprint("new", n-1))
		}
	}
	time.Sleep(200 * time.Second)
	synctest.Wait()
}

// told compares errors by what caused them: implementations may add to it.
var told = cmp.Transformer("cause", func(err error) string {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err.Error()
})
