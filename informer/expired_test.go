package informer_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/warmcache/warmcache/internal/apitest"
)

// TestExpired checks that an expired version leads to a list whenever it shows, that
// nobody takes a list that expires itself for the state, and how many lists it takes.
func TestExpired(t *testing.T) {
	for _, test := range []struct {
		name string
		// happens does what makes a running informer list, and what that meets.
		happens func(w *world) *apitest.Injected
		// lists are requests for lists, streamed ones and those in pages.
		lists int
	}{{
		name:    "in the middle of a watch",
		happens: func(w *world) *apitest.Injected { w.server.FailWatches(http.StatusGone); return nil },
		lists:   1,
	}, {
		name: "and the stream of the list, too",
		happens: func(w *world) *apitest.Injected {
			w.server.FailWatches(http.StatusGone)
			return w.server.Inject(apitest.Fault{Match: isWatchList, Status: http.StatusGone, Times: 1})
		},
		lists: 2, // the stream, one in pages
	}, {
		name: "and all lists for three attempts",
		happens: func(w *world) *apitest.Injected {
			w.server.FailWatches(http.StatusGone)
			return w.server.Inject(apitest.Fault{
				Match: isFull, Status: http.StatusGone, Times: 9,
			})
		},
		lists: 3*3 + 1, // the stream, in pages, and whole; and the stream that succeeds
	}, {
		name: "and the watches behind three lists",
		happens: func(w *world) *apitest.Injected {
			// Streams go on as a watch, so that there is no watch behind those.
			w.server.Inject(apitest.Fault{Match: isWatchList, Status: http.StatusUnprocessableEntity, Times: 4})
			w.server.FailWatches(http.StatusGone)
			return w.server.Inject(apitest.Fault{Match: isResumed, Status: http.StatusGone, Times: 3})
		},
		lists: 4 * 2,
	}, {
		name: "and the streams behind three lists",
		happens: func(w *world) *apitest.Injected {
			for n := range 3 {
				time.AfterFunc(time.Duration(n)*afterwards/6, func() { w.server.FailWatches(http.StatusGone) })
			}
			return nil
		},
		lists: 3,
	}, {
		name: "and was too large",
		happens: func(w *world) *apitest.Injected {
			w.server.EndWatches()
			return w.server.Inject(apitest.Fault{
				Match: isResumed, Status: http.StatusGatewayTimeout, Cause: metav1.CauseTypeResourceVersionTooLarge, Times: 1,
			})
		},
		lists: 1,
	}} {
		t.Run(test.name, func(t *testing.T) {
			bothResidencies(t, func(t *testing.T, w *world) {
				w.create("a", "b", "c")
				p := w.start().synced()
				defer p.stop()
				p.recorder.take()
				w.server.ResetRequests()
				fault := test.happens(w)
				w.delete("a")
				w.update("b", "new")
				time.Sleep(afterwards)
				w.wantEvents(p.recorder, "delete a", "update b")
				p.converged()
				if got := w.count(isFull); got != test.lists {
					t.Errorf("%d lists, want %d; status %+v", got, test.lists, p.status())
				}
				if fault != nil && fault.Hits() == 0 {
					t.Error("the fault was not met")
				}
				if s := p.status(); s.Err != nil {
					t.Errorf("status %+v", s)
				}
			})
		})
	}
}

// TestExpired_AtStart checks that a start from an expired version waits for a list
// that arrives whole.
func TestExpired_AtStart(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault apitest.Fault
		lists int
	}{
		{"and a list", apitest.Fault{}, 1},
		{"and a stream that expires", apitest.Fault{Match: isWatchList, Status: http.StatusGone, Times: 1}, 2},
		{"and a stream that is cut", apitest.Fault{Match: isWatchList, DropAfterEvents: 2, Times: 1}, 2},
		{"and lists that are cut", apitest.Fault{Match: isFull, DropAfterBytes: 300, Times: 6}, 7},
		{"and lists that expire", apitest.Fault{Match: isFull, Status: http.StatusGone, Times: 9}, 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			bothResidencies(t, func(t *testing.T, w *world) {
				w.create("a", "b", "c", "d")
				w.start().synced().kill()
				w.delete("b")
				w.update("c", "new")
				w.create("e")
				w.server.Compact()
				if test.fault.Times > 0 {
					w.server.Inject(test.fault)
				}
				p := w.start().synced()
				defer p.stop()
				w.wantEvents(p.recorder, "initial b", "delete b", "initial a", "initial c", "initial d", "initial e")
				p.converged()
				if s := p.status(); p.lists() != test.lists || !strings.Contains(s.OutcomeReason, "has forgotten the changes") {
					t.Errorf("%d lists, want %d; status %+v", p.lists(), test.lists, s)
				}
			})
		})
	}
}

// TestExpired_ContinueTokens checks lists whose pages are forgotten before they are
// read: the second one in one go, if that is what it takes.
func TestExpired_ContinueTokens(t *testing.T) {
	const objects = 1200 // three pages
	for times, test := range map[string]struct {
		// whole is how many lists in one go are cut off.
		whole int
		// lists are requests: for a stream, which is refused, two pages, and all of it.
		lists int
	}{
		"once":  {whole: 0, lists: 4},
		"twice": {whole: 1, lists: 2 * 4},
	} {
		t.Run(times, func(t *testing.T) {
			bothResidenciesWith(t, apitest.Options{NoWatchList: true}, func(t *testing.T, w *world) {
				for n := range objects {
					w.create(name(n))
				}
				p := w.start().synced()
				defer p.stop()
				p.recorder.take()
				w.server.ResetRequests()

				w.server.Inject(apitest.Fault{Match: isNextPage, Delay: time.Second, Times: 1 + test.whole})
				if test.whole > 0 {
					w.server.Inject(apitest.Fault{Match: isWhole, DropAfterBytes: 20_000, Times: test.whole})
				}
				w.server.FailWatches(http.StatusGone)
				w.delete(name(1), name(objects-1))
				for n := range 1 + test.whole {
					for w.count(isNextPage) <= n {
						time.Sleep(100 * time.Millisecond)
					}
					w.update(name(2), "new")
					w.delete(name(10 + n))
					w.server.Compact()
					synctest.Wait()
				}
				time.Sleep(afterwards)
				p.converged()
				if got := w.count(isFull); got != test.lists {
					t.Errorf("%d requests for lists, want %d", got, test.lists)
				}
			})
		})
	}
}
