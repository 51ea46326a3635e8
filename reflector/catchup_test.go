package reflector_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/warmcache/warmcache/reflector"
)

// TestReflector_Start follows the arrows of the picture in the package
// documentation.
func TestReflector_Start(t *testing.T) {
	for _, test := range []struct {
		name   string
		script func(f *fake)
		after  time.Duration
		want   []string
	}{{
		name:   "nothing is stored",
		script: func(f *fake) { f.options.Origin = reflector.Origin{}; f.items = objects("a@7", "b@8") },
		want:   []string{"list", "commit 10 [a b]", "caught up", "watch 10"},
	}, {
		name: "the stored version cannot be used",
		script: func(f *fake) {
			f.options.Origin = reflector.Origin{Reason: "interrupted"}
		},
		want: []string{"list", "commit 10 []", "caught up", "watch 10"},
	}, {
		name:   "the stored version cannot be compared",
		script: func(f *fake) { f.options.Origin.RV = "v5" },
		want:   []string{"list", "commit 10 []", "caught up", "watch 10"},
	}, {
		name:   "the stored version is 0",
		script: func(f *fake) { f.options.Origin.RV = "0" },
		want:   []string{"list", "commit 10 []", "caught up", "watch 10"},
	}, {
		name:   "a list is cheaper",
		script: func(f *fake) { f.options.Origin.Clean, f.options.Origin.Bytes, f.options.ListBelow = true, 99, 100 },
		want:   []string{"list", "commit 10 []", "caught up", "watch 10"},
	}, {
		name:   "a list is cheaper but could miss a delete after a crash",
		script: func(f *fake) { f.options.Origin.Bytes, f.options.ListBelow, f.rv = 99, 100, "5" },
		want:   []string{"probe", "caught up", "watch 5"},
	}, {
		name: "a list is not cheaper",
		script: func(f *fake) {
			f.options.Origin.Clean, f.options.Origin.Bytes, f.options.ListBelow, f.rv = true, 100, 100, "5"
		},
		want: []string{"probe", "caught up", "watch 5"},
	}, {
		name:   "equal versions",
		script: func(f *fake) { f.rv = "5" },
		want:   []string{"probe", "caught up", "watch 5"},
	}, {
		name:   "a lower version",
		script: func(f *fake) { f.rv = "4" },
		want:   []string{"probe", "list", "commit 4 []", "caught up", "watch 4"},
	}, {
		name:   "the server's version cannot be compared",
		script: func(f *fake) { f.rv = "v10" },
		want:   []string{"probe", "list", "commit v10 []", "caught up", "watch v10"},
	}, {
		name:   "the server has no version",
		script: func(f *fake) { f.rv = ""; f.items = objects("a@7") },
		want:   []string{"probe", "list", "commit  [a]", "caught up", "watch "},
	}, {
		name:   "proof by bookmark",
		script: func(f *fake) { f.streams = []stream{events(added("a", "6"), bookmark("10"))} },
		after:  time.Second,
		want:   []string{"probe", "watch 5", "add a@6", "bookmark @10", "caught up"},
	}, {
		name:   "proof by event",
		script: func(f *fake) { f.streams = []stream{events(deleted("a", "9"), modified("b", "11"))} },
		after:  time.Second,
		want:   []string{"probe", "watch 5", "delete a@9", "update b@11", "caught up"},
	}, {
		name:   "the proof ends the rounds",
		script: func(f *fake) { f.streams = []stream{events(bookmark("10"))} },
		after:  4 * time.Second,
		want:   []string{"probe", "watch 5", "bookmark @10", "caught up", "watch 10"},
	}, {
		name:   "a second round brings the proof",
		script: func(f *fake) { f.streams = []stream{events(), events(bookmark("10"))} },
		after:  4 * time.Second,
		want:   []string{"probe", "watch 5", "probe", "watch 5", "bookmark @10", "caught up"},
	}, {
		name:  "no proof comes",
		after: 13 * time.Second,
		want: []string{
			"probe", "watch 5", "probe", "watch 5", "probe", "watch 5", "probe", "watch 5",
			"list", "commit 10 []", "caught up", "watch 10",
		},
	}, {
		name:   "rounds that are cut off prove nothing",
		script: func(f *fake) { f.streams = append(slices.Repeat([]stream{closing()}, 7), events(bookmark("10"))) },
		want:   append(slices.Repeat([]string{"probe", "watch 5"}, 8), "bookmark @10", "caught up"),
	}, {
		name:   "all rounds are cut off",
		script: func(f *fake) { f.streams = slices.Repeat([]stream{closing()}, 8) },
		want:   append(slices.Repeat([]string{"probe", "watch 5"}, 8), "list", "commit 10 []", "caught up", "watch 10"),
	}, {
		name:   "no proof is to be expected",
		script: func(f *fake) { f.options.Origin.NoBookmarks = true },
		want:   []string{"probe", "list", "commit 10 []", "caught up", "watch 10"},
	}, {
		name:   "no proof is to be expected, and none needed",
		script: func(f *fake) { f.options.Origin.NoBookmarks, f.rv = true, "5" },
		want:   []string{"probe", "caught up", "watch 5"},
	}, {
		name: "every round brings something",
		script: func(f *fake) {
			f.streams = []stream{events(), events(), events(), events(modified("a", "6")), events(), events(), events(), events(bookmark("10"))}
		},
		after: 22 * time.Second,
		want: []string{
			"probe", "watch 5", "probe", "watch 5", "probe", "watch 5", "probe", "watch 5", "update a@6",
			"probe", "watch 6", "probe", "watch 6", "probe", "watch 6", "probe", "watch 6", "bookmark @10", "caught up",
		},
	}, {
		name:   "expired at once",
		script: func(f *fake) { f.streams = []stream{events(failure(expired()))} },
		want:   []string{"probe", "watch 5", "list", "commit 10 []", "caught up", "watch 10"},
	}, {
		name:   "gone, as older servers say",
		script: func(f *fake) { f.watchErrs = []error{apierrors.NewGone("gone")} },
		want:   []string{"probe", "watch 5", "list", "commit 10 []", "caught up", "watch 10"},
	}, {
		name:   "expired in the middle",
		script: func(f *fake) { f.streams = []stream{events(added("a", "6"), failure(expired()))} },
		want:   []string{"probe", "watch 5", "add a@6", "list", "commit 10 []", "caught up", "watch 10"},
	}, {
		name: "the server is restored between rounds",
		script: func(f *fake) {
			f.streams = []stream{closing()}
			f.options.ListerWatcher = restoring{f}
		},
		want: []string{"probe", "watch 5", "probe", "list", "commit 3 []", "caught up", "watch 3"},
	}, {
		name: "the server is restored right after the proof",
		script: func(f *fake) {
			f.streams = []stream{closing(bookmark("10"))}
			f.onCaughtUp = func() { f.rv = "3" }
		},
		after: pause,
		want:  []string{"probe", "watch 5", "bookmark @10", "caught up", "probe", "list", "commit 3 []", "caught up", "watch 3"},
	}, {
		name:   "a contradiction",
		script: func(f *fake) { f.failures <- errors.New("added, but is there") },
		want:   []string{"list", "commit 10 []", "caught up", "watch 10"},
	}, {
		name:   "a watch that outlives its timeout",
		script: func(f *fake) { f.endless = true; f.streams = []stream{events(), events(bookmark("10"))} },
		after:  10500 * time.Millisecond,
		want:   []string{"probe", "watch 5", "probe", "watch 5", "bookmark @10", "caught up"},
	}} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				if test.script != nil {
					test.script(f)
				}
				f.run(test.after + pause/10)
				f.want(test.want...)
				if f.r.Status().Phase != reflector.PhaseStopped {
					t.Error("not stopped")
				}
			})
		})
	}
}

// restoring is a server that goes back in time while it is watched.
type restoring struct{ *fake }

func (r restoring) IsWatchListSemanticsUnSupported() bool { return true }

func (r restoring) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	r.set(func() { r.rv = "3" })
	return r.fake.WatchWithContext(ctx, o)
}

// TestReflector_Retries checks what must not lead to a list: nothing of it says
// that the stored version cannot be used.
func TestReflector_Retries(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for name, err := range map[string]error{
		"429":     apierrors.NewTooManyRequests("busy", 1),
		"500":     internal(),
		"503":     apierrors.NewServiceUnavailable("later"),
		"504":     apierrors.NewTimeoutError("slow", 1),
		"401":     apierrors.NewUnauthorized("who"),
		"403":     apierrors.NewForbidden(resource, "", errors.New("no")),
		"404":     apierrors.NewNotFound(resource, ""),
		"refused": refused,
		"EOF":     fmt.Errorf("Get: %w", errors.New("EOF")),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.rv = "12"
				f.probeErrs = []error{err, err, nil, err}
				f.watchErrs = []error{err, nil, err, err}
				f.streams = []stream{closing(bookmark("12"))}
				f.run(6*pause + pause/10)
				resumed := []string{"probe", "probe", "probe", "watch 5", "probe", "probe", "watch 5", "bookmark @12", "caught up", "probe"}
				if slices.Contains([]string{"429", "503", "504"}, name) { // is not asked more than it must be
					resumed = []string{"probe", "probe", "probe", "watch 5", "watch 5", "bookmark @12", "caught up", "probe", "probe"}
				}
				f.want(append(resumed, "watch 12", "probe", "watch 12", "probe", "watch 12")...)
				reported := 6
				if name == "429" || name == "refused" { // only at the start, where client-go would list
					reported = 2
				}
				if len(f.handled) != reported {
					t.Fatalf("the watch error handler was given %d errors, want %d: %v", len(f.handled), reported, f.handled)
				}
				for _, n := range []int{2, 4, 5} {
					if n < reported && f.handled[n] != err { //nolint:errorlint // unwrapped is the point
						t.Errorf("error %d, of a watch, was wrapped: %v", n, f.handled[n])
					}
				}
				if s := f.r.Status(); s.Err != nil || s.Lists != 0 || s.ListReason != "" || s.RV != "12" {
					t.Errorf("status %+v", s)
				}
			})
		})
	}
}

func TestReflector_IdentifiesClusterAndSchema(t *testing.T) {
	answer := func(answers ...any) func(context.Context) (string, error) {
		return func(context.Context) (string, error) {
			a := answers[0]
			if len(answers) > 1 {
				answers = answers[1:]
			}
			if err, ok := a.(error); ok {
				return "", err
			}
			return a.(string), nil
		}
	}
	stalled := func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}
	stored := reflector.Origin{RV: "10", Cluster: "c1", Schema: "s1"}
	failed := errors.New("no answer")
	for _, test := range []struct {
		name            string
		cluster, schema func(context.Context) (string, error)
		want            []string
	}{
		{"same", answer("c1"), answer("s1"), []string{"probe", "caught up", "watch 10"}},
		{"unknown", answer(""), answer(""), []string{"probe", "caught up", "watch 10"}},
		{"not asked", nil, nil, []string{"probe", "caught up", "watch 10"}},
		{"other cluster", answer("c2"), answer("s1"), []string{"reset", "list", "commit 10 []", "caught up", "watch 10"}},
		{"other schema", answer("c1"), answer("s2"), []string{"list", "commit 10 []", "caught up", "watch 10"}},
		{"errors are retried", answer(failed, "c1"), answer(failed, "s1"), []string{"probe", "probe", "caught up", "watch 10"}},
		{"errors are not retried for ever", answer(failed), answer(failed), []string{"probe", "probe", "probe", "probe", "caught up", "watch 10"}},
		{"no answer", stalled, nil, []string{"probe", "probe", "probe", "probe", "caught up", "watch 10"}},
		{"asked once", answer("c1", "c2"), answer("s1", "s2"), []string{"probe", "caught up", "watch 10"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.options.Origin = stored
				f.options.Cluster, f.options.Schema = test.cluster, test.schema
				f.watchErrs = []error{apierrors.NewTooManyRequests("busy", 1)} // ends a cycle
				f.run(time.Minute)
				f.want(append(test.want, "watch 10")...)
				if s := f.r.Status(); s.Foreign != (test.name == "other cluster") {
					t.Errorf("status %+v", s)
				}
			})
		})
	}
}

// TestReflector_RemembersBookmarks checks what the next start is told.
func TestReflector_RemembersBookmarks(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.streaming = true
		f.streams = []stream{events(), events(), events(), events(), events(end("10"))}
		stop := f.start()
		defer stop()
		time.Sleep(time.Second)
		if b := f.r.Status().Bookmarks; b != nil {
			t.Errorf("bookmarks = %v before anything is known", *b)
		}
		time.Sleep(15 * time.Second)
		if b := f.r.Status().Bookmarks; f.count("stream") != 1 || b == nil || *b {
			t.Errorf("bookmarks = %v after four silent rounds and a streamed list", b)
		}
		f.set(func() { f.streams = []stream{events(bookmark("11"))} })
		time.Sleep(11 * time.Minute) // the watch is renewed
		if b := f.r.Status().Bookmarks; b == nil || !*b {
			t.Errorf("bookmarks = %v although one came", b)
		}
	})
}

// TestReflector_StopIsNoProof checks that a round which a stop ends counts for
// nothing.
func TestReflector_StopIsNoProof(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.options.Policy = reflector.Resumed
		f.streams = []stream{{events: objectEvents(300), every: 50 * time.Millisecond}}
		f.run(500 * time.Millisecond)
		if f.count("show") != 0 {
			t.Error("shown by a stop")
		}
		if b := f.r.Status().Bookmarks; b != nil {
			t.Errorf("bookmarks = %v", *b)
		}
	})
	inBubble(t, func(t *testing.T, f *fake) {
		f.run(9*time.Second + 500*time.Millisecond) // in the fourth silent round
		if s := f.r.Status(); s.Bookmarks != nil {
			t.Errorf("bookmarks = %v", *s.Bookmarks)
		}
	})
}
