package reflector_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/warmcache/warmcache/reflector"
)

// caughtUp is how the journal begins when the stored copy is current.
var caughtUp = []string{"probe", "caught up", "watch 5"}

// TestReflector_Watch checks what follows from the end of a watch once the
// reflector has caught up.
func TestReflector_Watch(t *testing.T) {
	status := func(code int) *apierrors.StatusError {
		return apierrors.NewGenericServerResponse(code, "get", resource, "", "", 0, false)
	}
	for _, test := range []struct {
		name   string
		script func(f *fake)
		// pauses is how many there are before the last step.
		pauses time.Duration
		want   []string
	}{{
		name: "events move the version",
		script: func(f *fake) {
			f.streams = []stream{events(added("a", "6"), modified("a", "7"), deleted("a", "8"), bookmark("9"))}
		},
		want: []string{"add a@6", "update a@7", "delete a@8", "bookmark @9"},
	}, {
		name:   "expired",
		script: func(f *fake) { f.streams = []stream{events(modified("a", "6"), failure(expired()))} },
		pauses: 1,
		want:   []string{"update a@6", "list", "commit 5 []", "caught up", "watch 5"},
	}, {
		name:   "too large",
		script: func(f *fake) { f.watchErrs = []error{tooLarge()} },
		pauses: 1,
		want:   []string{"list", "commit 5 []", "caught up", "watch 5"},
	}, {
		name:   "rejected",
		script: func(f *fake) { f.watchErrs = []error{apierrors.NewBadRequest("invalid resource version")} },
		pauses: 1,
		want:   []string{"list", "commit 5 []", "caught up", "watch 5"},
	}, {
		name:   "invalid",
		script: func(f *fake) { f.watchErrs = []error{status(422)} },
		pauses: 1,
		want:   []string{"list", "commit 5 []", "caught up", "watch 5"},
	}, {
		name:   "not acceptable",
		script: func(f *fake) { f.watchErrs = []error{status(406)} },
		pauses: 1,
		want:   []string{"list", "commit 5 []", "caught up", "watch 5"},
	}, {
		name:   "not supported",
		script: func(f *fake) { f.watchErrs = []error{status(405)} },
		pauses: 1,
		want:   []string{"list", "commit 5 []", "caught up", "watch 5"},
	}, {
		name:   "five internal errors in a row",
		script: func(f *fake) { f.watchErrs = repeat(internal(), 5) },
		pauses: 5,
		want: []string{
			"probe", "watch 5", "probe", "watch 5", "probe", "watch 5", "probe", "watch 5",
			"list", "commit 5 []", "caught up", "watch 5",
		},
	}, {
		name:   "a sixth after the list",
		script: func(f *fake) { f.watchErrs = repeat(internal(), 6) },
		pauses: 6,
		want: []string{
			"probe", "watch 5", "probe", "watch 5", "probe", "watch 5", "probe", "watch 5",
			"list", "commit 5 []", "caught up", "watch 5", "probe", "watch 5",
		},
	}, {
		name: "internal errors with events in between",
		script: func(f *fake) {
			f.watchErrs = append(append(repeat(internal(), 4), nil), repeat(internal(), 4)...)
			f.streams = []stream{closing(bookmark("6"))}
			f.rv = "6"
			f.options.Origin.RV = "6"
		},
		pauses: 8,
		want: []string{
			"probe", "watch 6", "probe", "watch 6", "probe", "watch 6", "probe", "watch 6", "bookmark @6",
			"probe", "watch 6", "probe", "watch 6", "probe", "watch 6", "probe", "watch 6", "probe", "watch 6",
		},
	}, {
		name:   "a very short watch",
		script: func(f *fake) { f.streams = []stream{closing()} },
		pauses: 1,
		want:   []string{"probe", "watch 5"},
	}, {
		name:   "a short watch with events",
		script: func(f *fake) { f.streams = []stream{closing(bookmark("5"))} },
		want:   []string{"bookmark @5", "probe", "watch 5"},
	}, {
		name: "the server is restored",
		script: func(f *fake) {
			f.streams = []stream{closing(modified("a", "6"))}
		},
		pauses: 1,
		want:   []string{"update a@6", "probe", "list", "commit 5 []", "caught up", "watch 5"},
	}, {
		name: "the server was cut off and is the same",
		script: func(f *fake) {
			f.streams = []stream{events(failure(internal()))}
		},
		pauses: 1,
		want:   []string{"probe", "watch 5"},
	}, {
		name: "the server is out of reach for a while",
		script: func(f *fake) {
			f.streams = []stream{closing(bookmark("5"))}
			f.probeErrs = []error{nil, errors.New("down")}
			f.watchErrs = []error{nil, errors.New("down")}
		},
		pauses: 2,
		want:   []string{"bookmark @5", "probe", "probe", "watch 5", "probe", "watch 5"},
	}, {
		name:   "the queue fails",
		script: func(f *fake) { time.AfterFunc(pause/20, func() { f.failures <- errors.New("contradiction") }) },
		want:   []string{"list", "commit 5 []", "caught up", "watch 5"},
	}, {
		name: "the queue fails after a list",
		script: func(f *fake) {
			f.streams = []stream{events(failure(expired()))} // and then a pause comes before the list
			time.AfterFunc(pause+pause/20, func() { f.failures <- errors.New("disk") })
		},
		pauses: 1,
		want:   []string{"list", "commit 5 []", "caught up", "watch 5"},
	}, {
		name:   "an object without a version",
		script: func(f *fake) { f.streams = []stream{closing(modified("a", ""))} },
		want:   []string{"update a@", "probe", "watch 5"},
	}} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.rv = "5"
				test.script(f)
				f.run(pause*test.pauses + pause/10) //nolint:durationcheck // a number of pauses
				f.want(slices.Concat([]string{"probe", "caught up", "watch " + f.options.Origin.RV}, test.want)...)
			})
		})
	}
}

// TestReflector_WatchIsRenewed checks that a watch that ends in time is renewed
// from where it was, at once and without asking anything else.
func TestReflector_WatchIsRenewed(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.rv = "5"
		f.streams = []stream{events(bookmark("7"))}
		f.run(10 * time.Minute)
		f.want("probe", "caught up", "watch 5", "bookmark @7", "watch 7")
		if len(f.handled) > 0 {
			t.Errorf("errors %v", f.handled)
		}
	})
}

// TestReflector_WatchWithoutVersion checks that a watch that begins with what
// exists does not move the version until it is past that, and that a list follows
// it, because the next one would not tell what has been deleted in between.
func TestReflector_WatchWithoutVersion(t *testing.T) {
	for _, rv := range []string{"", "0"} {
		inBubble(t, func(t *testing.T, f *fake) {
			f.rv = rv
			f.items = objects("b@3")
			f.streams = []stream{
				closing(added("a", "9"), added("b", "3")),
				closing(added("a", "9"), added("b", "3"), deleted("a", "12")),
			}
			f.run(2*pause + pause/10)
			list := []string{"list", "commit " + rv + " [b]", "caught up", "watch " + rv}
			f.want(slices.Concat([]string{"probe"}, list, []string{"add a@9", "add b@3"},
				list, []string{"add a@9", "add b@3", "delete a@12"}, list)...)
		})
	}
}

// TestReflector_WatchWithoutReplay checks what precedes a watch if the server is not
// known to tell what has happened since the last one, which ended in time.
func TestReflector_WatchWithoutReplay(t *testing.T) {
	for _, test := range []struct {
		name   string
		script func(f *fake)
		want   []string
	}{{
		name: "nothing has happened",
		want: []string{"probe", "watch 5"},
	}, {
		name:   "something has",
		script: func(f *fake) { time.AfterFunc(time.Minute, func() { f.set(func() { f.rv = "6" }) }) },
		want:   []string{"probe", "list", "commit 6 []", "caught up", "watch 6"},
	}, {
		name:   "it sends bookmarks",
		script: func(f *fake) { f.rv = "6"; f.options.Origin.RV = "6"; f.streams = []stream{events(bookmark("6"))} },
		want:   []string{"bookmark @6", "watch 6"},
	}, {
		name:   "it says what it has forgotten",
		script: func(f *fake) { f.remembers = false },
		want:   []string{"watch 5"},
	}} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.rv = "5"
				f.options.Origin.Replays, f.remembers = false, true
				if test.script != nil {
					test.script(f)
				}
				f.run(10*time.Minute + 2*pause)
				f.journal = f.journal[:min(len(f.journal), 3+len(test.want))] // the second watch may have ended, too
				f.want(slices.Concat([]string{"probe", "caught up", "watch " + f.options.Origin.RV}, test.want)...)
			})
		})
	}
}

// TestReflector_Unusable checks that what cannot be queued leads to a list and
// does not move the version.
func TestReflector_Unusable(t *testing.T) {
	table := &metav1.Table{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "Table"}}
	widget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
	gadget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Gadget"}}
	for _, test := range []struct {
		name     string
		expected runtime.Object
		event    watch.Event
		queueErr error
	}{
		{name: "wrong type", expected: &corev1.ConfigMap{}, event: watch.Event{Type: watch.Added, Object: &corev1.Secret{}}},
		{name: "wrong kind", expected: widget, event: watch.Event{Type: watch.Added, Object: gadget}},
		{name: "unstructured table", expected: &unstructured.Unstructured{}, event: watch.Event{Type: watch.Added, Object: &unstructured.Unstructured{
			Object: map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "Table", "metadata": map[string]any{"name": "a", "resourceVersion": "7"}},
		}}},
		{name: "table", event: watch.Event{Type: watch.Added, Object: table}},
		{name: "no metadata", event: watch.Event{Type: watch.Added, Object: &metav1.Status{}}},
		{name: "unknown event", event: watch.Event{Type: "NEWS", Object: object("a", "7")}},
		{name: "queue", event: modified("a", "7"), queueErr: errors.New("transform failed")},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.rv = "5"
				f.options.Expected = test.expected
				f.queueErr = test.queueErr
				f.streams = []stream{events(test.event)}
				stop := f.start()
				time.Sleep(pause / 2)
				if s := f.r.Status(); s.RV == "7" || !errors.Is(s.Err, reflector.ErrUnusable) {
					t.Errorf("status %+v", s)
				}
				f.set(func() { f.queueErr = nil })
				time.Sleep(pause)
				stop()
				f.want(slices.Concat(caughtUp, []string{"list", "commit 5 []", "caught up", "watch 5"})...)
			})
		})
	}
}

// TestReflector_SurvivesPanics checks client-go's behaviour when crashes are
// configured not to end the process.
func TestReflector_SurvivesPanics(t *testing.T) {
	utilruntime.ReallyCrash = false
	defer func() { utilruntime.ReallyCrash = true }()
	inBubble(t, func(t *testing.T, f *fake) {
		f.options.Origin = reflector.Origin{}
		broken := true
		f.lists = func(metav1.ListOptions) (runtime.Object, error) {
			if broken {
				broken = false
				panic("broken ListerWatcher")
			}
			return listOf("10"), nil
		}
		f.run(pause + pause/10)
		f.want("list", "list", "commit 10 []", "caught up", "watch 10")
	})
	inBubble(t, func(t *testing.T, f *fake) {
		f.rv = "5"
		f.options.ListerWatcher = &panicking{fake: f}
		f.run(pause + pause/10)
		f.want("probe", "caught up", "watch 5")
	})
}

// panicking panics when it is asked for the first watch.
type panicking struct {
	*fake
	once sync.Once
}

func (p *panicking) IsWatchListSemanticsUnSupported() bool { return true }

func (p *panicking) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	p.once.Do(func() { panic("broken ListerWatcher") })
	return p.fake.WatchWithContext(ctx, o)
}

// TestReflector_DefaultBackoff checks that pauses are those of client-go.
func TestReflector_DefaultBackoff(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.options.Backoff = nil
		f.probeErrs = repeat(errors.New("down"), 1000)
		stop := f.start()
		defer stop()
		var gaps []time.Duration
		last := time.Now()
		for seen := 1; len(gaps) < 8; time.Sleep(time.Millisecond) {
			if n := f.count("probe"); n > seen {
				seen = n
				gaps = append(gaps, time.Since(last))
				last = time.Now()
			}
		}
		for n, least := range []time.Duration{800 * time.Millisecond, 1600 * time.Millisecond, 3200 * time.Millisecond} {
			if gaps[n] < least-10*time.Millisecond || gaps[n] > 2*least+10*time.Millisecond {
				t.Errorf("pause %d took %s, want %s to twice that", n, gaps[n], least)
			}
		}
		if longest := slices.Max(gaps); longest < 20*time.Second || longest > 61*time.Second {
			t.Errorf("the longest pause took %s", longest)
		}
	})
}

// TestReflector_RetryAfter checks that a server is not asked again before it wants
// to be.
func TestReflector_RetryAfter(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.rv = "5"
		f.probeErrs = []error{apierrors.NewTooManyRequests("busy", 7)}
		f.watchErrs = []error{apierrors.NewTooManyRequests("busy", 9)}
		stop := f.start()
		defer stop()
		time.Sleep(7*time.Second - pause/2)
		f.want("probe")
		time.Sleep(9 * time.Second)
		f.want(append([]string{"probe"}, caughtUp...)...)
		time.Sleep(pause)
		f.want(append([]string{"probe"}, append(caughtUp, "watch 5")...)...)
	})
}

// TestReflector_WatchErrorHandler checks that the default handler can use what it
// is given.
func TestReflector_WatchErrorHandler(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.options.WatchErrorHandler = nil
		f.options.Expected, f.options.TypeDescription = nil, ""
		f.watchErrs = []error{expired()}
		f.run(pause / 10)
		if f.count("list") != 1 {
			t.Error("not listed")
		}
	})
}
