package reflector_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/warmcache/warmcache/reflector"
)

// of returns object with a UID.
func of(uid types.UID, name, rv string) runtime.Object {
	obj := object(name, rv)
	obj.UID = uid
	return obj
}

// TestReflector_Newest checks what follows from what has become of the newest object,
// at a start from version 5 of a server that is at 10.
func TestReflector_Newest(t *testing.T) {
	const history = "the server's history is not the one"
	rejects := func(f *fake) { f.probeErrs = []error{apierrors.NewBadRequest("no such field")} }
	for _, test := range []struct {
		name   string
		has    runtime.Object
		script func(f *fake)
		want   []string
		reason string
	}{{
		name: "the same",
		has:  of("u", "n", "4"),
		want: []string{"probe", "watch 5", "bookmark @10", "caught up"},
	}, {
		name:   "an older version",
		has:    of("u", "n", "3"),
		want:   []string{"probe", "list", "commit 10 []", "caught up", "watch 10", "bookmark @10"},
		reason: history,
	}, {
		name:   "another object that would have been seen",
		has:    of("v", "n", "5"),
		want:   []string{"probe", "list", "commit 10 []", "caught up", "watch 10", "bookmark @10"},
		reason: history,
	}, {
		name:   "changed, and no event says so",
		has:    of("u", "n", "7"),
		want:   []string{"probe", "watch 5", "bookmark @10", "list", "commit 10 []", "caught up", "watch 10"},
		reason: "n was changed, and no event says so",
	}, {
		name:   "not there, and no event says so",
		want:   []string{"probe", "watch 5", "bookmark @10", "list", "commit 10 []", "caught up", "watch 10"},
		reason: "n is not there, and no event says so",
	}, {
		name:   "not there, and events of others",
		script: func(f *fake) { f.streams = []stream{events(modified("a", "6"), deleted("b", "10"))} },
		want:   []string{"probe", "watch 5", "update a@6", "delete b@10", "list", "commit 10 []", "caught up", "watch 10"},
		reason: "n is not there",
	}, {
		name: "changed, as an event says",
		has:  of("u", "n", "7"),
		script: func(f *fake) {
			f.streams = []stream{events(modified("a", "6"), modified("n", "7"), modified("a", "10"))}
		},
		want: []string{"probe", "watch 5", "update a@6", "update n@7", "update a@10", "caught up"},
	}, {
		name:   "deleted, as an event says",
		script: func(f *fake) { f.streams = []stream{events(modified("a", "6"), deleted("n", "7"), bookmark("10"))} },
		want:   []string{"probe", "watch 5", "update a@6", "delete n@7", "bookmark @10", "caught up"},
	}, {
		name:   "taken by another object, as events say",
		has:    of("v", "n", "8"),
		script: func(f *fake) { f.streams = []stream{events(deleted("n", "7"), added("n", "8"), bookmark("10"))} },
		want:   []string{"probe", "watch 5", "delete n@7", "add n@8", "bookmark @10", "caught up"},
	}, {
		name:   "not there on a server at the same version",
		script: func(f *fake) { f.rv = "5" },
		want:   []string{"probe", "list", "commit 5 []", "caught up", "watch 5", "bookmark @10"},
		reason: history,
	}, {
		name:   "the server does not select by name",
		script: func(f *fake) { rejects(f) },
		want:   []string{"probe", "probe", "watch 5", "bookmark @10", "caught up"},
	}, {
		name:   "the client selects something else",
		script: func(f *fake) { f.has["n"] = of("w", "other", "3") },
		want:   []string{"probe", "watch 5", "bookmark @10", "caught up"},
	}} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.options.Origin.Newest = reflector.ObjectRef{Key: "n", UID: "u", RV: "4"}
				if test.has != nil {
					f.has["n"] = test.has
				}
				f.streams = []stream{events(bookmark("10"))}
				if test.script != nil {
					test.script(f)
				}
				f.run(2 * time.Second)
				f.want(test.want...)
				if got := f.r.Status().ListReason; (got != "") != (test.reason != "") || !strings.Contains(got, test.reason) {
					t.Errorf("listed because %q, want %q", got, test.reason)
				}
				if got := f.asked[0].FieldSelector; got != "metadata.name=n" {
					t.Errorf("the first probe selects %q", got)
				}
			})
		})
	}
}

// TestReflector_Newest_DoubtIsNotShown checks that the state is not shown, also where the
// policy needs no proof, while something speaks against it.
func TestReflector_Newest_DoubtIsNotShown(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.options.Policy = reflector.Resumed
		f.options.Origin.Newest = reflector.ObjectRef{Key: "n", UID: "u", RV: "4"}
		f.streams = []stream{{events: []watch.Event{bookmark("10")}, every: time.Second}}
		f.run(2 * time.Second)
		f.want("probe", "watch 5", "bookmark @10", "list", "commit 10 []", "caught up", "watch 10")
	})
}

// TestReflector_Newest_WhileRunning checks that a server which was restored while it was
// out of reach, and has passed the version that was read, is recognised.
func TestReflector_Newest_WhileRunning(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.streams = []stream{closing(modified("a", "9"), added("b", "10")), events(bookmark("12"))}
		f.onCaughtUp = func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.has, "b")
			f.rv = "12"
		}
		f.run(2 * pause)
		f.want("probe", "watch 5", "update a@9", "add b@10", "caught up",
			"probe", "watch 10", "bookmark @12", "list", "commit 12 []", "caught up", "watch 12")
	})
}

// TestReflector_Newest_IsWhatWasSeen checks what the next start is told.
func TestReflector_Newest_IsWhatWasSeen(t *testing.T) {
	newest := func(t *testing.T, script func(f *fake)) (ref reflector.ObjectRef) {
		inBubble(t, func(t *testing.T, f *fake) {
			f.options.Origin.Newest = reflector.ObjectRef{Key: "n", UID: "u", RV: "4"}
			f.has["n"] = of("u", "n", "4")
			script(f)
			f.run(pause / 10)
			ref = f.r.Status().Newest
		})
		return ref
	}
	lists := func(items ...string) func(f *fake) {
		return func(f *fake) { f.options.Origin.RV, f.items = "", objects(items...) }
	}
	watches := func(es ...watch.Event) func(f *fake) {
		return func(f *fake) { f.streams = []stream{events(es...)} }
	}
	for name, test := range map[string]struct {
		script func(f *fake)
		want   reflector.ObjectRef
	}{
		"nothing happens":             {watches(), reflector.ObjectRef{Key: "n", UID: "u", RV: "4"}},
		"changed":                     {watches(modified("a", "6"), modified("b", "7")), reflector.ObjectRef{Key: "b", RV: "7"}},
		"another one is deleted":      {watches(modified("a", "6"), deleted("b", "7")), reflector.ObjectRef{Key: "a", RV: "6"}},
		"deleted":                     {watches(deleted("n", "6")), reflector.ObjectRef{}},
		"listed":                      {lists("a@7", "b@9", "c@8"), reflector.ObjectRef{Key: "b", RV: "9"}},
		"a list without it":           {lists(), reflector.ObjectRef{}},
		"versions cannot be compared": {lists("a@x"), reflector.ObjectRef{Key: "a", RV: "x"}},
		"objects without a version":   {lists("a@"), reflector.ObjectRef{}},
		"streamed, changed on the way": {func(f *fake) {
			f.options.Origin.RV, f.streaming = "", true
			f.streams = []stream{events(added("a", "7"), added("b", "9"), deleted("b", "10"), end("10"))}
		}, reflector.ObjectRef{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := newest(t, test.script); got != test.want {
				t.Errorf("newest is %+v, want %+v", got, test.want)
			}
		})
	}
}

// TestReflector_UnknownServer checks that events prove nothing of a server that has
// never sent a bookmark: it may accept any version and forget the changes since.
func TestReflector_UnknownServer(t *testing.T) {
	for _, test := range []struct {
		name   string
		events []watch.Event
		want   []string
	}{
		{"no bookmark", []watch.Event{modified("a", "11")}, []string{"probe", "watch 5", "update a@11", "list", "commit 10 []", "caught up", "watch 10"}},
		{"a bookmark", []watch.Event{modified("a", "9"), bookmark("10")}, []string{"probe", "watch 5", "update a@9", "bookmark @10", "caught up", "watch 10"}},
		{"an event after a bookmark", []watch.Event{bookmark("9"), modified("a", "10")}, []string{"probe", "watch 5", "bookmark @9", "update a@10", "caught up", "watch 10"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.options.Origin.Replays = false
				f.streams = []stream{events(test.events...)}
				f.run(4 * time.Second)
				f.want(test.want...)
				if got, want := f.r.Status().Replays, len(test.events) > 1; got != want {
					t.Errorf("replays = %v, want %v", got, want)
				}
			})
		})
	}
}

// TestReflector_ClusterByKeys checks the identity of a cluster for those who may not read
// more than the keys of its tokens.
func TestReflector_ClusterByKeys(t *testing.T) {
	for _, test := range []struct {
		name            string
		stored, cluster string
		has             runtime.Object
		foreign         bool
	}{
		{"the same key", "keys:a", "keys:a", nil, false},
		{"a key was added", "keys:a", "keys:a,b", nil, false},
		{"a key was removed", "keys:a,b", "keys:b", nil, false},
		{"other keys", "keys:a,b", "keys:c,d", nil, true},
		{"other keys, and another object of the name", "keys:a", "keys:b", of("v", "n", "4"), true},
		{"other keys, and the newest object is there", "keys:a", "keys:b", of("u", "n", "7"), false},
		{"keys cannot be read any more", "keys:a", "", nil, false},
		{"more can be read now", "keys:a", "uid", nil, false},
		{"less can be read now", "uid", "keys:a", nil, false},
		{"another UID, and the newest object is there", "uid", "other", of("u", "n", "4"), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.options.Origin.Cluster, f.options.Cluster = test.stored, constant(test.cluster)
				f.options.Origin.Newest = reflector.ObjectRef{Key: "n", UID: "u", RV: "4"}
				if test.has != nil {
					f.has["n"] = test.has
				}
				f.run(pause / 10)
				s := f.r.Status()
				if s.Foreign != test.foreign || (f.count("reset") == 1) != test.foreign || s.Cluster != test.cluster {
					t.Errorf("foreign %v, cluster %q, %d resets; want foreign %v", s.Foreign, s.Cluster, f.count("reset"), test.foreign)
				}
			})
		})
	}
	t.Run("the server cannot be asked", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fake) {
			f.options.Origin.Cluster, f.options.Cluster = "keys:a", constant("keys:b")
			f.probeErrs = []error{errors.New("down")}
			f.run(2 * pause)
			if f.count("reset") != 1 {
				t.Error("the copy of another cluster was kept")
			}
		})
	})
}

// TestReflector_Newest_Namespaced checks how an object is selected.
func TestReflector_Newest_Namespaced(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.options.Origin.Newest = reflector.ObjectRef{Key: "ns/n", UID: "u", RV: "4"}
		f.run(pause / 10)
		want := metav1.ListOptions{Limit: 1, FieldSelector: "metadata.name=n,metadata.namespace=ns"}
		if f.asked[0] != want {
			t.Errorf("asked for %+v, want %+v", f.asked[0], want)
		}
	})
}
