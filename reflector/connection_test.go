package reflector_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/warmcache/warmcache/reflector"
)

// undecodable is the event with which client-go ends a watch that it cannot read on.
func undecodable(cause string) watch.Event {
	reporter := apierrors.NewClientErrorReporter(http.StatusInternalServerError, "get", "ClientWatchDecoding")
	return watch.Event{Type: watch.Error, Object: reporter.AsObject(errors.New("unable to decode an event from the watch stream: " + cause))}
}

// TestReflector_ConnectionLost checks that a watch whose connection is lost goes on
// from where it was: at once, and without lists however often it happens.
func TestReflector_ConnectionLost(t *testing.T) {
	for _, cause := range []string{
		"http2: client connection lost",
		"stream error: stream ID 5; INTERNAL_ERROR; received from peer",
		"read tcp 127.0.0.1:1234->127.0.0.1:443: read: no route to host",
	} {
		t.Run(strings.Split(cause, ":")[0], func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.rv = "5"
				lost := stream{events: []watch.Event{undecodable(cause)}, every: 2 * pause}
				f.streams = slices.Repeat([]stream{lost}, 20)
				f.run(20*2*pause + pause/10)
				f.want(append(slices.Clone(caughtUp), slices.Repeat([]string{"probe", "watch 5"}, 20)...)...)
				if s := f.r.Status(); s.Lists != 0 || s.Err != nil {
					t.Errorf("status %+v", s)
				}
			})
		})
	}
}

// TestReflector_ConnectionLostAtOnce checks that watches which break off as soon as
// they are open count as failures, like those that end.
func TestReflector_ConnectionLostAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.rv = "5"
		f.streams = slices.Repeat([]stream{events(undecodable("http2: client connection lost"))}, 5)
		f.run(5*pause + pause/10)
		f.want(slices.Concat(caughtUp, slices.Repeat([]string{"probe", "watch 5"}, 4), []string{"list", "commit 5 []", "caught up", "watch 5"})...)
	})
}

// TestReflector_Undecodable checks that an event which cannot be understood is no
// lost connection.
func TestReflector_Undecodable(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.rv = "5"
		late := stream{events: []watch.Event{undecodable("invalid character '<'")}, every: 2 * pause}
		f.streams = slices.Repeat([]stream{late}, 5)
		f.run(5*3*pause + pause/10)
		if f.count("list") != 1 || len(f.handled) > 0 {
			t.Errorf("%d lists, want one after the fifth; errors handled: %v", f.count("list"), f.handled)
		}
	})
}

// TestReflector_LostWhileResuming checks that what is lost in a round does not count
// against the server.
func TestReflector_LostWhileResuming(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		lost := stream{events: []watch.Event{undecodable("http2: client connection lost")}, every: pause / 2}
		f.streams = append(slices.Repeat([]stream{lost}, 7), events(bookmark("10")))
		f.run(4 * pause)
		f.want(append(slices.Repeat([]string{"probe", "watch 5"}, 8), "bookmark @10", "caught up")...)
	})
}

// TestReflector_CutRoundsSayNothingOfBookmarks checks that the next start is not told
// that bookmarks do not come, because of watches that were too short for them.
func TestReflector_CutRoundsSayNothingOfBookmarks(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.streams = slices.Repeat([]stream{closing()}, 8)
		f.run(pause)
		if s := f.r.Status(); f.count("list") != 1 || s.Bookmarks != nil {
			t.Errorf("%d lists; status %+v", f.count("list"), s)
		}
	})
}

// TestReflector_OverdueWatch checks that a watch which the server does not end is
// replaced, and that this is no failure.
func TestReflector_OverdueWatch(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.rv, f.endless = "5", true
		stop := f.start()
		time.Sleep(10*time.Minute + 30*time.Second)
		if n := f.count("watch"); n != 2 {
			t.Errorf("%d watches after the first was overdue, want 2", n)
		}
		time.Sleep(10 * (10*time.Minute + 30*time.Second))
		stop()
		if n := f.count("watch"); n < 11 || f.count("list") > 0 || len(f.handled) > 0 {
			t.Errorf("%d watches, %d lists, errors %v", n, f.count("list"), f.handled)
		}
	})
}

// silent is a server that leaves some requests unanswered.
type silent struct {
	*fake
	// unanswered says of which requests.
	unanswered func(what string) bool

	mu sync.Mutex
	// open counts requests that have not ended.
	open int
}

func (s *silent) IsWatchListSemanticsUnSupported() bool { return !s.streaming }

func (s *silent) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if o.Limit == 1 && s.unanswered("probe") {
		return nil, s.wait(ctx, "silent probe")
	}
	return s.fake.ListWithContext(ctx, o)
}

func (s *silent) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	what := "watch"
	if o.SendInitialEvents != nil {
		what = "stream"
	}
	if s.unanswered(what) {
		return nil, s.wait(ctx, "silent "+what)
	}
	s.count(+1)
	context.AfterFunc(ctx, func() { s.count(-1) })
	w, err := s.fake.WatchWithContext(ctx, o)
	return stubborn{w, ctx}, err
}

// stubborn is a watch that cannot be stopped as long as its request goes on, like one
// that reads a compressed body (golang.org/x/net/http2).
type stubborn struct {
	watch.Interface
	ctx context.Context
}

func (w stubborn) Stop() {
	<-w.ctx.Done()
	w.Interface.Stop()
}

// wait is a request that only its context ends.
func (s *silent) wait(ctx context.Context, what string) error {
	s.note("%s", what)
	s.count(+1)
	defer s.count(-1)
	<-ctx.Done()
	return ctx.Err()
}

func (s *silent) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open += n
}

// first returns what is true of the first n requests of a kind.
func first(n int64, kind string) func(string) bool {
	var seen atomic.Int64
	return func(what string) bool { return what == kind && seen.Add(1) <= n }
}

// unanswered is for how long a request may have no answer.
const unanswered = 10*time.Minute + 30*time.Second

// TestReflector_Unanswered checks that a request without an answer is given up, and
// its connection with it.
func TestReflector_Unanswered(t *testing.T) {
	for _, test := range []struct {
		name       string
		unanswered func(string) bool
		script     func(f *fake)
		after      time.Duration
		want       []string
	}{{
		name:       "a probe",
		unanswered: first(2, "probe"),
		script:     func(f *fake) { f.rv = "5" },
		after:      2*unanswered + 2*pause,
		want:       []string{"silent probe", "silent probe", "probe", "caught up", "watch 5"},
	}, {
		name:       "a round",
		unanswered: first(1, "watch"),
		script:     func(f *fake) { f.streams = []stream{events(bookmark("10"))} },
		after:      unanswered + pause,
		want:       []string{"probe", "silent watch", "probe", "watch 5", "bookmark @10", "caught up"},
	}, {
		name:       "a watch",
		unanswered: first(1, "watch"),
		script:     func(f *fake) { f.rv = "5" },
		after:      unanswered + pause,
		want:       []string{"probe", "caught up", "silent watch", "probe", "watch 5"},
	}, {
		name:       "a round, after it has begun",
		unanswered: first(0, "watch"),
		script:     func(f *fake) { f.endless, f.streams = true, []stream{events(), events(bookmark("10"))} },
		after:      10*time.Second + pause,
		want:       []string{"probe", "watch 5", "probe", "watch 5", "bookmark @10", "caught up"},
	}, {
		name:       "a streamed list, after it has begun",
		unanswered: first(0, "stream"),
		script:     func(f *fake) { f.streaming, f.options.Origin = true, reflector.Origin{} },
		after:      30*time.Second + pause,
		want:       []string{"stream", "list", "commit 10 []", "caught up", "watch 10"},
	}, {
		name:       "a streamed list",
		unanswered: first(10, "stream"),
		script: func(f *fake) {
			f.streaming, f.options.Origin = true, reflector.Origin{}
			f.streams = []stream{events(failure(expired()))}
		},
		after: unanswered + pause,
		// And is not asked for again.
		want: []string{"silent stream", "list", "commit 10 []", "caught up", "watch 10", "list", "commit 10 []", "caught up", "watch 10"},
	}} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				test.script(f)
				server := &silent{fake: f, unanswered: test.unanswered}
				f.options.ListerWatcher = server
				stop := f.start()
				time.Sleep(test.after + pause/10)
				server.mu.Lock()
				if server.open > 1 {
					t.Errorf("%d requests are open, want the watch at most", server.open)
				}
				server.mu.Unlock()
				stop()
				f.want(test.want...)
			})
		})
	}
}
