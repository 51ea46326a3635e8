package reflector_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/warmcache/warmcache/reflector"
)

// TestReflector_StreamedList checks a list that comes as the beginning of a watch.
func TestReflector_StreamedList(t *testing.T) {
	fallback := []string{"stream", "list", "commit 10 [p]", "caught up", "watch 10"}
	aborted := slices.Insert(slices.Clone(fallback), 1, "abort [a]")
	for _, test := range []struct {
		name   string
		script func(f *fake)
		pauses time.Duration
		want   []string
	}{{
		name: "and goes on as a watch",
		script: func(f *fake) {
			f.streams = []stream{events(added("a", "3"), added("b", "9"), end("9"), modified("a", "11"))}
		},
		want: []string{"stream", "commit 9 [a b]", "caught up", "update a@11"},
	}, {
		name: "with changes meanwhile",
		script: func(f *fake) {
			f.streams = []stream{events(added("a", "3"), added("b", "4"), modified("a", "6"), deleted("b", "7"), bookmark("8"), added("c", "9"), end("10"))}
		},
		want: []string{"stream", "commit 10 [a a c]", "caught up"},
	}, {
		name:   "refused",
		script: func(f *fake) { f.watchErrs = []error{apierrors.NewInvalid(kind, "", nil)} },
		want:   fallback,
	}, {
		name:   "forbidden, as it is a watch",
		script: func(f *fake) { f.watchErrs = []error{apierrors.NewForbidden(resource, "", errors.New("no watch"))} },
		want:   fallback,
	}, {
		name:   "ended early",
		script: func(f *fake) { f.streams = []stream{closing(added("a", "3"))} },
		want:   aborted,
	}, {
		name:   "ended in an error",
		script: func(f *fake) { f.streams = []stream{events(added("a", "3"), failure(internal()))} },
		want:   aborted,
	}, {
		name:   "with what cannot be used",
		script: func(f *fake) { f.streams = []stream{events(watch.Event{Type: watch.Added, Object: &corev1.Secret{}})} },
		want:   fallback,
	}, {
		name:   "with an unknown event",
		script: func(f *fake) { f.streams = []stream{events(watch.Event{Type: "NEWS", Object: object("a", "3")})} },
		want:   fallback,
	}, {
		name: "at a busy server",
		script: func(f *fake) {
			f.watchErrs = []error{apierrors.NewTooManyRequests("busy", 1)}
			f.streams = []stream{events(end("9"))}
		},
		pauses: 1,
		want:   []string{"stream", "stream", "commit 9 []", "caught up"},
	}, {
		name: "that the server becomes too busy for",
		script: func(f *fake) {
			f.streams = []stream{events(added("a", "3"), failure(apierrors.NewTooManyRequests("busy", 1))), events(end("9"))}
		},
		pauses: 1,
		want:   []string{"stream", "abort [a]", "stream", "commit 9 []", "caught up"},
	}, {
		name: "ended by another bookmark",
		script: func(f *fake) {
			other := end("9")
			other.Object.(*corev1.ConfigMap).Annotations[metav1.InitialEventsAnnotationKey] = "false"
			f.streams = []stream{events(added("a", "3"), other)}
		},
		pauses: 29,
		want:   []string{"stream", "abort [a]"},
	}, {
		name: "whose watch ends",
		script: func(f *fake) {
			f.streams = []stream{closing(added("a", "3"), end("9"), modified("a", "11"))}
			f.rv = "11"
		},
		want: []string{"stream", "commit 9 [a]", "caught up", "update a@11", "probe", "watch 11"},
	}, {
		name: "whose watch expires",
		script: func(f *fake) {
			f.streams = []stream{events(added("a", "3"), end("9"), failure(expired())), events(end("12"))}
		},
		pauses: 1,
		want:   []string{"stream", "commit 9 [a]", "caught up", "stream", "commit 12 []", "caught up"},
	}, {
		name:   "whose end is long in coming",
		script: func(f *fake) { f.streams = []stream{events(added("a", "3"))} },
		pauses: 29,
		want:   []string{"stream", "abort [a]"},
	}, {
		name:   "that never ends",
		script: func(f *fake) { f.streams = []stream{events(added("a", "3"))} },
		pauses: 30,
		want:   aborted,
	}, {
		name: "that has nothing to say for a minute, is not asked for again",
		script: func(f *fake) {
			f.streams = []stream{events(added("a", "3")), events(failure(expired()))}
			f.endless = true
		},
		pauses: 61,
		want: []string{
			"stream", "abort [a]", "list", "commit 10 [p]", "caught up", "watch 10",
			"list", "commit 10 [p]", "caught up", "watch 10",
		},
	}, {
		name:   "not supported by the client",
		script: func(f *fake) { f.streaming = false },
		want:   []string{"list", "commit 10 [p]", "caught up", "watch 10"},
	}} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.options.Origin = reflector.Origin{}
				f.streaming = true
				f.items = objects("p@1")
				test.script(f)
				f.run(pause*test.pauses + pause/10) //nolint:durationcheck // a number of pauses
				f.want(test.want...)
			})
		})
	}
}

// TestReflector_StreamStoppedBehindTheList checks that a watch left open by a list
// is closed when the reflector is stopped at that very moment.
func TestReflector_StreamStoppedBehindTheList(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.options.Origin = reflector.Origin{}
		f.streaming = true
		f.streams = []stream{events(end("9"))}
		f.onCaughtUp = func() { f.cancel() }
		stop := f.start()
		time.Sleep(time.Second)
		stop()
		f.want("stream", "commit 9 []", "caught up")
	})
}

// pages serves three pages at version 10, whatever the server's version is then.
func pages(f *fake) {
	f.lists = func(o metav1.ListOptions) (runtime.Object, error) {
		next := map[string]string{"": "2", "2": "3", "3": ""}[o.Continue]
		rv := map[string]string{"": "10", "2": "10", "3": "12"}[o.Continue]
		list := listOf(rv, objects("p"+o.Continue+"@1")...)
		list.Continue = next
		return list, nil
	}
}

func TestReflector_PagedList(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.options.Origin = reflector.Origin{}
		pages(f)
		f.run(pause / 10)
		f.want("list", "list2", "list3", "commit 10 [p p2 p3]", "caught up", "watch 10")
		if s := f.r.Status(); s.Lists != 1 || s.ServerRV != "10" || s.ListReason != "nothing is stored" {
			t.Errorf("status %+v", s)
		}
	})
}

func TestReflector_PagedListWithExpiredToken(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.options.Origin = reflector.Origin{}
		f.items = objects("a@1", "b@2")
		f.lists = func(o metav1.ListOptions) (runtime.Object, error) {
			switch {
			case o.Limit == 0:
				return listOf("11", f.items...), nil
			case o.Continue != "":
				return nil, expired()
			}
			list := listOf("10", f.items[:1]...)
			list.Continue = "2"
			return list, nil
		}
		f.run(pause / 10)
		f.want("list", "list2", "abort [a]", "list", "commit 11 [a b]", "caught up", "watch 11")
	})
}

// TestReflector_InterruptedList checks that a list that fails half way is aborted
// and tried again.
func TestReflector_InterruptedList(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.options.Origin = reflector.Origin{}
		pages(f)
		f.listErrs = []error{nil, errors.New("connection lost")}
		f.run(pause + pause/10)
		f.want("list", "list2", "abort [p]", "list", "list2", "list3", "commit 10 [p p2 p3]", "caught up", "watch 10")
	})
}

func TestReflector_UnusableList(t *testing.T) {
	table := &metav1.Table{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "Table"}}
	for name, list := range map[string]runtime.Object{
		"table":      table,
		"not a list": &corev1.ConfigMap{},
		"wrong type": &corev1.SecretList{Items: []corev1.Secret{{}}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.options.Origin = reflector.Origin{}
				f.lists = func(metav1.ListOptions) (runtime.Object, error) { return list, nil }
				f.run(2*pause + pause/10)
				f.want("list", "list", "list")
				if s := f.r.Status(); !errors.Is(s.Err, reflector.ErrUnusable) || s.CaughtUp {
					t.Errorf("status %+v", s)
				}
			})
		})
	}
	t.Run("queue", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fake) {
			f.options.Origin = reflector.Origin{}
			f.items = objects("a@1")
			f.queueErr = errors.New("transform failed")
			f.run(pause + pause/10)
			f.want("list", "list")
		})
	})
}

// TestReflector_BlankAnswers checks that an answer which says nothing is not taken
// for an empty collection, unless the server says as much as that of old.
func TestReflector_BlankAnswers(t *testing.T) {
	blank := func(metav1.ListOptions) (runtime.Object, error) { return &corev1.ConfigMapList{}, nil }
	for _, test := range []struct {
		name   string
		script func(f *fake)
		pauses time.Duration
		want   []string
		// ok says that nothing is wrong with them.
		ok bool
	}{{
		name:   "to a probe",
		script: func(f *fake) { f.rv = "" },
		pauses: 2,
		want:   []string{"probe", "probe", "probe"},
	}, {
		name:   "to a list",
		script: func(f *fake) { f.streams = []stream{events(failure(expired()))}; f.lists = blank },
		pauses: 1,
		want:   []string{"probe", "watch 5", "list", "list"},
	}, {
		name: "for a later page",
		script: func(f *fake) {
			f.options.Origin = reflector.Origin{}
			f.lists = func(o metav1.ListOptions) (runtime.Object, error) {
				if o.Continue != "" {
					return blank(o)
				}
				list := listOf("10", objects("a@1")...)
				list.Continue = "2"
				return list, nil
			}
		},
		pauses: 1,
		want:   []string{"list", "list2", "abort [a]", "list", "list2", "abort [a]"},
	}, {
		name: "after a list that had a version",
		script: func(f *fake) {
			f.options.Origin = reflector.Origin{}
			f.streams = []stream{closing()}
			f.onCaughtUp = func() { f.rv = "" }
		},
		pauses: 2,
		want:   []string{"list", "commit 10 []", "caught up", "watch 10", "probe", "probe"},
	}, {
		name:   "when nothing is known of the server",
		script: func(f *fake) { f.options.Origin = reflector.Origin{}; f.rv = "" },
		want:   []string{"list", "commit  []", "caught up", "watch "},
		ok:     true,
	}, {
		name: "of a server that gives no versions",
		script: func(f *fake) {
			f.rv, f.items = "", objects("a@7")
			f.streams = []stream{closing(deleted("a", "9"))}
			f.onCaughtUp = func() { f.items = nil }
		},
		pauses: 1,
		want: []string{
			"probe", "list", "commit  [a]", "caught up", "watch ", "delete a@9",
			"list", "commit  []", "caught up", "watch ",
		},
		ok: true,
	}} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				test.script(f)
				f.run(pause*test.pauses + pause/10) //nolint:durationcheck // a number of pauses
				f.want(test.want...)
				if err := f.r.Status().Err; errors.Is(err, reflector.ErrUnusable) == test.ok {
					t.Errorf("the status says %v", err)
				}
			})
		})
	}
}

// TestReflector_ListIsRetried checks that errors of a list do not fall back on
// anything else.
func TestReflector_ListIsRetried(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.options.Origin = reflector.Origin{}
		f.listErrs = []error{
			internal(), apierrors.NewTooManyRequests("busy", 1), apierrors.NewForbidden(resource, "", nil),
			apierrors.NewNotFound(resource, ""), errors.New("down"),
		}
		f.run(5*pause + pause/10)
		f.want(slices.Concat(slices.Repeat([]string{"list"}, 6), []string{"commit 10 []", "caught up", "watch 10"})...)
	})
}

func TestReflector_Status(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.probeErrs = []error{errors.New("down")}
		f.options.Cluster = constant("c1")
		f.options.Schema = constant("s1")
		f.streams = []stream{{events: []watch.Event{bookmark("12")}, every: pause}}
		stop := f.start()
		check := func(at string, want reflector.Status) {
			t.Helper()
			got := f.r.Status()
			if got.Contact.IsZero() != want.Contact.IsZero() || (got.Err == nil) != (want.Err == nil) {
				t.Errorf("%s: contact %v, err %v", at, got.Contact, got.Err)
			}
			got.Contact, got.Err, got.Bookmarks, got.Replays = want.Contact, want.Err, want.Bookmarks, want.Replays
			if got != want {
				t.Errorf("%s: status\n%+v\nwant\n%+v", at, got, want)
			}
		}
		time.Sleep(pause / 2)
		check("down", reflector.Status{Phase: reflector.PhaseProbing, Err: errors.New("down"), Cluster: "c1", Schema: "s1"})
		time.Sleep(pause)
		check("resuming", reflector.Status{
			Phase: reflector.PhaseResuming, Contact: time.Now(), ServerRV: "10", Watches: 1, Cluster: "c1", Schema: "s1",
		})
		time.Sleep(3 * pause)
		check("watching", reflector.Status{
			Phase: reflector.PhaseWatching, Contact: time.Now(), RV: "12", ServerRV: "10", CaughtUp: true, Watches: 2,
			Cluster: "c1", Schema: "s1",
		})
		stop()
		if got := f.r.Status().Phase; got != reflector.PhaseStopped {
			t.Errorf("phase %s after the stop", got)
		}
	})
}
