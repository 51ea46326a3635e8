package fifo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"
)

// twins are our queue and client-go's RealFIFO, with a consumer each, under the
// same operations. What is compared is what the consumers tell handlers.
//
// Two differences are meant: ours passes over what does not change an object (a
// repeated event, an unchanged object in a list), which is taken out of what
// client-go's yields; and deletes that come out of a list are ordered by key,
// while those of client-go's have no order.
type twins struct {
	rapid.TB
	queue *Queue
	real  *cache.RealFIFO
	// known is the store of our consumer, and realKnown of client-go's.
	known, realKnown *known
	// told is what our consumer has told, in order, and realTold client-go's.
	told, realTold []string
	// transforms and realTransforms count the calls of the transform.
	transforms, realTransforms int
}

func newTwins(t rapid.TB, objs ...*metav1.PartialObjectMetadata) *twins {
	w := &twins{TB: t, known: newKnown(objs...), realKnown: newKnown(objs...)}
	w.queue = New(Options{Known: w.known, Transform: countCalls(&w.transforms)})
	w.real = cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{
		KeyFunction: cache.MetaNamespaceKeyFunc, KnownObjects: w.realKnown, Transformer: countCalls(&w.realTransforms),
	})
	return w
}

func countCalls(n *int) cache.TransformFunc {
	return func(obj any) (any, error) {
		*n++
		return obj, nil
	}
}

// event pushes one watch event into both queues.
func (w *twins) event(t cache.DeltaType, obj any) {
	for _, q := range []interface {
		Add(any) error
		Update(any) error
		Delete(any) error
	}{w.queue, w.real} {
		var err error
		switch t {
		case cache.Added:
			err = q.Add(obj)
		case cache.Updated:
			err = q.Update(obj)
		default:
			err = q.Delete(obj)
		}
		if err != nil {
			w.Fatal(err)
		}
	}
}

// list queues a list in both.
func (w *twins) list(rv string, objs ...*metav1.PartialObjectMetadata) {
	r, items := w.queue.NewReplacement(), []any{}
	for _, obj := range objs {
		if err := r.Add(obj); err != nil {
			w.Fatal(err)
		}
		items = append(items, obj)
	}
	r.Commit(rv)
	if err := w.real.Replace(items, rv); err != nil {
		w.Fatal(err)
	}
}

// resync queues a resync in both.
func (w *twins) resync() {
	w.queue.Resync()
	if err := w.real.Resync(); err != nil {
		w.Fatal(err)
	}
}

// pop applies the next batch of our queue, if there is one.
func (w *twins) pop() bool {
	if w.queue.Len() == 0 && w.queue.expansion == nil {
		return false
	}
	err := w.queue.PopBatch(func(b Batch) error {
		for _, d := range b.Deltas {
			w.told = append(w.told, w.known.tell(d)...)
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	return true
}

// popReal applies the next delta of client-go's, if there is one.
func (w *twins) popReal() bool {
	// A closed queue gives what it has, and then an error.
	w.real.Close()
	_, err := w.real.Pop(func(obj any, _ bool) error {
		for _, d := range obj.(cache.Deltas) {
			key, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(d.Object)
			w.realTold = append(w.realTold, w.realKnown.tell(Delta{Type: d.Type, Key: key, Object: d.Object})...)
		}
		return nil
	})
	return err == nil
}

// drain applies all that is queued.
func (w *twins) drain() {
	for w.pop() {
	}
	for w.popReal() {
	}
}

// tell applies one delta and returns what it tells handlers, if anything.
func (k *known) tell(d Delta) []string {
	old, exists := k.objects[d.Key]
	k.apply(Batch{Deltas: []Delta{d}})
	text := fmt.Sprintf("%s %s", d.Type, describeObject(strings.TrimPrefix(d.Key, "ns/"), d.Object))
	switch {
	case d.Type == cache.Deleted && !exists:
		return nil
	case d.Type == cache.Deleted, d.Type == cache.Sync, !exists:
		return []string{text}
	case version(old) == version(d.Object):
		return nil
	}
	return []string{text + " after " + version(old)}
}

// difference compares what has been told, and what the consumers hold; both
// queues must be empty.
func (w *twins) difference() string {
	got, want := sortTombstones(w.told), sortTombstones(w.realTold)
	switch {
	case !slices.Equal(got, want):
		return fmt.Sprintf("told          %q\nclient-go has %q", got, want)
	case fmt.Sprint(versions(w.known)) != fmt.Sprint(versions(w.realKnown)):
		return fmt.Sprintf("objects %v, client-go has %v", versions(w.known), versions(w.realKnown))
	case w.transforms != w.realTransforms:
		return fmt.Sprintf("%d transforms, client-go has %d", w.transforms, w.realTransforms)
	}
	return ""
}

func versions(k *known) map[string]string {
	all := map[string]string{}
	for key, obj := range k.objects {
		all[key] = version(obj)
	}
	return all
}

// sortTombstones orders what stands between other entries: each run of deletes
// whose final state is not known, or of what a resync yields.
func sortTombstones(told []string) []string {
	told = slices.Clone(told)
	unordered := func(i int) string {
		switch {
		case i == len(told):
			return ""
		case strings.HasPrefix(told[i], "Deleted ?"):
			return "deleted"
		case strings.HasPrefix(told[i], "Sync "):
			return "sync"
		}
		return ""
	}
	from := 0
	for i := range len(told) + 1 {
		if unordered(i) == "" || unordered(i) != unordered(from) {
			slices.Sort(told[from:i])
			from = i
			if unordered(i) == "" {
				from = i + 1
			}
		}
	}
	return told
}

// The scenarios are those that client-go's tests of RealFIFO and DeltaFIFO walk
// through.
func TestQueue_TellsWhatRealFIFOTells(t *testing.T) {
	for name, tc := range map[string]struct {
		known []*metav1.PartialObjectMetadata
		do    func(*twins)
		want  []string
	}{
		"every change of one object": {nil, func(w *twins) {
			w.event(cache.Added, object("foo", "10"))
			w.event(cache.Updated, object("foo", "12"))
			w.event(cache.Deleted, object("foo", "15"))
		}, []string{"Added foo@10", "Updated foo@12 after 10", "Deleted foo@15"}},
		"nobody jumps the line": {nil, func(w *twins) {
			w.event(cache.Added, object("foo", "10"))
			w.event(cache.Added, object("bar", "11"))
			w.event(cache.Added, object("foo", "12"))
			w.pop()
			w.popReal()
			w.event(cache.Added, object("zab", "13"))
			w.event(cache.Added, object("foo", "14"))
		}, []string{"Added foo@10", "Added bar@11", "Added foo@12 after 10", "Added zab@13", "Added foo@14 after 12"}},
		"deleted and in the list": {[]*metav1.PartialObjectMetadata{object("foo", "1")}, func(w *twins) {
			w.event(cache.Deleted, object("foo", "1"))
			w.list("2", object("foo", "2"))
		}, []string{"Deleted foo@1", "Replaced foo@2"}},
		"added and not in the list": {nil, func(w *twins) {
			w.event(cache.Added, object("foo", "2"))
			w.list("3")
		}, []string{"Added foo@2", "Deleted ?foo@2"}},
		"deleted and not in the list": {nil, func(w *twins) {
			w.event(cache.Added, object("foo", "2"))
			w.event(cache.Deleted, object("foo", "3"))
			w.list("4")
		}, []string{"Added foo@2", "Deleted foo@3"}},
		"in two lists and not in the third": {nil, func(w *twins) {
			w.event(cache.Added, object("foo", "2"))
			w.list("3", object("foo", "2"))
			w.list("4", object("foo", "2"))
			w.list("5")
		}, []string{"Added foo@2", "Deleted ?foo@2"}},
		"one delete for two lists": {nil, func(w *twins) {
			w.event(cache.Added, object("foo", "2"))
			w.list("3")
			w.list("4")
		}, []string{"Added foo@2", "Deleted ?foo@2"}},
		"recreated and not in the list": {nil, func(w *twins) {
			w.event(cache.Added, object("foo", "2"))
			w.event(cache.Deleted, object("foo", "3"))
			w.event(cache.Added, object("foo", "4"))
			w.list("5")
		}, []string{"Added foo@2", "Deleted foo@3", "Added foo@4", "Deleted ?foo@4"}},
		"added and newer in the list": {nil, func(w *twins) {
			w.event(cache.Added, object("foo", "10"))
			w.list("15", object("foo", "15"))
		}, []string{"Added foo@10", "Replaced foo@15 after 10"}},
		"list without what was known": {threeKnown(), func(w *twins) {
			w.event(cache.Deleted, object("baz", "10"))
			w.list("11", object("foo", "6"))
		}, []string{"Deleted baz@10", "Deleted ?bar@6", "Replaced foo@6 after 5"}},
		"list without what was changed in the queue": {threeKnown(), func(w *twins) {
			w.event(cache.Updated, object("baz", "10"))
			w.list("11", object("foo", "5"))
		}, []string{"Updated baz@10 after 7", "Deleted ?bar@6", "Deleted ?baz@10"}},
		"list without what was recreated in the queue": {threeKnown(), func(w *twins) {
			w.event(cache.Deleted, object("bar", "8"))
			w.event(cache.Added, object("bar", "100"))
			w.list("101", object("foo", "5"))
		}, []string{"Deleted bar@8", "Added bar@100", "Deleted ?bar@100", "Deleted ?baz@7"}},
		"list after a list": {threeKnown(), func(w *twins) {
			w.list("100", object("bar", "100"), object("foo", "5"))
			w.list("101", object("foo", "5"))
		}, []string{"Deleted ?baz@7", "Replaced bar@100 after 6", "Deleted ?bar@100"}},
		"delete of what nobody knows": {nil, func(w *twins) {
			w.event(cache.Deleted, object("baz", "20"))
			w.event(cache.Added, object("foo", "21"))
		}, []string{"Added foo@21"}},
		"resync": {threeKnown(), func(w *twins) {
			w.resync()
		}, []string{"Sync bar@6", "Sync baz@7", "Sync foo@5"}},
		"resync of what was deleted": {threeKnown()[:1], func(w *twins) {
			w.event(cache.Deleted, object("foo", "10"))
			w.resync()
		}, []string{"Deleted foo@10"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTwins(t, tc.known...)
			tc.do(w)
			w.drain()
			if diff := w.difference(); diff != "" {
				t.Error(diff)
			}
			if got := sortTombstones(w.told); !slices.Equal(got, tc.want) {
				t.Errorf("told %q\nwant %q", got, tc.want)
			}
		})
	}
}

func threeKnown() []*metav1.PartialObjectMetadata {
	return []*metav1.PartialObjectMetadata{object("foo", "5"), object("bar", "6"), object("baz", "7")}
}

// The version that a resync yields is the one that the object has by then, as
// since client-go keeps it as one entry. Its older way, which RealFIFO still has,
// passes over what has an event in the queue. Nobody is told an older state.
func TestQueue_Resync_IsNeverOlderThanWhatIsQueued(t *testing.T) {
	w := newTwins(t, object("foo", "5"))
	w.event(cache.Updated, object("foo", "6"))
	w.resync()
	w.drain()
	if want := []string{"Updated foo@6 after 5", "Sync foo@6"}; !slices.Equal(w.told, want) {
		t.Errorf("told %q, want %q", w.told, want)
	}
	if want := []string{"Updated foo@6 after 5"}; !slices.Equal(w.realTold, want) {
		t.Errorf("client-go's told %q, want %q", w.realTold, want)
	}
}

// TestQueue_TellsWhatRealFIFOTells_AtRandom compares random sequences of events,
// lists and resyncs, with consumers that are behind by a random number of items.
// rapid prints how to replay a failure.
func TestQueue_TellsWhatRealFIFOTells_AtRandom(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	rapid.Check(t, func(t *rapid.T) {
		w := newTwins(t, object("a", "1"), object("b", "2"))
		w.queue.maxBatch = rapid.IntRange(1, 4).Draw(t, "maxBatch")
		rv := 2
		newest := map[string]string{"a": "1", "b": "2"}
		next := func(name string) *metav1.PartialObjectMetadata {
			// Events may repeat the version of the last one.
			if newest[name] == "" || !rapid.Bool().Draw(t, "same version") {
				rv++
				newest[name] = strconv.Itoa(rv)
			}
			return object(name, newest[name])
		}
		event := func(kind cache.DeltaType) func(*rapid.T) {
			return func(t *rapid.T) { w.event(kind, next(rapid.SampledFrom(names).Draw(t, "name"))) }
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": event(cache.Added), "update": event(cache.Updated), "delete": event(cache.Deleted),
			"list": func(t *rapid.T) {
				var objs []*metav1.PartialObjectMetadata
				for _, name := range names {
					if rapid.Bool().Draw(t, name) {
						objs = append(objs, next(name))
					}
				}
				w.list(strconv.Itoa(rv), objs...)
			},
			"resync":       func(*rapid.T) { w.drain(); w.resync() },
			"pop":          func(*rapid.T) { w.pop() },
			"pop RealFIFO": func(*rapid.T) { w.popReal() },
			"drain": func(t *rapid.T) {
				w.drain()
				if diff := w.difference(); diff != "" {
					t.Fatal(diff)
				}
			},
		})
		w.drain()
		if diff := w.difference(); diff != "" {
			t.Fatal(diff)
		}
	})
}
