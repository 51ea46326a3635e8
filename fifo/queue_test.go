package fifo

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

func TestQueue_PopBatch_KeepsOrder(t *testing.T) {
	f := newFixture(t, newKnown())
	f.must(f.Add(object("b", "1")))
	f.must(f.Add(object("a", "2")))
	f.must(f.Update(object("b", "3")))
	f.must(f.Delete(object("a", "4")))
	f.must(f.Add(object("a", "5")))
	f.want(f.pop(), "Added b@1, Added a@2, Updated b@3, Deleted a@4, Added a@5 rv=5")
}

func TestQueue_PopBatch_EndsAtMaxBatch(t *testing.T) {
	f := newFixture(t, newKnown())
	for i := range 2*maxBatch + 1 {
		f.must(f.Add(object(fmt.Sprint("o", i), strconv.Itoa(i+1))))
	}
	for _, want := range []struct {
		deltas int
		rv     string
	}{{maxBatch, "1000"}, {maxBatch, "2000"}, {1, "2001"}} {
		if b := f.pop(); len(b.Deltas) != want.deltas || b.RV != want.rv {
			t.Errorf("batch of %d deltas at %s, want %d at %s", len(b.Deltas), b.RV, want.deltas, want.rv)
		}
	}
}

func TestQueue_PopBatch_WaitsForAnItem(t *testing.T) {
	for name, push := range map[string]func(*Queue){
		"delta":    func(q *Queue) { _ = q.Add(object("a", "1")) },
		"bookmark": func(q *Queue) { _ = q.Bookmark("1") },
		"mark":     func(q *Queue) { q.CaughtUp(true) },
		"reset":    func(q *Queue) { q.Reset() },
		"resync":   func(q *Queue) { q.Resync() },
		"list":     func(q *Queue) { q.NewReplacement().Commit("1") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, newKnown())
				popped := false
				go func() { f.pop(); popped = true }()
				synctest.Wait()
				if popped {
					t.Error("PopBatch returned from an empty queue")
				}
				push(f.Queue)
				synctest.Wait()
				if !popped {
					t.Error("PopBatch still waits")
				}
			})
		})
	}
}

func TestQueue_PopBatch_DoesNotLockTheQueue(t *testing.T) {
	f := newFixture(t, newKnown())
	f.must(f.Add(object("a", "1")))
	f.must(f.PopBatch(func(Batch) error { return f.Add(object("b", "2")) }))
	f.want(f.pop(), "Added b@2 rv=2")
}

func TestQueue_Bookmark_MovesTheVersion(t *testing.T) {
	f := newFixture(t, newKnown())
	f.must(f.Bookmark("1"))
	f.must(f.Bookmark("2"))
	if f.Len() != 1 {
		t.Errorf("%d items for two bookmarks in a row", f.Len())
	}
	f.must(f.Add(object("a", "3")))
	f.must(f.Bookmark("4"))
	f.must(f.Bookmark(""))
	f.must(f.Add(object("b", "")))
	f.must(f.Bookmark("5"))
	if f.Len() != 5 {
		t.Errorf("%d items, want 5: a bookmark must not be merged over a delta", f.Len())
	}
	f.want(f.pop(), "Added a@3, Added b@ rv=5")
}

func TestQueue_Bookmark_EmptyIsIgnored(t *testing.T) {
	f := newFixture(t, newKnown())
	f.must(f.Bookmark("4"))
	f.must(f.Bookmark(""))
	f.want(f.pop(), "rv=4")
	f.must(f.Bookmark(""))
	if f.Len() != 0 {
		t.Error("an empty bookmark was queued")
	}
}

// A bookmark keeps its place among lists, and is none of their objects.
func TestQueue_Bookmark_AroundAList(t *testing.T) {
	f := newFixture(t, newKnown(object("a", "1")))
	f.must(f.Bookmark("123"))
	f.list("1234")
	f.must(f.Bookmark("1235"))
	f.Resync()
	f.must(f.Bookmark("1236"))
	f.wantAll(f.drain(), "rv=123", "Deleted ?a@1 rv=1234 end", "rv=1235", "", "rv=1236")
}

func TestQueue_Push_DropsRepetitions(t *testing.T) {
	add := func(rv string) func(*Queue) error {
		return func(q *Queue) error { return q.Add(object("a", rv)) }
	}
	update := func(rv string) func(*Queue) error {
		return func(q *Queue) error { return q.Update(object("a", rv)) }
	}
	deleted := func(rv string) func(*Queue) error {
		return func(q *Queue) error { return q.Delete(object("a", rv)) }
	}
	unknown := func(rv string) func(*Queue) error {
		return func(q *Queue) error { return q.Delete(tombstone("a", object("a", rv))) }
	}
	for name, tc := range map[string]struct {
		push []func(*Queue) error
		want string
	}{
		"added, same":              {[]func(*Queue) error{add("1"), add("1")}, "Added a@1 rv=1"},
		"added, newer":             {[]func(*Queue) error{add("1"), add("2")}, "Added a@1, Added a@2 rv=2"},
		"added without version":    {[]func(*Queue) error{add(""), add("")}, "Added a@, Added a@"},
		"updated, same":            {[]func(*Queue) error{update("1"), update("1")}, "Updated a@1 rv=1"},
		"added, updated":           {[]func(*Queue) error{add("1"), update("1")}, "Added a@1, Updated a@1 rv=1"},
		"not the newest":           {[]func(*Queue) error{add("1"), deleted("2"), add("1")}, "Added a@1, Deleted a@2, Added a@1 rv=1"},
		"deleted, same":            {[]func(*Queue) error{deleted("1"), deleted("1")}, "Deleted a@1 rv=1"},
		"deleted, newer":           {[]func(*Queue) error{deleted("1"), deleted("2")}, "Deleted a@1, Deleted a@2 rv=2"},
		"deleted without version":  {[]func(*Queue) error{deleted(""), deleted("")}, "Deleted a@, Deleted a@"},
		"final state, tombstone":   {[]func(*Queue) error{deleted("2"), unknown("1")}, "Deleted a@2 rv=2"},
		"tombstone, final state":   {[]func(*Queue) error{unknown("1"), deleted("2")}, "Deleted a@2"},
		"tombstone, tombstone":     {[]func(*Queue) error{unknown("1"), unknown("2")}, "Deleted ?a@1"},
		"tombstone, added":         {[]func(*Queue) error{unknown("1"), add("1")}, "Deleted ?a@1, Added a@1 rv=1"},
		"tombstone, final, final":  {[]func(*Queue) error{unknown("1"), deleted("2"), deleted("2")}, "Deleted a@2, Deleted a@2 rv=2"},
		"added, deleted, same":     {[]func(*Queue) error{add("1"), deleted("1")}, "Added a@1, Deleted a@1 rv=1"},
		"updated between two adds": {[]func(*Queue) error{add("1"), update("2"), add("2")}, "Added a@1, Updated a@2, Added a@2 rv=2"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, newKnown())
			for _, push := range tc.push {
				f.must(push(f.Queue))
			}
			f.want(f.pop(), tc.want)
		})
	}
}

func TestQueue_Push_ComparesOnlyWithWhatIsQueued(t *testing.T) {
	t.Run("popped", func(t *testing.T) {
		f := newFixture(t, newKnown())
		f.must(f.Add(object("x", "1")))
		f.must(f.Add(object("a", "2")))
		f.pop()
		f.must(f.Add(object("a", "2")))
		f.want(f.pop(), "Added a@2 rv=2")
	})
	t.Run("popped in part", func(t *testing.T) {
		f := newFixture(t, newKnown())
		f.must(f.Add(object("a", "1")))
		f.must(f.Add(object("b", "2")))
		f.Resync()
		f.must(f.Update(object("a", "3")))
		f.pop() // a@1 and b@2
		f.must(f.Update(object("a", "3")))
		f.must(f.Add(object("b", "2")))
		f.wantAll(f.drain()[1:], "Updated a@3, Added b@2 rv=2")
	})
	t.Run("before a list", func(t *testing.T) {
		f := newFixture(t, newKnown())
		f.must(f.Add(object("a", "1")))
		f.list("2")
		f.must(f.Add(object("a", "1")))
		f.wantAll(f.drain(), "Added a@1 rv=1", "Deleted ?a@1 rv=2 end", "Added a@1 rv=1")
	})
	t.Run("other object", func(t *testing.T) {
		f := newFixture(t, newKnown())
		f.must(f.Add(object("a", "1")))
		f.must(f.Add(object("b", "1")))
		f.want(f.pop(), "Added a@1, Added b@1 rv=1")
	})
}

func TestQueue_Push_RejectsWhatHasNoKey(t *testing.T) {
	f := newFixture(t, newKnown())
	for name, obj := range map[string]any{
		"not an object":         "text",
		"nil":                   nil,
		"no name":               &metav1.PartialObjectMetadata{},
		"tombstone without key": cache.DeletedFinalStateUnknown{Obj: object("a", "1")},
	} {
		for method, push := range map[string]func(any) error{
			"Add": f.Add, "Update": f.Update, "Delete": f.Delete,
			"Replacement.Add": f.NewReplacement().Add, "Replacement.Remove": f.NewReplacement().Remove,
		} {
			if err := push(obj); !errors.Is(err, ErrInvalidObject) {
				t.Errorf("%s of %s: error %v, want ErrInvalidObject", method, name, err)
			}
		}
	}
	if f.Len() != 0 {
		t.Errorf("%d items are queued", f.Len())
	}
}

func TestQueue_Transform_ReturnsNothing(t *testing.T) {
	var none *metav1.PartialObjectMetadata
	for name, nothing := range map[string]any{"nil": nil, "a nil pointer": none} {
		q := New(Options{Known: newKnown(), Transform: func(any) (any, error) { return nothing, nil }})
		if err := q.Add(object("a", "1")); !errors.Is(err, ErrInvalidObject) || q.Len() != 0 {
			t.Errorf("%s: error %v, want ErrInvalidObject, and %d queued", name, err, q.Len())
		}
	}
}

// counting returns a transform that marks objects and counts its calls by name.
func counting(calls map[string]int) cache.TransformFunc {
	return func(obj any) (any, error) {
		in := obj.(*metav1.PartialObjectMetadata)
		calls[in.Name]++
		out := in.DeepCopy()
		out.Labels = map[string]string{"transformed": strconv.Itoa(calls[in.Name])}
		out.ResourceVersion = ""
		return out, nil
	}
}

func TestQueue_Transform_OncePerObject(t *testing.T) {
	calls := map[string]int{}
	k := newKnown(object("synced", "1"))
	f := &fixture{T: t, known: k, Queue: New(Options{Known: k, Transform: counting(calls)})}
	f.must(f.Add(object("added", "2")))
	f.must(f.Update(object("updated", "3")))
	f.must(f.Delete(object("deleted", "4")))
	f.must(f.Delete(tombstone("gone", object("gone", "1"))))
	batches := f.drain()
	f.Resync()
	batches = append(batches, f.drain()...)
	f.list("5", object("listed", "1"))
	f.drain()

	for _, name := range []string{"added", "updated", "deleted", "listed"} {
		if calls[name] != 1 {
			t.Errorf("%d calls for the %s object, want 1", calls[name], name)
		}
	}
	for _, name := range []string{"synced", "gone"} {
		if calls[name] != 0 {
			t.Errorf("%d calls for the %s object, want none", calls[name], name)
		}
	}
	for _, d := range batches[0].Deltas[:3] {
		if d.Object.(*metav1.PartialObjectMetadata).Labels["transformed"] != "1" {
			t.Errorf("%s is not what the transform returned", d.Key)
		}
	}
	if batches[0].RV != "4" {
		t.Errorf("version %q; a transform that strips versions must not hide them from the queue", batches[0].RV)
	}
}

func TestQueue_Transform_FailureQueuesNothing(t *testing.T) {
	boom := errors.New("boom")
	var result any
	transform := func(any) (any, error) { return result, boom }
	k := newKnown()
	f := New(Options{Known: k, Transform: transform})
	r := f.NewReplacement()
	for name, push := range map[string]func(any) error{"Add": f.Add, "Update": f.Update, "Delete": f.Delete, "Replacement.Add": r.Add} {
		if err := push(object("a", "1")); !errors.Is(err, boom) {
			t.Errorf("%s: error %v, want the transform's", name, err)
		}
	}
	boom = nil
	if err := f.Add(object("a", "1")); !errors.Is(err, ErrInvalidObject) {
		t.Errorf("error %v for a transform that returns nil, which would look like a delete", err)
	}
	if f.Len() != 0 {
		t.Errorf("%d items", f.Len())
	}
	r.Commit("1")
	err := f.PopBatch(func(b Batch) error {
		if len(b.Deltas) != 0 {
			t.Errorf("%d objects were listed", len(b.Deltas))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestQueue_CaughtUp_ComesWithTheBatchBeforeIt(t *testing.T) {
	f := newFixture(t, newKnown())
	f.must(f.Add(object("a", "1")))
	f.CaughtUp(false)
	f.must(f.Add(object("b", "2")))
	f.must(f.Bookmark("3"))
	f.CaughtUp(true)
	f.CaughtUp(true)
	f.list("4", object("a", "1"))
	f.CaughtUp(true)
	f.wantAll(f.drain(),
		"Added a@1 rv=1 caughtup=false",
		"Added b@2 rv=3 caughtup=true",
		"caughtup=true",
		"Deleted ?b@2 rv=4 end",
		"caughtup=true")
}

func TestQueue_Reset_IsABatchOfItsOwn(t *testing.T) {
	f := newFixture(t, newKnown(object("old", "1")))
	f.must(f.Bookmark("2"))
	f.Reset()
	f.list("1", object("new", "1"))
	f.wantAll(f.drain(), "rv=2", "reset", "Replaced new@1 rv=1 end")
	f.must(f.Add(object("a", "3")))
	f.Reset()
	f.must(f.Add(object("b", "4")))
	f.wantAll(f.drain(), "Added a@3 rv=3", "reset", "Added b@4 rv=4")
}

func TestQueue_Resync_YieldsWhatIsKnownThen(t *testing.T) {
	k := newKnown(object("kept", "1"), object("deleted", "1"))
	k.unreadable["ns/unreadable"] = true
	f := newFixture(t, k)
	f.must(f.Delete(object("deleted", "2")))
	f.must(f.Update(object("kept", "3")))
	f.Resync()
	f.Resync()
	if f.Len() != 3 {
		t.Errorf("%d items, want 3: one resync waits already", f.Len())
	}
	f.must(f.Update(object("kept", "4")))
	f.wantAll(f.drain(), "Deleted deleted@2, Updated kept@3 rv=3", "Sync kept@3", "Updated kept@4 rv=4")
	f.Resync()
	f.want(f.pop(), "Sync kept@4")
}

func TestQueue_Resync_SkipsWhatVanishedBeforeItsTurn(t *testing.T) {
	k := newKnown(object("a", "1"), object("b", "1"))
	k.onList = func() { delete(k.objects, "ns/a") }
	f := newFixture(t, k)
	f.Resync()
	f.want(f.pop(), "Sync b@1")
}

func TestQueue_Resync_InBatches(t *testing.T) {
	k := newKnown()
	for i := range maxBatch + 1 {
		k.apply(Batch{Deltas: []Delta{{Type: cache.Added, Key: fmt.Sprint("ns/", i), Object: object(fmt.Sprint(i), "1")}}})
	}
	f := newFixture(t, k)
	f.Resync()
	if first, second := f.pop(), f.pop(); len(first.Deltas) != maxBatch || len(second.Deltas) != 1 {
		t.Errorf("batches of %d and %d", len(first.Deltas), len(second.Deltas))
	}
	if f.expansion != nil {
		t.Error("the resync goes on")
	}
}

func TestQueue_Close_EndsPopBatch(t *testing.T) {
	closed := func(t *testing.T, q *Queue) {
		t.Helper()
		if err := q.PopBatch(func(Batch) error { t.Error("a batch after Close"); return nil }); !errors.Is(err, ErrClosed) {
			t.Errorf("PopBatch returned %v, want ErrClosed", err)
		}
	}
	t.Run("waiting", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, newKnown())
			go closed(t, f.Queue)
			synctest.Wait()
			f.Close()
		})
	})
	t.Run("with items", func(t *testing.T) {
		f := newFixture(t, newKnown())
		f.must(f.Add(object("a", "1")))
		f.Close()
		closed(t, f.Queue)
		closed(t, f.Queue)
	})
	t.Run("within a list", func(t *testing.T) {
		k := newKnown()
		f := newFixture(t, k)
		r := f.NewReplacement()
		for i := range maxBatch + 1 {
			f.must(r.Add(object(fmt.Sprint(i), "1")))
		}
		r.Commit("2")
		f.want(Batch{List: f.pop().List}, "partial")
		f.Close()
		closed(t, f.Queue)
	})
	t.Run("within a list that yields nothing", func(t *testing.T) {
		k := newKnown()
		f := newFixture(t, k)
		r := f.NewReplacement()
		for i := range 3 * maxBatch {
			obj := object(fmt.Sprint(i), "1")
			k.objects["ns/"+obj.Name] = obj
			f.must(r.Add(obj))
		}
		r.Commit("2")
		k.onList = f.Close
		closed(t, f.Queue)
	})
}

func TestQueue_Close_DropsWhatIsPushedLater(t *testing.T) {
	f := newFixture(t, newKnown())
	f.Close()
	f.must(f.Add(object("a", "1")))
	f.must(f.Bookmark("1"))
	f.Resync()
	f.Reset()
	f.CaughtUp(true)
	f.list("1", object("a", "1"))
	f.Fail(errors.New("late"))
	if f.Len() != 0 || f.failure() != nil {
		t.Errorf("%d items after Close", f.Len())
	}
	f.Close()
}

func TestQueue_ConcurrentProducers(t *testing.T) {
	const producers, each = 4, 500
	k := newKnown()
	f := newFixture(t, k)
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for i := range each {
				name, rv := fmt.Sprintf("p%d-%d", p, i%10), strconv.Itoa(i+1)
				_ = f.Update(object(name, rv))
				switch i % 50 {
				case 10:
					f.Resync()
				case 20:
					_ = f.Bookmark(rv)
				case 30:
					f.CaughtUp(true)
				}
			}
		})
	}
	consumed := make(chan struct{})
	go func() {
		defer close(consumed)
		last := map[string]int{}
		for f.PopBatch(func(b Batch) error {
			for _, d := range b.Deltas {
				rv, _ := strconv.Atoi(version(d.Object))
				if d.Type != cache.Sync && rv <= last[d.Key] {
					t.Errorf("%s at %d after %d", d.Key, rv, last[d.Key])
				}
				last[d.Key] = rv
			}
			k.apply(b)
			return nil
		}) == nil {
			if len(last) == producers*10 && f.Len() == 0 && finished(last, each) {
				f.Close()
			}
		}
	}()
	wg.Wait()
	<-consumed
}

// finished reports whether every object has its last version.
func finished(last map[string]int, each int) bool {
	for _, rv := range last {
		if rv <= each-10 {
			return false
		}
	}
	return true
}

func TestQueue_Wake_PassesAnEmptyBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newKnown())
		batches := make(chan Batch)
		go func() {
			for f.PopBatch(func(b Batch) error { batches <- b; return nil }) == nil { //nolint:revive // until Close
			}
			close(batches)
		}()
		synctest.Wait()
		f.Wake() // it waits
		f.want(<-batches, "")
		f.must(f.Add(object("a", "1")))
		f.want(<-batches, "Added a@1 rv=1")
		synctest.Wait()
		select {
		case b := <-batches:
			t.Errorf("woken again, by nobody: %s", describe(b))
		default:
		}
		f.Close()
		<-batches
	})
}
