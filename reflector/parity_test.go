package reflector_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/utils/ptr"

	"github.com/warmcache/warmcache/reflector"
)

// storeRead is what a server says when it deletes an object that it cannot decode.
func storeRead() *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: 500, Reason: metav1.StatusReasonStoreReadError, Message: "corrupt object deleted",
	}}
}

// TestReflector_ErrorEvents checks what follows from an error that the server
// sends as an event.
func TestReflector_ErrorEvents(t *testing.T) {
	again := []string{"probe", "watch 6"}
	relist := []string{"list", "commit 6 []", "caught up", "watch 6"}
	for _, test := range []struct {
		name  string
		event watch.Event
		// status says that the event has one.
		status bool
		want   []string
	}{
		{"expired", failure(expired()), true, relist},
		{"gone", failure(apierrors.NewGone("gone")), true, relist},
		{"busy", failure(apierrors.NewTooManyRequests("busy", 1)), true, again},
		{"internal", failure(internal()), true, again},
		{"an object was deleted that cannot be decoded", failure(storeRead()), true, relist},
		{"not a status", watch.Event{Type: watch.Error, Object: object("a", "7")}, false, again},
		{"nothing", watch.Event{Type: watch.Error}, false, again},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.rv = "5"
				f.streams = []stream{events(modified("a", "6"), test.event)}
				stop := f.start()
				time.Sleep(pause / 2)
				f.set(func() { f.rv = "6" })
				err := f.r.Status().Err
				if _, plain := err.(*apierrors.StatusError); plain != test.status || err == nil { //nolint:errorlint // unwrapped is the point
					t.Errorf("the status says %T: %v", err, err)
				}
				time.Sleep(pause)
				stop()
				f.want(slices.Concat(caughtUp, []string{"update a@6"}, test.want)...)
				if len(f.handled) > 0 {
					t.Errorf("the watch error handler was told: %v", f.handled)
				}
			})
		})
	}
}

// TestReflector_LogsWhatHandlersAreNotTold checks that what cannot be used is
// reported where client-go reports it.
func TestReflector_LogsWhatHandlersAreNotTold(t *testing.T) {
	handlers := utilruntime.ErrorHandlers
	defer func() { utilruntime.ErrorHandlers = handlers }() //nolint:reassign // the variable is there to be set
	for name, event := range map[string]watch.Event{
		"object":   {Type: watch.Added, Object: &corev1.Secret{}},
		"bookmark": {Type: watch.Bookmark, Object: &corev1.Secret{}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				var reported []error
				utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{ //nolint:reassign // the variable is there to be set
					func(_ context.Context, err error, _ string, _ ...any) { reported = append(reported, err) },
				}
				f.rv = "5"
				f.streams = []stream{events(event)}
				f.run(pause / 10)
				if len(reported) != 1 || !errors.Is(reported[0], reflector.ErrUnusable) {
					t.Errorf("reported %v", reported)
				}
			})
		})
	}
}

// TestReflector_UselessBookmarks checks that a bookmark which cannot be understood
// neither ends the watch nor moves the version.
func TestReflector_UselessBookmarks(t *testing.T) {
	for name, obj := range map[string]runtime.Object{
		"no object":  nil,
		"wrong type": &corev1.Secret{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}},
		"no version": object("", ""),
	} {
		useless := watch.Event{Type: watch.Bookmark, Object: obj}
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.rv = "5"
				f.streams = []stream{events(useless, modified("a", "6"))}
				f.run(pause / 10)
				f.want(append(caughtUp, "update a@6")...)
				if b := f.r.Status().Bookmarks; b != nil {
					t.Errorf("bookmarks = %v", *b)
				}
			})
		})
		t.Run(name+", and no proof either", func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.streams = slices.Repeat([]stream{events(useless)}, 10)
				f.run(13 * time.Second)
				f.want("probe", "watch 5", "probe", "watch 5", "probe", "watch 5", "probe", "watch 5",
					"list", "commit 10 []", "caught up", "watch 10")
			})
		})
	}
	t.Run("of any type", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fake) {
			f.rv = "5"
			f.options.Expected = nil
			f.streams = []stream{events(watch.Event{Type: watch.Bookmark}, modified("a", "6"), watch.Event{Type: watch.Added})}
			f.run(pause / 10)
			f.want(append(caughtUp, "update a@6")...)
			if err := f.r.Status().Err; !errors.Is(err, reflector.ErrUnusable) {
				t.Errorf("an event without an object: %v", err)
			}
		})
	})
}

// TestReflector_RepeatedBookmark checks that a server which repeats what it said
// cannot keep a reflector resuming for ever.
func TestReflector_RepeatedBookmark(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.streams = slices.Repeat([]stream{closing(bookmark("6"))}, 9)
		f.run(pause / 10)
		want := []string{"probe", "watch 5", "bookmark @6"}
		for range 8 {
			want = append(want, "probe", "watch 6", "bookmark @6")
		}
		f.want(append(want, "list", "commit 10 []", "caught up", "watch 10")...)
	})
}

// TestReflector_LastEventCounts checks that the version is that of the last event,
// whatever came before it.
func TestReflector_LastEventCounts(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.rv = "5"
		f.streams = []stream{events(deleted("a", ""), modified("b", "55"), added("c", "32"))}
		f.run(pause / 10)
		f.want(append(caughtUp, "delete a@", "update b@55", "add c@32")...)
		if rv := f.r.Status().RV; rv != "32" {
			t.Errorf("RV = %s, want 32", rv)
		}
	})
}

// TestReflector_CannotWatch checks that what can be listed and not watched stays
// as fresh as lists make it.
func TestReflector_CannotWatch(t *testing.T) {
	forbidden := apierrors.NewForbidden(resource, "", errors.New("no watch"))
	lists := func(f *fake) int { return strings.Count(strings.Join(f.journal, "\n"), "commit") }
	for name, script := range map[string]func(f *fake){
		"forbidden": func(f *fake) { f.watchErrs = repeat(forbidden, 100) },
		"not found": func(f *fake) { f.watchErrs = repeat(apierrors.NewNotFound(resource, ""), 100) },
		"broken":    func(f *fake) { f.watchErrs = repeat(errors.New("proxies do not like it"), 100) },
		"cut":       func(f *fake) { f.streams = slices.Repeat([]stream{closing()}, 100) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.rv = "5"
				script(f)
				f.run(20*pause + pause/2)
				if lists(f) != 4 {
					t.Errorf("%d lists in 20 attempts, want 4", lists(f))
				}
			})
		})
	}
	t.Run("nor list", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fake) {
			f.rv = "5"
			f.watchErrs = repeat(forbidden, 1)
			f.probeErrs = append([]error{nil}, repeat(forbidden, 18)...)
			f.run(20*pause + pause/2)
			f.want(slices.Concat(caughtUp, slices.Repeat([]string{"probe"}, 19), []string{"watch 5"})...)
		})
	})
	for name, script := range map[string]func(f *fake){
		"but did in between": func(f *fake) { f.watchErrs = slices.Concat(repeat(forbidden, 4), []error{nil}, repeat(forbidden, 4)) },
		"but gets somewhere": func(f *fake) {
			f.streams = slices.Repeat([]stream{events(modified("a", "5"), failure(internal()))}, 8)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.rv = "5"
				script(f)
				f.run(8*pause + 10*time.Minute + pause/2)
				if lists(f) != 0 {
					t.Errorf("%d lists:\n%v", lists(f), f.journal)
				}
			})
		})
	}
	t.Run("because there is too much to do", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fake) {
			f.rv = "5"
			for range 6 {
				f.watchErrs = append(f.watchErrs, apierrors.NewTooManyRequests("busy", 1),
					apierrors.NewServiceUnavailable("later"), apierrors.NewTimeoutError("slow", 1))
			}
			f.run(18*pause + pause/2)
			f.want(append(caughtUp, slices.Repeat([]string{"watch 5"}, 18)...)...)
		})
	})
}

// TestReflector_RestoredBeforeAWatch checks that a server which is restored
// between two watches, the first of which ended in time, is found out.
func TestReflector_RestoredBeforeAWatch(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.rv = "5"
		f.watchErrs = []error{nil, syscall.ECONNREFUSED}
		time.AfterFunc(time.Minute, func() { f.set(func() { f.rv = "4" }) })
		f.run(11 * time.Minute)
		f.journal = f.journal[:min(9, len(f.journal))] // the last watch may have been renewed
		f.want(append(caughtUp, "watch 5", "probe", "list", "commit 4 []", "caught up", "watch 4")...)
	})
}

// holding is a proxy that holds back the answer to a watch until there is an event,
// or none.
type holding struct{ *fake }

func (h holding) IsWatchListSemanticsUnSupported() bool { return true }

func (h holding) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	<-time.After(2 * time.Second)
	return h.fake.WatchWithContext(ctx, o)
}

// TestReflector_VeryShortWatch checks that a watch is as long as its request was
// open.
func TestReflector_VeryShortWatch(t *testing.T) {
	status := func(lw func(f *fake) cache.ListerWatcher, d time.Duration) (err error) {
		inBubble(t, func(_ *testing.T, f *fake) {
			f.rv = "5"
			f.streams = []stream{closing()}
			f.options.ListerWatcher = lw(f)
			stop := f.start()
			time.Sleep(d)
			err = f.r.Status().Err
			stop()
			time.Sleep(2 * time.Second) // for a watch that was being opened
		})
		return err
	}
	var short *cache.VeryShortWatchError
	if err := status(func(f *fake) cache.ListerWatcher { return f }, pause/10); !errors.As(err, &short) || short.Name == "" {
		t.Errorf("error %v of a watch that ended at once", err)
	}
	after := func(s stream) func(f *fake) cache.ListerWatcher {
		return func(f *fake) cache.ListerWatcher { f.streams = append([]stream{s}, f.streams...); return f }
	}
	if err := status(after(stream{events: []watch.Event{bookmark("5")}, every: 2 * time.Second, closed: true}), 2*time.Second+pause/10); !errors.As(err, &short) {
		t.Errorf("error %v of a second watch that ended at once", err)
	}
	streamed := func(f *fake) cache.ListerWatcher {
		f.streaming, f.options.Origin = true, reflector.Origin{}
		f.streams = []stream{{events: []watch.Event{added("a", "1"), end("9")}, every: time.Second, closed: true}}
		return f
	}
	if err := status(streamed, 2*time.Second+pause/10); !errors.As(err, &short) {
		t.Errorf("error %v of a watch that ended right behind a streamed list", err)
	}
	if err := status(func(f *fake) cache.ListerWatcher { return holding{f} }, 2*time.Second+pause/10); err != nil {
		t.Errorf("error %v of a watch whose answer took 2 s", err)
	}
}

// TestReflector_WatchErrorHandlerHearsWhatClientGoTells checks both sides. What
// client-go tells is compared in TestReflector_AsClientGo.
func TestReflector_WatchErrorHandlerHearsWhatClientGoTells(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	busy := apierrors.NewTooManyRequests("busy", 1)
	forbidden := apierrors.NewForbidden(resource, "", errors.New("no"))
	for _, test := range []struct {
		name   string
		cold   bool
		script func(f *fake)
		want   int
	}{
		{"a list fails", true, func(f *fake) { f.listErrs = []error{internal()} }, 1},
		{"a list finds the server away", true, func(f *fake) { f.listErrs = []error{refused} }, 1},
		{"a list finds the server busy", true, func(f *fake) { f.listErrs = []error{busy} }, 1},
		{"a list of tables", true, func(f *fake) {
			f.lists = func(metav1.ListOptions) (runtime.Object, error) { f.lists = nil; return &metav1.Table{}, nil }
		}, 1},
		{"a streamed list finds the server busy", true, func(f *fake) { f.streaming, f.watchErrs = true, []error{busy} }, 0},
		{"a streamed list fails", true, func(f *fake) { f.streaming, f.watchErrs = true, []error{forbidden} }, 0},
		{"a watch is refused", false, func(f *fake) { f.watchErrs = []error{forbidden} }, 1},
		{"a watch finds the version expired", false, func(f *fake) { f.watchErrs = []error{expired()} }, 1},
		{"a watch finds the server away", false, func(f *fake) { f.watchErrs = []error{refused} }, 0},
		{"a watch finds the server busy", false, func(f *fake) { f.watchErrs = []error{busy} }, 0},
		{"a watch ends in an error", false, func(f *fake) { f.streams = []stream{events(failure(internal()))} }, 0},
		{"a watch expires", false, func(f *fake) { f.streams = []stream{events(failure(expired()))} }, 0},
		{"the server is restored", false, func(f *fake) { f.streams = []stream{closing(modified("a", "6"))} }, 0},
		{"a watch ends at once", false, func(f *fake) { f.streams = []stream{closing()} }, 0},
		{"an event cannot be used", false, func(f *fake) {
			f.streams = []stream{events(watch.Event{Type: watch.Added, Object: &corev1.Secret{}})}
		}, 0},
		{"the consumer fails", false, func(f *fake) {
			f.streams = []stream{events(failure(expired()))}
			time.AfterFunc(pause+pause/20, func() { f.failures <- errors.New("disk") })
		}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.rv = "5"
				if test.cold {
					f.options.Origin = reflector.Origin{}
				}
				test.script(f)
				f.run(pause + pause/2)
				if got := len(f.handled); got != test.want {
					t.Errorf("told %d times, want %d: %v", got, test.want, f.handled)
				}
			})
		})
	}
}

// TestReflector_WatchErrorHandlerGetsAReflector checks what a handler can ask.
func TestReflector_WatchErrorHandlerGetsAReflector(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		var log bytes.Buffer
		var heard []string
		f.options.Name = "owner configmaps"
		f.options.WatchErrorHandler = func(ctx context.Context, r *cache.Reflector, err error) {
			heard = append(heard, fmt.Sprintf("%s, %s, at %s: %v", r.Name(), r.TypeDescription(), r.LastSyncResourceVersion(), err))
			cache.DefaultWatchErrorHandler(ctx, r, expired())
			if ctx.Err() != nil {
				t.Error("the handler's context has ended")
			}
		}
		f.options.Origin = reflector.Origin{Replays: true}
		f.listErrs = []error{errors.New("down")}
		f.watchErrs = []error{errors.New("no"), nil, errors.New("never")}
		f.streams = []stream{closing(bookmark("12"))}
		f.r = reflector.New(f.options)
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(),
			textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log), textlogger.Verbosity(4)))))
		done := make(chan struct{})
		go func() { defer close(done); f.r.Run(ctx) }()
		time.Sleep(pause + pause/2)
		f.set(func() { f.rv = "12" })
		time.Sleep(pause)
		cancel()
		<-done
		want := []string{
			"owner configmaps, *v1.ConfigMap, at : listing *v1.ConfigMap: down",
			"owner configmaps, *v1.ConfigMap, at 10: no",
			"owner configmaps, *v1.ConfigMap, at 12: never",
		}
		if diff := cmp.Diff(want, heard); diff != "" {
			t.Errorf("heard (-want +got):\n%s", diff)
		}
		if n := strings.Count(log.String(), "Watch closed\" reflector=\"owner configmaps\""); n != 3 {
			t.Errorf("the default handler has logged %d times:\n%s", n, &log)
		}
		if strings.Contains(log.String(), "Caches populated") {
			t.Errorf("the handler's reflector logs as if it ran:\n%s", &log)
		}
	})
}

func unstructuredOf(apiVersion, kind string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": "a", "resourceVersion": "6"},
	}}
}

func metadataOf(apiVersion, kind string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiVersion, Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "6"},
	}
}

// TestReflector_Kinds checks which objects are those that were asked for.
func TestReflector_Kinds(t *testing.T) {
	for _, test := range []struct {
		name          string
		expected, got runtime.Object
		description   string
		ok            bool
	}{
		{"anything", nil, object("a", "6"), "<unspecified>", true},
		{"a type", &corev1.ConfigMap{}, object("a", "6"), "*v1.ConfigMap", true},
		{"another type", &corev1.Secret{}, object("a", "6"), "*v1.Secret", false},
		{"another form", &corev1.ConfigMap{}, unstructuredOf("v1", "ConfigMap"), "*v1.ConfigMap", false},
		{"a type with kind", &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}, object("a", "6"), "*v1.ConfigMap", true},
		{"unstructured", &unstructured.Unstructured{}, unstructuredOf("g/v1", "Widget"), "*unstructured.Unstructured", true},
		{"unstructured of the kind", unstructuredOf("g/v1", "Widget"), unstructuredOf("g/v1", "Widget"), "g/v1, Kind=Widget", true},
		{"unstructured of another kind", unstructuredOf("g/v1", "Widget"), unstructuredOf("g/v1", "Gadget"), "g/v1, Kind=Widget", false},
		{"unstructured of another version", unstructuredOf("g/v1", "Widget"), unstructuredOf("g/v2", "Widget"), "g/v1, Kind=Widget", false},
		{"metadata", &metav1.PartialObjectMetadata{}, metadataOf("g/v1", "Widget"), "*v1.PartialObjectMetadata", true},
		{"metadata of the kind", metadataOf("g/v1", "Widget"), metadataOf("g/v1", "Widget"), "*v1.PartialObjectMetadata", true},
		{"metadata of another kind", metadataOf("g/v1", "Widget"), metadataOf("g/v1", "Gadget"), "*v1.PartialObjectMetadata", false},
		{"metadata of its own kind", metadataOf("g/v1", "Widget"), metadataOf("meta.k8s.io/v1", "PartialObjectMetadata"), "*v1.PartialObjectMetadata", true},
		{"metadata without kind", metadataOf("g/v1", "Widget"), metadataOf("", ""), "*v1.PartialObjectMetadata", true},
		{"table", &unstructured.Unstructured{}, unstructuredOf("meta.k8s.io/v1", "Table"), "*unstructured.Unstructured", false},
		{"older table", &unstructured.Unstructured{}, unstructuredOf("meta.k8s.io/v1beta1", "Table"), "*unstructured.Unstructured", false},
		{"custom table", &unstructured.Unstructured{}, unstructuredOf("furniture/v1", "Table"), "*unstructured.Unstructured", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.rv = "5"
				f.options.Expected = test.expected
				f.options.WatchErrorHandler = func(_ context.Context, r *cache.Reflector, _ error) {
					if r.TypeDescription() != test.description {
						t.Errorf("description %q, want %q", r.TypeDescription(), test.description)
					}
				}
				f.watchErrs = []error{errors.New("once, for the handler")}
				f.streams = []stream{events(watch.Event{Type: watch.Added, Object: test.got})}
				f.run(pause + pause/10)
				s := f.r.Status()
				if test.ok && (s.RV != "6" || f.count("add") != 1) {
					t.Errorf("refused: %v", s.Err)
				}
				if !test.ok && (s.RV == "6" || f.count("add") != 0 || !errors.Is(s.Err, reflector.ErrUnusable)) {
					t.Errorf("accepted: %+v", s)
				}
			})
		})
	}
}

// TestReflector_KindsOfLists checks that lists are held to the same.
func TestReflector_KindsOfLists(t *testing.T) {
	tables := func(apiVersion, kind string) *unstructured.UnstructuredList {
		return &unstructured.UnstructuredList{Object: map[string]any{
			"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"resourceVersion": "9"},
		}}
	}
	for _, test := range []struct {
		name     string
		expected runtime.Object
		list     runtime.Object
		ok       bool
	}{
		{"metadata", metadataOf("g/v1", "Widget"), &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{*metadataOf("g/v1", "Widget")}}, true},
		{"metadata of another kind", metadataOf("g/v1", "Widget"), &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{*metadataOf("g/v1", "Gadget")}}, false},
		{"table", &unstructured.Unstructured{}, tables("meta.k8s.io/v1", "Table"), false},
		{"older table", &unstructured.Unstructured{}, tables("meta.k8s.io/v1beta1", "Table"), false},
		{"table whose kind is not said", &corev1.ConfigMap{}, &metav1.Table{}, false},
		{"list of a custom kind", &unstructured.Unstructured{}, tables("furniture/v1", "TableList"), true},
		{"nothing", &corev1.ConfigMap{}, nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.options.Origin = reflector.Origin{}
				f.options.Expected = test.expected
				f.lists = func(metav1.ListOptions) (runtime.Object, error) { return test.list, nil }
				f.run(pause / 10)
				if s := f.r.Status(); s.CaughtUp != test.ok || test.ok == errors.Is(s.Err, reflector.ErrUnusable) {
					t.Errorf("status %+v", s)
				}
			})
		})
	}
}

// TestReflector_Requests checks what the server is asked for.
func TestReflector_Requests(t *testing.T) {
	asked := func(t *testing.T, script func(f *fake)) (got []metav1.ListOptions) {
		inBubble(t, func(t *testing.T, f *fake) {
			script(f)
			f.run(pause / 10)
			for _, o := range f.asked {
				if seconds := ptr.Deref(o.TimeoutSeconds, 300); seconds != 3 && (seconds < 300 || seconds > 600) {
					t.Errorf("a watch asks for %d s", seconds)
				}
				if ptr.Deref(o.TimeoutSeconds, 0) != 3 {
					o.TimeoutSeconds = nil
				}
				got = append(got, o)
			}
		})
		return got
	}
	for _, test := range []struct {
		name   string
		script func(f *fake)
		want   []metav1.ListOptions
	}{
		{"list in pages", func(f *fake) { f.options.Origin = reflector.Origin{}; pages(f) }, []metav1.ListOptions{
			{Limit: 500},
			{Limit: 500, Continue: "2"},
			{Limit: 500, Continue: "3"},
			{ResourceVersion: "10", AllowWatchBookmarks: true},
		}},
		{"streamed list", func(f *fake) {
			f.options.Origin, f.streaming, f.streams = reflector.Origin{}, true, []stream{closing(end("9"), modified("a", "10"))}
		}, []metav1.ListOptions{
			{AllowWatchBookmarks: true, SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
			{Limit: 1, FieldSelector: "metadata.name=a"},
			{ResourceVersion: "10", AllowWatchBookmarks: true},
		}},
		{"resumed", func(f *fake) {}, []metav1.ListOptions{
			{Limit: 1},
			{ResourceVersion: "5", AllowWatchBookmarks: true, TimeoutSeconds: ptr.To[int64](3)},
		}},
		{"expired", func(f *fake) { f.streams = []stream{events(failure(expired()))} }, []metav1.ListOptions{
			{Limit: 1},
			{ResourceVersion: "5", AllowWatchBookmarks: true, TimeoutSeconds: ptr.To[int64](3)},
			{Limit: 500},
			{ResourceVersion: "10", AllowWatchBookmarks: true},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, asked(t, test.script)); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReflector_WatchTimeouts checks that informers that start together do not
// come back together.
func TestReflector_WatchTimeouts(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.rv = "5"
		f.run(24 * time.Hour)
		var seconds []int64
		for _, o := range f.asked {
			if o.TimeoutSeconds != nil {
				seconds = append(seconds, *o.TimeoutSeconds)
			}
		}
		if len(seconds) < 100 || slices.Min(seconds) < 300 || slices.Max(seconds) > 600 {
			t.Errorf("%d watches of %d to %d s, want 300 to 600", len(seconds), slices.Min(seconds), slices.Max(seconds))
		}
		if spread := slices.Max(seconds) - slices.Min(seconds); spread < 200 {
			t.Errorf("timeouts differ by no more than %d s", spread)
		}
	})
}

// TestReflector_StreamsListsIfItMay checks when a list is streamed.
func TestReflector_StreamsListsIfItMay(t *testing.T) {
	for _, test := range []struct {
		name            string
		gate, supported bool
		want            string
	}{
		{"gate off", false, true, "list"},
		{"gate on", true, true, "stream"},
		{"gate on, fake client", true, false, "list"},
	} {
		t.Run(test.name, func(t *testing.T) {
			featurestesting.SetFeatureDuringTest(t, features.WatchListClient, test.gate)
			inBubble(t, func(t *testing.T, f *fake) {
				f.options.Origin, f.streaming = reflector.Origin{}, test.supported
				f.run(pause / 10)
				if f.journal[0] != test.want {
					t.Errorf("the first request is a %s, want a %s", f.journal[0], test.want)
				}
			})
		})
	}
	t.Run("client that does not say", func(t *testing.T) {
		featurestesting.SetFeatureDuringTest(t, features.WatchListClient, true)
		inBubble(t, func(t *testing.T, f *fake) {
			f.options.Origin = reflector.Origin{}
			f.options.ListerWatcher = &cache.ListWatch{ListWithContextFunc: f.ListWithContext, WatchFuncWithContext: f.WatchWithContext}
			f.run(pause / 10)
			if f.journal[0] != "stream" {
				t.Errorf("the first request is a %s, want a stream", f.journal[0])
			}
		})
	})
}

// TestReflector_StreamedListWarning checks that the log says when a streamed list
// has stopped, and not when it only takes long.
func TestReflector_StreamedListWarning(t *testing.T) {
	warnings := func(t *testing.T, s stream, d time.Duration) int {
		var log bytes.Buffer
		inBubble(t, func(t *testing.T, f *fake) {
			f.options.Origin, f.streaming, f.streams = reflector.Origin{}, true, []stream{s}
			f.r = reflector.New(f.options)
			ctx, cancel := context.WithCancel(klog.NewContext(t.Context(),
				textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))))
			done := make(chan struct{})
			go func() { defer close(done); f.r.Run(ctx) }()
			time.Sleep(d)
			cancel()
			<-done
		})
		return strings.Count(log.String(), "still waiting for the end of the streamed list")
	}
	slow := stream{events: slices.Repeat([]watch.Event{added("a", "3")}, 20), every: 3 * time.Second}
	slow.events = append(slow.events, end("9"))
	for _, test := range []struct {
		name string
		s    stream
		d    time.Duration
		want int
	}{
		{"not yet", events(), 9 * time.Second, 0},
		{"nothing comes", events(), 29 * time.Second, 2},
		{"nothing more comes", events(added("a", "3")), 29 * time.Second, 2},
		{"it takes a minute", slow, 2 * time.Minute, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := warnings(t, test.s, test.d); got != test.want {
				t.Errorf("%d warnings, want %d", got, test.want)
			}
		})
	}
}

// TestReflector_ListedObjectsAreTheirOwn checks that an object which is kept does
// not keep the list that it came with.
func TestReflector_ListedObjectsAreTheirOwn(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		list := listOf("10", objects("a@1", "b@2")...)
		f.options.Origin = reflector.Origin{}
		f.lists = func(metav1.ListOptions) (runtime.Object, error) { return list, nil }
		kept := &keeping{fake: f}
		f.options.Queue = kept
		f.run(pause / 10)
		if len(kept.objects) != 2 || kept.objects[0] == any(&list.Items[0]) || kept.objects[1] == any(&list.Items[1]) {
			t.Errorf("kept %d objects that are part of the list", len(kept.objects))
		}
	})
}

// keeping is a queue that keeps what is listed.
type keeping struct {
	*fake
	objects []any
}

func (k *keeping) NewReplacement() reflector.Replacement {
	return keptList{k.fake.NewReplacement(), k}
}

type keptList struct {
	reflector.Replacement
	queue *keeping
}

func (l keptList) Add(obj any) error {
	l.queue.objects = append(l.queue.objects, obj)
	return l.Replacement.Add(obj)
}

// TestReflector_CustomBackoff checks the pauses that were asked for, and that they
// are the same for a watch at a server that is away or busy.
func TestReflector_CustomBackoff(t *testing.T) {
	for name, err := range map[string]error{
		"away": syscall.ECONNREFUSED, "busy": apierrors.NewTooManyRequests("busy", 1), "broken": internal(),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.rv = "5"
				f.options.Backoff = &wait.Backoff{Duration: 10 * time.Second, Factor: 2, Steps: 100, Cap: 60 * time.Second}
				var starts []time.Duration
				begin := time.Now()
				f.options.ListerWatcher = &noting{fake: f, note: func() { starts = append(starts, time.Since(begin)) }}
				f.watchErrs = repeat(err, 4)
				f.run(5 * time.Minute)
				want := []time.Duration{0, 10 * time.Second, 30 * time.Second, 70 * time.Second, 130 * time.Second}
				if diff := cmp.Diff(want, starts[:min(len(starts), 5)]); diff != "" {
					t.Errorf("watches (-want +got):\n%s", diff)
				}
				if f.count("list") > 0 {
					t.Error("listed")
				}
			})
		})
	}
}

// noting calls note with each watch.
type noting struct {
	*fake
	note func()
}

func (n *noting) IsWatchListSemanticsUnSupported() bool { return true }

func (n *noting) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	n.note()
	return n.fake.WatchWithContext(ctx, o)
}
