package reflector_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/warmcache/warmcache/reflector"
)

// sparse is a fake whose metadata and single objects can be read.
type sparse struct {
	f *fake
	// metadata are the pages; pageRV is the version of all but the first.
	metadata [][]runtime.Object
	pageRV   string
	errs     []error
	// current are the objects as they can be read; stored is what is stored.
	current map[string]runtime.Object
	stored  []string
	// objects and bytes are the size of what is stored.
	objects, bytes int64
	// broken makes reading what is stored fail.
	broken bool

	mu sync.Mutex
	// read are the objects that were.
	read []string
}

// newSparse makes a server at version 10 that has forgotten the version 5 of the stored
// copy, which has 100 objects of 100 KB, of them a@1 and b@2.
func newSparse(f *fake) *sparse {
	s := &sparse{
		f: f, current: map[string]runtime.Object{}, stored: []string{"a@1", "b@2"},
		pageRV: "10", objects: 100, bytes: 100 * 100_000,
	}
	f.streams = []stream{events(failure(expired()))}
	f.options.Sparse = &reflector.Sparse{
		Metadata: s, Get: s.get, Stored: s.refs,
		Size: func() (int64, int64) { return s.objects, s.bytes },
	}
	return s
}

func (s *sparse) List(_ context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	s.f.note("metadata%s", o.Continue)
	if err := s.f.take(&s.errs); err != nil {
		return nil, err
	}
	page := 0
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "10"}}
	if o.Continue != "" {
		_, _ = fmt.Sscan(o.Continue, &page)
		list.ResourceVersion = s.pageRV
	}
	if page+1 < len(s.metadata) {
		list.Continue = fmt.Sprint(page + 1)
	}
	if len(s.metadata) > 0 {
		for _, obj := range s.metadata[page] {
			m := obj.(metav1.Object)
			list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Name: m.GetName(), UID: m.GetUID(), ResourceVersion: m.GetResourceVersion(), Annotations: m.GetAnnotations(),
			}})
		}
	}
	return list, nil
}

func (s *sparse) get(_ context.Context, _, name string) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read = append(s.read, name)
	if obj := s.current[name]; obj != nil {
		return obj, nil
	}
	return nil, apierrors.NewNotFound(resource, name)
}

func (s *sparse) refs(keys []string) ([]reflector.ObjectRef, error) {
	if s.broken {
		return nil, errors.New("broken")
	}
	refs := make([]reflector.ObjectRef, len(keys))
	for i, key := range keys {
		for _, stored := range s.stored {
			if name, rv, _ := strings.Cut(stored, "@"); name == key {
				refs[i] = reflector.ObjectRef{Key: key, RV: rv}
			}
		}
	}
	return refs, nil
}

func TestReflector_Sparse(t *testing.T) {
	const full = "commit 10 [x]"
	many := make([]string, 60)
	for i := range many {
		many[i] = fmt.Sprintf("n%d@7", i)
	}
	for _, test := range []struct {
		name   string
		listed []string
		script func(s *sparse)
		want   []string
		reads  []string
	}{{
		name:   "what differs is read",
		listed: []string{"a@1", "b@8", "c@9"},
		script: func(s *sparse) { s.current["b"], s.current["c"] = object("b", "8"), object("c", "9") },
		want:   []string{"metadata", "commit 10 [=a@1 b c]"},
		reads:  []string{"b", "c"},
	}, {
		name:   "nothing differs",
		listed: []string{"a@1", "b@2"},
		want:   []string{"metadata", "commit 10 [=a@1 =b@2]"},
	}, {
		name: "pages",
		script: func(s *sparse) {
			s.metadata = [][]runtime.Object{objects("a@1"), objects("b@2")}
		},
		want: []string{"metadata", "metadata1", "commit 10 [=a@1 =b@2]"},
	}, {
		name: "another object of the same version",
		script: func(s *sparse) {
			s.metadata, s.current["a"] = [][]runtime.Object{{of("v", "a", "1")}}, of("v", "a", "1")
		},
		want:  []string{"metadata", "commit 10 [a]"},
		reads: []string{"a"},
	}, {
		name:   "objects without a version",
		listed: []string{"a@"},
		script: func(s *sparse) { s.stored, s.current["a"] = []string{"a@"}, object("a", "") },
		want:   []string{"metadata", "commit 10 [a]"},
		reads:  []string{"a"},
	}, {
		name:   "little of much has changed",
		listed: append([]string{"a@1"}, many...),
		script: func(s *sparse) {
			s.objects, s.bytes = 10_000, 10_000*100_000
			for _, obj := range objects(many...) {
				s.current[obj.(metav1.Object).GetName()] = obj
			}
		},
		want:  []string{"metadata", "commit 10 [=a@1 " + strings.ReplaceAll(strings.Join(many, " "), "@7", "") + "]"},
		reads: slices.Sorted(slices.Values(strings.Split(strings.ReplaceAll(strings.Join(many, " "), "@7", ""), " "))),
	}, {
		name: "metadata takes so much that few bytes are saved",
		script: func(s *sparse) {
			s.objects, s.bytes = 12, 12*100_000
			obj := object("a", "1")
			obj.Annotations = map[string]string{"large": strings.Repeat("x", 22_000)}
			s.metadata = [][]runtime.Object{{obj}}
		},
		want: []string{"metadata", "list", full},
	}, {
		name: "pages of different versions",
		script: func(s *sparse) {
			s.metadata, s.pageRV = [][]runtime.Object{objects("a@1"), objects("b@2")}, "11"
		},
		want: []string{"metadata", "metadata1", "abort [=a@1]", "list", full},
	}, {
		name:   "an object that is deleted meanwhile",
		listed: []string{"a@1", "b@8"},
		want:   []string{"metadata", "list", full},
		reads:  []string{"b"},
	}, {
		name:   "a client that returns nothing",
		listed: []string{"a@1", "b@8"},
		script: func(s *sparse) { s.current["b"] = (*corev1.ConfigMap)(nil) },
		want:   []string{"metadata", "list", full},
		reads:  []string{"b"},
	}, {
		name:   "more has changed than is worth reading one by one",
		listed: append([]string{"a@1"}, many...),
		want:   []string{"metadata", "list", full},
	}, {
		name:   "small objects",
		listed: []string{"a@1"},
		script: func(s *sparse) { s.objects, s.bytes = 1<<20, 30<<20 },
		want:   []string{"metadata", "list", full},
	}, {
		name:   "few bytes to save",
		listed: []string{"a@1"},
		script: func(s *sparse) { s.bytes, s.objects = 1<<20, 1 },
		want:   []string{"list", full},
	}, {
		name: "large metadata",
		script: func(s *sparse) {
			obj := object("a", "1")
			obj.Annotations = map[string]string{"large": strings.Repeat("x", 30_000)}
			s.metadata = [][]runtime.Object{{obj}}
		},
		want: []string{"metadata", "list", full},
	}, {
		name:   "what is stored cannot be read",
		listed: []string{"a@1"},
		script: func(s *sparse) { s.broken = true },
		want:   []string{"metadata", "list", full},
	}, {
		name:   "the server refuses",
		listed: []string{"a@1"},
		script: func(s *sparse) { s.errs = []error{apierrors.NewForbidden(resource, "", errors.New("no"))} },
		want:   []string{"metadata", "list", full},
	}, {
		name:   "the server is busy",
		listed: []string{"a@1", "b@2"},
		script: func(s *sparse) { s.errs = []error{apierrors.NewTooManyRequests("busy", 1)} },
		want:   []string{"metadata", "metadata", "commit 10 [=a@1 =b@2]"},
	}} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				s := newSparse(f)
				f.items = objects("x@3")
				s.metadata = [][]runtime.Object{objects(test.listed...)}
				if test.script != nil {
					test.script(s)
				}
				f.run(2 * pause)
				f.want(slices.Concat([]string{"probe", "watch 5"}, test.want, []string{"caught up", "watch 10"})...)
				if slices.Sort(s.read); !slices.Equal(s.read, test.reads) {
					t.Errorf("read %v, want %v", s.read, test.reads)
				}
				sparseLists := 0
				if test.want[len(test.want)-1] != full {
					sparseLists = 1
				}
				if got := f.r.Status(); got.SparseLists != sparseLists || got.Lists != 1 {
					t.Errorf("%d of %d lists are sparse, want %d of 1", got.SparseLists, got.Lists, sparseLists)
				}
			})
		})
	}
}

// TestReflector_Sparse_OnlyForWhatIsForgotten checks that equal versions are taken for equal
// objects only of a server that merely has forgotten what happened since.
func TestReflector_Sparse_OnlyForWhatIsForgotten(t *testing.T) {
	for name, script := range map[string]func(f *fake){
		"nothing is stored":    func(f *fake) { f.options.Origin = reflector.Origin{} },
		"the schema changed":   func(f *fake) { f.options.Origin.Schema, f.options.Schema = "s1", constant("s2") },
		"another cluster":      func(f *fake) { f.options.Origin.Cluster, f.options.Cluster = "c1", constant("c2") },
		"the server went back": func(f *fake) { f.rv = "4" },
		"the consumer failed":  func(f *fake) { f.failures <- errors.New("broken") },
		"the newest object has gone, or the change was forgotten": func(f *fake) {
			f.options.Origin.Newest = reflector.ObjectRef{Key: "n", UID: "u", RV: "4"}
		},
		"it failed after the server had forgotten": func(f *fake) {
			f.probeErrs = []error{nil}
			f.options.Origin.RV = "10"
			f.streams = []stream{closing(failure(expired()))}
			f.failures <- errors.New("broken")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				newSparse(f)
				script(f)
				f.run(pause / 10)
				if f.count("metadata") != 0 || f.count("list") == 0 {
					t.Errorf("%d lists of metadata, %d others, want none and some", f.count("metadata"), f.count("list"))
				}
			})
		})
	}
}

// TestReflector_Sparse_NewestHasChanged checks that it is no obstacle if the object that was
// changed last is also the one that was changed meanwhile.
func TestReflector_Sparse_NewestHasChanged(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		s := newSparse(f)
		f.options.Origin.Newest = reflector.ObjectRef{Key: "b", UID: "u", RV: "2"}
		f.has["b"] = of("u", "b", "8")
		s.metadata = [][]runtime.Object{{object("a", "1"), of("u", "b", "8")}}
		s.current["b"] = of("u", "b", "8")
		f.run(pause / 10)
		f.want("probe", "watch 5", "metadata", "commit 10 [=a@1 b]", "caught up", "watch 10")
	})
}

// TestReflector_Sparse_NeverGoesBack checks that the watch, which goes on from the version of
// the list, does not bring back what an object was before it was read, until it says that
// the object has left what is selected.
func TestReflector_Sparse_NeverGoesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		s := newSparse(f)
		s.metadata = [][]runtime.Object{objects("a@1", "b@8")}
		s.current["b"] = object("b", "13")
		f.streams = append(f.streams, stream{events: []watch.Event{
			modified("b", "11"), modified("b", "12"), modified("b", "13"), modified("a", "14"), modified("b", "15"), modified("b", "16"),
		}})
		f.run(2 * time.Second)
		f.want("probe", "watch 5", "metadata", "commit 10 [=a@1 b]", "caught up", "watch 10",
			"bookmark @11", "bookmark @12", "bookmark @13", "update a@14", "update b@15", "update b@16")
		if s := f.r.Status(); s.Bookmarks != nil || s.RV != "16" {
			t.Errorf("status %+v: what was left out is no bookmark of the server", s)
		}
	})
}

// TestReflector_Sparse_NotIfTheConsumerHasFailed has a consumer that wants a list, because
// what it has may not be what its versions say, when the version is forgotten, too.
func TestReflector_Sparse_NotIfTheConsumerHasFailed(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		s := newSparse(f)
		s.metadata = [][]runtime.Object{objects("a@1")}
		f.rv = "5" // as stored: the watch that ends is that of a reflector that has caught up
		stop := f.start()
		defer stop()
		time.Sleep(pause / 2)
		f.failures <- errors.New("what is stored differs from the server")
		time.Sleep(2 * pause)
		if n := f.count("metadata"); n != 0 || f.r.Status().Lists != 1 {
			t.Errorf("metadata was listed %d times, and there were %d lists", n, f.r.Status().Lists)
		}
	})
}

// TestReflector_Sparse_GoesBackWithTheServer checks that what was read past the version of
// one list is forgotten with the next: the server may have been restored to before that.
func TestReflector_Sparse_GoesBackWithTheServer(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		s := newSparse(f)
		s.metadata = [][]runtime.Object{objects("a@1", "b@8")}
		s.current["b"] = object("b", "13")
		f.streams = append(f.streams, closing(modified("a", "11")), events(modified("b", "12")))
		f.onCaughtUp = func() { f.set(func() { f.rv, f.items = "9", objects("b@8") }) }
		f.run(2 * pause)
		f.want("probe", "watch 5", "metadata", "commit 10 [=a@1 b]", "caught up", "watch 10", "update a@11",
			"probe", "list", "commit 9 [b]", "caught up", "watch 9", "update b@12")
	})
}

// TestReflector_Sparse_Newest checks that the newest object is known after such a list, be
// it one that was kept or one that was read.
func TestReflector_Sparse_Newest(t *testing.T) {
	for name, test := range map[string]struct{ listed, newest string }{
		"kept": {"b@2", "2"},
		"read": {"b@8", "8"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				s := newSparse(f)
				s.metadata = [][]runtime.Object{objects("a@1", test.listed)}
				s.current["b"] = object("b", "8")
				f.run(time.Second)
				if got, want := f.r.Status().Newest, (reflector.ObjectRef{Key: "b", RV: test.newest}); got != want {
					t.Errorf("newest is %+v, want %+v", got, want)
				}
			})
		})
	}
}

// TestReflector_Sparse_LeavesSelection checks that an object is not kept which has left what
// is selected between the list and the moment when it was read, by its name alone.
func TestReflector_Sparse_LeavesSelection(t *testing.T) {
	for left, want := range map[string][]string{
		"13": {"bookmark @11", "delete b@13"},
		"12": {"bookmark @11", "delete b@12"}, // and was changed again, unseen
	} {
		inBubble(t, func(t *testing.T, f *fake) {
			s := newSparse(f)
			s.metadata = [][]runtime.Object{objects("a@1", "b@8")}
			s.current["b"] = object("b", "13")
			f.streams = append(f.streams, events(modified("b", "11"), deleted("b", left), added("b", "14")))
			f.run(2 * time.Second)
			want := slices.Concat([]string{"probe", "watch 5", "metadata", "commit 10 [=a@1 b]", "caught up", "watch 10"}, want, []string{"add b@14"})
			f.want(want...)
		})
	}
}

// TestReflector_Sparse_ConsumerFailsMeanwhile checks that a consumer that fails within such a
// list gets everything.
func TestReflector_Sparse_ConsumerFailsMeanwhile(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		s := newSparse(f)
		s.metadata, f.items = [][]runtime.Object{objects("a@1")}, objects("x@3")
		f.added = func() error {
			f.added = nil
			f.failures <- errors.New("broken")
			return errors.New("not wanted")
		}
		f.run(2 * pause)
		f.want("probe", "watch 5", "metadata", "list", "commit 10 [x]", "caught up", "watch 10")
	})
}

// TestReflector_Sparse_Disagrees checks that everything is listed if objects are not what the
// list of metadata says, or show that the server was restored.
func TestReflector_Sparse_Disagrees(t *testing.T) {
	for name, test := range map[string]struct {
		listed, read runtime.Object
	}{
		"an older state was read":    {of("u", "b", "8"), of("u", "b", "7")},
		"it was replaced meanwhile":  {of("u", "b", "8"), of("v", "b", "9")},
		"another one was read":       {of("u", "b", "8"), of("u", "c", "8")},
		"it is older than it was":    {object("b", "1"), object("b", "1")},
		"it is older, and was newer": {object("b", "1"), object("b", "8")},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				s := newSparse(f)
				s.metadata = [][]runtime.Object{{object("a", "1"), test.listed}}
				s.current["b"] = test.read
				f.run(2 * time.Second)
				f.want("probe", "watch 5", "metadata", "list", "commit 10 []", "caught up", "watch 10")
			})
		})
	}
}
