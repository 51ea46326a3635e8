package reflector_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/warmcache/warmcache/reflector"
)

// objectEvents are n modifications below the version of the probe.
func objectEvents(n int) []watch.Event {
	es := make([]watch.Event, n)
	for i := range es {
		es[i] = modified(fmt.Sprint("o", i), "6")
	}
	return es
}

func TestStartPolicy_String(t *testing.T) {
	for want, policy := range map[string]reflector.StartPolicy{
		"Confirmed": reflector.Confirmed, "Resumed": reflector.Resumed, "Stale(5s)": reflector.Stale(5 * time.Second),
		"Stale(1ns)": reflector.Stale(-1),
	} {
		if got := policy.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestStartPolicy_ConfirmedWaitsForTheProof(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.probeErrs = repeat(errors.New("down"), 3600)
		f.run(time.Hour)
		if f.count("show")+f.count("caught up")+f.count("list") > 0 {
			t.Error("shown without a server")
		}
	})
}

func TestStartPolicy_Resumed(t *testing.T) {
	for _, test := range []struct {
		name   string
		script func(f *fake)
		within time.Duration
		want   []string
	}{{
		name:   "after a quiet moment",
		within: 110 * time.Millisecond,
		want:   []string{"probe", "watch 5", "show"},
	}, {
		name:   "not before",
		within: 90 * time.Millisecond,
		want:   []string{"probe", "watch 5"},
	}, {
		name: "after the first burst",
		script: func(f *fake) {
			f.streams = []stream{{events: objectEvents(2), every: 90 * time.Millisecond}}
		},
		within: 290 * time.Millisecond,
		want:   []string{"probe", "watch 5", "update o0@6", "update o1@6", "show"},
	}, {
		name:   "not if the version has expired",
		script: func(f *fake) { f.streams = []stream{events(failure(expired()))} },
		within: 200 * time.Millisecond,
		want:   []string{"probe", "watch 5", "list", "commit 10 []", "caught up", "watch 10"},
	}, {
		name:   "nor if the watch is refused",
		script: func(f *fake) { f.watchErrs = []error{apierrors.NewTooManyRequests("busy", 1)} },
		within: 900 * time.Millisecond,
		want:   []string{"probe", "watch 5"},
	}, {
		name:   "the proof needs no second mark",
		script: func(f *fake) { f.streams = []stream{events(bookmark("10"))} },
		within: 200 * time.Millisecond,
		want:   []string{"probe", "watch 5", "bookmark @10", "caught up"},
	}, {
		name: "the proof follows",
		script: func(f *fake) {
			f.streams = []stream{{events: []watch.Event{bookmark("10")}, every: time.Second}}
		},
		within: 1100 * time.Millisecond,
		want:   []string{"probe", "watch 5", "show", "bookmark @10", "caught up"},
	}, {
		name:   "when the round is over at once",
		script: func(f *fake) { f.streams = []stream{closing()} },
		within: 50 * time.Millisecond,
		want:   []string{"probe", "watch 5", "show", "probe", "watch 5"},
	}} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.options.Policy = reflector.Resumed
				if test.script != nil {
					test.script(f)
				}
				f.run(test.within)
				f.want(test.want...)
			})
		})
	}
}

// TestStartPolicy_ResumedInABusyCollection checks that events without end do not
// keep the state from being shown.
func TestStartPolicy_ResumedInABusyCollection(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.options.Policy = reflector.Resumed
		f.streams = []stream{{events: objectEvents(100), every: 20 * time.Millisecond}}
		f.run(1200 * time.Millisecond)
		if f.count("show") != 1 {
			t.Error("not shown after a second of events")
		}
	})
}

func TestStartPolicy_Stale(t *testing.T) {
	down := errors.New("connection lost")
	denied := apierrors.NewForbidden(resource, "", errors.New("no"))
	const after = 5 * time.Second
	for _, test := range []struct {
		name   string
		script func(f *fake)
		// shown is when, or 0 for never within a minute.
		shown time.Duration
	}{{
		name:   "the server is down",
		script: func(f *fake) { f.probeErrs = repeat(down, 100) },
		shown:  after,
	}, {
		name:   "the server is up",
		script: func(f *fake) { f.streams = []stream{{events: []watch.Event{bookmark("10")}, every: 2 * time.Second}} },
	}, {
		name:   "the server is up but silent for longer",
		script: func(f *fake) { f.options.Policy = reflector.Stale(time.Second) },
	}, {
		name:   "the server says no",
		script: func(f *fake) { f.probeErrs = repeat(error(denied), 100) },
	}, {
		name: "the server answers once in between",
		script: func(f *fake) {
			f.probeErrs = append(append(repeat(down, 3), denied), repeat(down, 100)...)
		},
		shown: 3*pause + after,
	}, {
		name: "the server goes away after the first probe",
		script: func(f *fake) {
			f.probeErrs = append([]error{nil}, repeat(down, 100)...)
			f.watchErrs = []error{down}
		},
		shown: after,
	}, {
		name: "the version has expired and then the server goes away",
		script: func(f *fake) {
			f.streams = []stream{events(failure(expired()))}
			f.listErrs = repeat(down, 100)
		},
		shown: after,
	}, {
		name:   "nothing is stored",
		script: func(f *fake) { f.options.Origin = reflector.Origin{}; f.listErrs = repeat(down, 100) },
	}, {
		name: "the copy is of another cluster",
		script: func(f *fake) {
			f.options.Origin.Cluster = "c1"
			f.options.Cluster = constant("c2")
			f.listErrs = repeat(down, 100)
		},
	}} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.options.Policy = reflector.Stale(after)
				test.script(f)
				stop := f.start()
				defer stop()
				start := time.Now()
				for f.count("show") == 0 && time.Since(start) < time.Minute {
					time.Sleep(pause / 100)
				}
				got := time.Since(start).Truncate(pause)
				if test.shown == 0 && f.count("show") > 0 {
					t.Errorf("shown after %s", got)
				}
				if test.shown > 0 && got != test.shown {
					t.Errorf("shown after %s, want %s", got, test.shown)
				}
			})
		})
	}
}

func TestStartPolicy_StaleIsConfirmedLater(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.options.Policy = reflector.Stale(pause / 2)
		f.probeErrs = repeat(errors.New("down"), 3)
		f.streams = []stream{events(modified("a", "10"))}
		f.run(3*pause + pause/2)
		f.want("probe", "show", "probe", "probe", "probe", "watch 5", "update a@10", "caught up")
	})
}
