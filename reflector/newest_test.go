package reflector_test

import (
	"context"
	"errors"
	"slices"
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
		name:   "the server breaks when it is to select by name",
		script: func(f *fake) { f.probeErrs = []error{internal()} },
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

// TestReflector_Newest_WhileRunning_AsksForABookmark checks that the watch after a probe
// that left the newest object in doubt is one that brings a bookmark soon, and that it is
// the only one: there are servers that send none.
func TestReflector_Newest_WhileRunning_AsksForABookmark(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.streams = []stream{closing(modified("a", "9"), added("b", "10"))}
		f.onCaughtUp = func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.has, "b")
			f.rv = "12"
		}
		f.run(2*pause + 4*time.Second)
		f.want("probe", "watch 5", "update a@9", "add b@10", "caught up", "probe", "watch 10", "watch 10")
		if t.Failed() {
			return
		}
		after := f.asked[len(f.asked)-2:]
		if got := *after[0].TimeoutSeconds; got != 3 {
			t.Errorf("the watch after the probe lasts %d s, want 3", got)
		}
		if got := *after[1].TimeoutSeconds; got < 300 {
			t.Errorf("the watch after that lasts %d s, want 300 or more", got)
		}
	})
}

// TestReflector_Newest_ListSettlesTheDoubt checks that what a watch had to explain is no matter
// any more after a list.
func TestReflector_Newest_ListSettlesTheDoubt(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.options.Origin.Newest = reflector.ObjectRef{Key: "n", UID: "u", RV: "4"}
		f.streams = []stream{events(failure(expired())), events(bookmark("11"))}
		f.run(2 * time.Second)
		f.want("probe", "watch 5", "list", "commit 10 []", "caught up", "watch 10", "bookmark @11")
	})
}

// TestReflector_Newest_RefusedOnce checks that a server that does not select by name is not
// asked to again.
func TestReflector_Newest_RefusedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.options.Origin.Newest = reflector.ObjectRef{Key: "n", UID: "u", RV: "4"}
		f.probeErrs = []error{apierrors.NewBadRequest("no such field")}
		f.streams = []stream{closing(bookmark("10"))}
		f.run(2 * pause)
		f.want("probe", "probe", "watch 5", "bookmark @10", "caught up", "probe", "watch 10")
		var selectors []string
		for _, o := range f.asked {
			if o.Limit == 1 {
				selectors = append(selectors, o.FieldSelector)
			}
		}
		if want := []string{"metadata.name=n", "", ""}; !slices.Equal(selectors, want) {
			t.Errorf("the probes select %q, want %q", selectors, want)
		}
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
				f.options.Origin.Replays, f.remembers = false, true
				f.streams = []stream{events(test.events...)}
				f.run(6 * time.Second)
				f.want(test.want...)
				if got, want := f.r.Status().Replays, len(test.events) > 1; got != want || f.canaries != 1 {
					t.Errorf("replays = %v after %d questions, want %v after one", got, f.canaries, want)
				}
			})
		})
	}
}

// TestReflector_UnknownServer_Forgets checks that one which says that it has forgotten
// something is believed.
func TestReflector_UnknownServer_Forgets(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.options.Origin.Replays = false
		f.streams = []stream{events(modified("a", "11"))}
		f.run(time.Second)
		f.want("probe", "watch 5", "update a@11", "caught up")
		if !f.r.Status().Replays {
			t.Error("the next start does not know")
		}
	})
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
		{"other keys, and an older version of the object", "keys:a", "keys:b", of("u", "n", "3"), false},
		{"another UID, and the newest object is there", "uid", "other", of("u", "n", "4"), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.options.Origin.Cluster, f.options.Cluster = test.stored, constant(test.cluster)
				f.options.Origin.Newest = reflector.ObjectRef{Key: "n", UID: "u", RV: "4"}
				if test.has != nil {
					f.has["n"] = test.has
				} else {
					f.rv = "4" // which is reason enough to list
				}
				f.run(pause / 10)
				s := f.r.Status()
				if s.Foreign != test.foreign || (f.count("reset") == 1) != test.foreign || s.Cluster != test.cluster {
					t.Errorf("foreign %v, cluster %q, %d resets; want foreign %v", s.Foreign, s.Cluster, f.count("reset"), test.foreign)
				}
				if got := strings.Contains(s.ListReason, "another cluster"); got != test.foreign {
					t.Errorf("listed because %q, foreign %v", s.ListReason, test.foreign)
				}
			})
		})
	}
	t.Run("the server cannot be asked", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fake) {
			f.options.Origin.Cluster, f.options.Cluster = "keys:a", constant("keys:b")
			f.options.Origin.Newest = reflector.ObjectRef{Key: "n", UID: "u", RV: "4"}
			f.probeErrs = []error{errors.New("down")}
			f.run(2 * pause)
			if f.count("reset") != 1 {
				t.Error("the copy of another cluster was kept")
			}
		})
	})
}

// TestReflector_Newest_IsNotLookedForInEtcd checks that a server without a watch cache of the
// resource is not asked for one object, which would cost it as much as a list.
func TestReflector_Newest_IsNotLookedForInEtcd(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.options.Origin.Newest = reflector.ObjectRef{Key: "n", UID: "u", RV: "4"}
		f.options.Origin.NoBookmarks = true
		f.run(pause / 10)
		f.want("probe", "list", "commit 10 []", "caught up", "watch 10")
		if f.asked[0] != (metav1.ListOptions{Limit: 1}) {
			t.Errorf("asked for %+v", f.asked[0])
		}
	})
}

// TestReflector_ClusterByKeys_Alone checks that keys which have all been replaced are no
// other cluster if the newest object is there, whatever else leads to a list, or if nothing
// is known of it. Its objects are listed, and deletes are told.
func TestReflector_ClusterByKeys_Alone(t *testing.T) {
	newest := reflector.ObjectRef{Key: "n", UID: "u", RV: "4"}
	for name, script := range map[string]func(f *fake){
		"a small copy": func(f *fake) {
			f.options.Origin.Newest, f.has["n"] = newest, of("u", "n", "4")
			f.options.Origin.Clean, f.options.Origin.Bytes, f.options.ListBelow = true, 100, 1000
		},
		"the server was restored": func(f *fake) {
			f.options.Origin.Newest, f.has["n"], f.rv = newest, of("u", "n", "3"), "4"
		},
		"the newest object is not known": func(*fake) {},
		"the server does not select by name": func(f *fake) {
			f.options.Origin.Newest, f.probeErrs = newest, []error{apierrors.NewBadRequest("no such field")}
		},
		"the client selects something else": func(f *fake) {
			f.options.Origin.Newest, f.has["n"] = newest, of("w", "other", "3")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.options.Origin.Cluster, f.options.Cluster = "keys:a", constant("keys:b")
				script(f)
				f.run(pause / 10)
				if s := f.r.Status(); s.Foreign || f.count("reset") != 0 || s.Lists != 1 || s.Cluster != "keys:b" {
					t.Errorf("foreign %v, %d lists because %q, cluster %q; want one list", s.Foreign, s.Lists, s.ListReason, s.Cluster)
				}
			})
		})
	}
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

// TestReflector_Newest_OddName checks that a name is not taken for a part of a selector: the
// names of roles may have almost any character.
func TestReflector_Newest_OddName(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		const name = `a,metadata.name=b\`
		f.options.Origin.Newest = reflector.ObjectRef{Key: name, UID: "u", RV: "4"}
		f.has[name] = of("u", name, "4")
		f.streams = []stream{events(bookmark("10"))}
		f.run(2 * time.Second)
		f.want("probe", "watch 5", "bookmark @10", "caught up")
	})
}

// TestReflector_ClusterWhileRunning checks that what is stored after a list is said to be of
// the cluster that was listed, when another one has come behind the same address.
func TestReflector_ClusterWhileRunning(t *testing.T) {
	for _, test := range []struct {
		name          string
		before, after []string // answers
		want, reason  string
	}{
		{"another one", []string{"a"}, []string{"b"}, "b", "another cluster than before"},
		{"the same", []string{"a"}, []string{"a"}, "a", "was restored"},
		{"by keys", []string{"keys:a,b"}, []string{"keys:c"}, "keys:c", "another cluster than before"},
		{"a key was replaced", []string{"keys:a,b"}, []string{"keys:b,c"}, "keys:b,c", "was restored"},
		{"not known any more", []string{"a"}, []string{""}, "a", "was restored"},
		{"the first answers fail", []string{"a"}, []string{"fails", "fails", "b"}, "b", "another cluster than before"},
		{"all answers fail", []string{"a"}, []string{"fails", "fails", "fails", "b"}, "a", "was restored"},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				answers := slices.Concat(test.before, test.after)
				f.options.Origin.RV = ""
				f.options.Cluster = func(context.Context) (id string, err error) {
					if len(answers) == 0 {
						return "", errors.New("nobody is to ask any more")
					}
					if id, answers = answers[0], answers[1:]; id == "fails" {
						return "", errors.New(id)
					}
					return id, nil
				}
				f.streams = []stream{closing(bookmark("10"))}
				f.onCaughtUp = func() {
					f.mu.Lock()
					defer f.mu.Unlock()
					f.rv = "8"
				}
				f.run(5 * pause)
				s := f.r.Status()
				if s.Cluster != test.want || !strings.Contains(s.ListReason, test.reason) || s.Lists != 2 || s.Foreign {
					t.Errorf("cluster %q, listed %d times because %q, foreign %v; want %q, 2, %q",
						s.Cluster, s.Lists, s.ListReason, s.Foreign, test.want, test.reason)
				}
			})
		})
	}
}

// TestReflector_Newest_OfAnotherAttempt checks that an object which has gone between two
// attempts to list is not missed later.
func TestReflector_Newest_OfAnotherAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.options.Origin, f.streaming = reflector.Origin{}, true
		f.items, f.has["a"] = []runtime.Object{object("a", "8")}, object("a", "8")
		f.streams = []stream{closing(added("a", "8"), added("n", "9")), closing(bookmark("10"))}
		f.onCaughtUp = func() { f.set(func() { delete(f.has, "n") }) }
		f.run(4 * pause)
		f.want("stream", "abort [a n]", "list", "commit 10 [a]", "caught up", "watch 10", "bookmark @10", "probe", "watch 10")
	})
}
