package fifo

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

func TestReplacement_Stream_IsHandedOnWhileItArrives(t *testing.T) {
	f := newStreaming(t, newKnown(object("a", "1"), object("b", "1"), object("gone", "1"), object("z", "1")), 2, 0)
	r := f.NewReplacement()
	f.must(r.Add(object("a", "2")))
	f.must(r.Add(object("b", "1")))
	if f.Len() != 0 {
		t.Errorf("%d items of a part that may still change", f.Len())
	}
	f.must(r.Add(object("c", "3")))
	f.want(f.pop(), "Replaced a@2 partial")
	f.must(r.Add(object("d", "1")))
	r.Commit("4")
	f.must(f.Add(object("e", "5")))
	f.wantAll(f.drain(), "Deleted ?gone@1, Deleted ?z@1 partial", "Replaced c@3, Replaced d@1 rv=4 end", "Added e@5 rv=5")
}

// A part in which nothing differs yields no batch: the header of a store need not
// be marked as incomplete.
func TestReplacement_Stream_UnchangedPartsYieldNothing(t *testing.T) {
	f := newStreaming(t, newKnown(object("a", "1"), object("b", "1"), object("c", "1")), 1, 0)
	f.list("2", object("a", "1"), object("b", "1"), object("c", "1"))
	f.wantAll(f.drain(), "rv=2 end")
}

// Nor is a consumer that is wanted kept waiting because of that.
func TestReplacement_Stream_UnchangedPartsDoNotTakeAWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newStreaming(t, newKnown(object("a", "1"), object("b", "1")), 1, 0)
		r := f.NewReplacement()
		f.must(r.Add(object("a", "1")))
		f.must(r.Add(object("b", "1")))
		f.Wake()
		popped := make(chan error, 1)
		go func() { popped <- f.PopBatch(func(Batch) error { return nil }) }()
		synctest.Wait()
		select {
		case err := <-popped:
			f.must(err)
		default:
			t.Error("the consumer waits")
			f.Close()
			if err := <-popped; !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		}
		r.Abort()
	})
}

func TestReplacement_Stream_KnowsNoOrder(t *testing.T) {
	f := newStreaming(t, newKnown(object("a", "1"), object("b", "1"), object("c", "1"), object("d", "1")), 1, 0)
	f.list("2", object("d", "1"), object("a", "1"), object("c", "2"))
	f.wantAll(f.drain(), "Deleted ?b@1 partial", "Replaced c@2 rv=2 end")
}

func TestReplacement_Stream_Remove(t *testing.T) {
	for name, read := range map[string]func(*fixture, Replacement){
		"of what was handed on":     func(f *fixture, r Replacement) { f.must(r.Add(object("a", "2"))); f.must(r.Add(object("b", "1"))) },
		"of what waits":             func(f *fixture, r Replacement) { f.must(r.Add(object("b", "1"))); f.must(r.Add(object("a", "2"))) },
		"of what was not listed":    func(f *fixture, r Replacement) { f.must(r.Add(object("b", "1"))) },
		"of what was never reached": func(*fixture, Replacement) {},
	} {
		t.Run(name, func(t *testing.T) {
			f := newStreaming(t, newKnown(object("a", "1")), 1, 0)
			r := f.NewReplacement()
			read(f, r)
			f.must(r.Remove(object("a", "3")))
			f.must(r.Remove(object("unknown", "3")))
			r.Commit("3")
			f.drain()
			if _, exists := f.known.objects["ns/a"]; exists {
				t.Error("the object is still there")
			}
		})
	}
	t.Run("and added again", func(t *testing.T) {
		f := newStreaming(t, newKnown(), 1, 0)
		r := f.NewReplacement()
		f.must(r.Add(object("a", "1")))
		f.must(r.Remove(object("a", "2")))
		f.must(r.Add(object("a", "3")))
		r.Commit("3")
		f.wantAll(f.drain(), "Replaced a@3 rv=3 end")
	})
}

// collectedAndStreamed are the two kinds of list over the same known objects.
type collectedAndStreamed struct {
	*rapid.T
	queues [2]*Queue
	known  [2]*known
}

// TestReplacement_Stream_YieldsWhatACollectedListDoes lists random objects in a
// random order, some of them twice and some removed again. The objects must be the
// same afterwards, and if no name came twice, the deltas too.
func TestReplacement_Stream_YieldsWhatACollectedListDoes(t *testing.T) {
	name := rapid.Map(rapid.IntRange(0, 39), func(n int) string { return fmt.Sprintf("o%02d", n) })
	rapid.Check(t, func(t *rapid.T) {
		c := &collectedAndStreamed{T: t}
		for i := range c.queues {
			c.known[i] = newKnown()
			c.queues[i] = New(Options{Known: c.known[i], Stream: i == 1})
		}
		size := rapid.IntRange(1, 9).Draw(t, "maxBatch")
		for _, n := range rapid.SliceOfDistinct(name, rapid.ID).Draw(t, "known") {
			for _, k := range c.known {
				k.objects["ns/"+n] = object(n, "1")
			}
		}
		names := rapid.SliceOf(name).Draw(t, "listed")
		if rapid.Bool().Draw(t, "ordered") {
			slices.Sort(names)
		}
		lists := []Replacement{c.queues[0].NewReplacement(), c.queues[1].NewReplacement()}
		c.queues[1].maxBatch = size
		again := false
		for i, n := range names {
			again = again || slices.Contains(names[:i], n)
			version := rapid.SampledFrom([]string{"1", "2"}).Draw(t, "version")
			remove := slices.Contains(names[:i], n) && rapid.Bool().Draw(t, "remove")
			for _, r := range lists {
				do := r.Add
				if remove {
					do = r.Remove
				}
				if err := do(object(n, version)); err != nil {
					t.Fatal(err)
				}
			}
		}
		lists[0].Commit("9")
		lists[1].Commit("9")
		c.compare(c.drain(0), c.drain(1), again)
	})
}

// drain applies the list and returns its deltas in the order of their text.
func (c *collectedAndStreamed) drain(i int) []string {
	var deltas []string
	for done := false; !done; {
		err := c.queues[i].PopBatch(func(b Batch) error {
			if len(b.Deltas) > c.queues[i].maxBatch || (b.RV == "9") != (b.List == ListEnd) || b.List == NoList {
				c.Fatalf("batch %s", describe(b))
			}
			for _, d := range b.Deltas {
				deltas = append(deltas, describe(Batch{Deltas: []Delta{d}}))
			}
			c.known[i].apply(b)
			done = b.List == ListEnd
			return nil
		})
		if err != nil {
			c.Fatal(err)
		}
	}
	slices.Sort(deltas)
	return deltas
}

func (c *collectedAndStreamed) compare(collected, streamed []string, again bool) {
	if !again && !slices.Equal(collected, streamed) {
		c.Errorf("collected %q\nstreamed  %q", collected, streamed)
	}
	if got, want := fmt.Sprint(versions(c.known[1])), fmt.Sprint(versions(c.known[0])); got != want {
		c.Errorf("collected %v\nstreamed  %v", want, got)
	}
}

// TestReplacement_Stream_NeedsLittleMemory lists far more than may wait, faster
// than it is applied, in the order of an API server.
func TestReplacement_Stream_NeedsLittleMemory(t *testing.T) {
	const size, limit, listed = 10, 20, 3000
	k := newKnown()
	for i := range listed {
		switch i % 3 {
		case 0:
			k.objects[fmt.Sprintf("ns/o%05d", i)] = object(fmt.Sprintf("o%05d", i), "1")
		case 1:
			k.objects[fmt.Sprintf("ns/o%05d", i)] = object(fmt.Sprintf("o%05d", i), "0")
		}
	}
	f := newStreaming(t, k, size, limit)
	r := f.NewReplacement()
	gone := &r.(*streamedList).stream.merge
	read := make(chan error, 1)
	go func() {
		for i := range listed {
			if err := r.Add(object(fmt.Sprintf("o%05d", i), "1")); err != nil {
				read <- err
				return
			}
		}
		r.Commit("9")
		read <- nil
	}()
	for list := ListPartial; list != ListEnd; {
		list = f.pop().List
		f.mu.Lock()
		if f.mu.waiting > limit+size || len(gone.gone) > 0 {
			t.Fatalf("%d objects wait, %d keys are thought to be gone", f.mu.waiting, len(gone.gone))
		}
		f.mu.Unlock()
	}
	f.must(<-read)
	if k.largest > size || len(k.objects) != listed {
		t.Errorf("%d objects compared at once, %d stored", k.largest, len(k.objects))
	}
}

// TestReplacement_Stream_EmptyListOfMany checks that the keys of a store are never
// all in memory: only those that one batch deletes.
func TestReplacement_Stream_EmptyListOfMany(t *testing.T) {
	k := newKnown()
	for i := range 95 {
		k.objects[fmt.Sprintf("ns/o%02d", i)] = object(fmt.Sprintf("o%02d", i), "1")
	}
	f := newStreaming(t, k, 10, 0)
	r := f.NewReplacement()
	r.Commit("2")
	batches := f.drain()
	if len(batches) != 10 || len(k.objects) != 0 || !slices.IsSortedFunc(batches, byFirstKey) {
		t.Errorf("%d batches, %d objects are left", len(batches), len(k.objects))
	}
}

func byFirstKey(a, b Batch) int { return strings.Compare(a.Deltas[0].Key, b.Deltas[0].Key) }

func TestReplacement_Stream_IsComparedAfterTheTransform(t *testing.T) {
	k := newKnown(object("a", "transformed"))
	f := &fixture{T: t, known: k, Queue: New(Options{Known: k, Stream: true, Transform: func(obj any) (any, error) {
		out := obj.(*metav1.PartialObjectMetadata).DeepCopy()
		out.ResourceVersion = "transformed"
		return out, nil
	}})}
	f.list("2", object("a", "1"))
	f.want(f.pop(), "rv=2 end")
}

func TestReplacement_Abort_LeavesWhatWasHandedOn(t *testing.T) {
	f := newStreaming(t, newKnown(object("a", "1"), object("b", "1"), object("z", "1")), 1, 0)
	r := f.NewReplacement()
	for _, name := range []string{"a", "b", "c"} {
		f.must(r.Add(object(name, "2")))
	}
	f.want(f.pop(), "Replaced a@2 partial")
	r.Abort()
	f.list("3", object("a", "2"), object("c", "3"))
	f.wantAll(f.drain(), "Replaced b@2 partial", "Deleted ?b@2 partial", "Deleted ?z@1 partial", "Replaced c@3 rv=3 end")
}

func TestReplacement_Abort_WithoutATrace(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		f := newFixture(t, newKnown())
		r := f.NewReplacement()
		f.must(r.Add(object("a", "1")))
		r.Abort()
		f.must(f.Add(object("b", "2")))
		f.wantAll(f.drain(), "Added b@2 rv=2")
	})
}

func TestReplacement_Abort_AfterCommitDoesNothing(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		f := newFixture(t, newKnown())
		r := f.NewReplacement()
		f.must(r.Add(object("a", "1")))
		r.Commit("1")
		r.Abort()
		f.wantAll(f.drain(), "Replaced a@1 rv=1 end")
	})
}

func TestQueue_Fail_BeforeAnAbortedList(t *testing.T) {
	f := newStreaming(t, newKnown(), 1, 0)
	f.must(f.Add(object("x", "1")))
	r := f.NewReplacement()
	f.must(r.Add(object("a", "2")))
	f.must(r.Add(object("b", "2")))
	r.Abort()
	f.fail(errDisk)
	if err := f.failure(); !errors.Is(err, errDisk) || f.Len() != 0 {
		t.Errorf("Failed delivered %v, %d items are left", err, f.Len())
	}
}

func TestReplacement_Commit_EndsTheComparisonWithWhatIsQueued(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		f := newFixture(t, newKnown())
		f.must(f.Add(object("a", "1")))
		f.list("2")
		f.must(f.Add(object("a", "1")))
		f.wantAll(f.drain(), "Added a@1 rv=1", "Deleted ?a@1 rv=2 end", "Added a@1 rv=1")
	})
}

// underWay returns a queue with a list of a and b, of which a has been applied and
// b has not been queued yet.
func underWay(t *testing.T) (*fixture, Replacement) {
	f := newStreaming(t, newKnown(), 1, 0)
	r := f.NewReplacement()
	f.must(r.Add(object("a", "1")))
	f.must(r.Add(object("b", "1")))
	f.want(f.pop(), "Replaced a@1 partial")
	return f, r
}

func TestQueue_Fail_GivesUpTheListUnderWay(t *testing.T) {
	f, r := underWay(t)
	f.must(r.Add(object("c", "1")))
	f.fail(errDisk)
	if err := r.Add(object("d", "1")); !errors.Is(err, ErrAbandoned) || !errors.Is(err, errDisk) {
		t.Errorf("Add returned %v", err)
	}
	r.Abort()
	if err := f.failure(); !errors.Is(err, errDisk) || f.Len() != 0 {
		t.Errorf("Failed delivered %v, %d items are left", err, f.Len())
	}
	f.list("2", object("a", "1"))
	f.must(f.Add(object("e", "3")))
	f.wantAll(f.drain(), "rv=2 end", "Added e@3 rv=3")
}

func TestQueue_Fail_BeforeTheLastPartIsCommitted(t *testing.T) {
	f, r := underWay(t)
	f.Fail(errDisk)
	r.Commit("2")
	f.must(f.Add(object("c", "3")))
	f.CaughtUp(true)
	if f.Len() != 0 || !errors.Is(f.failure(), errDisk) {
		t.Errorf("%d items are queued", f.Len())
	}
}

// A list that the consumer has not reached heals the store, if it arrives whole.
func TestQueue_Fail_BeforeTheListUnderWay(t *testing.T) {
	for name, end := range map[string]func(*fixture, Replacement){
		"committed": func(f *fixture, r Replacement) {
			r.Commit("3")
			f.must(f.Add(object("c", "4")))
			f.wantAll(f.drain(), "Replaced a@1 partial", "Replaced b@1 rv=3 end", "Added c@4 rv=4")
		},
		"aborted": func(f *fixture, r Replacement) {
			r.Abort()
			f.must(f.Bookmark("3"))
			f.wantAll(f.drain(), "Replaced a@1 partial")
			f.list("4", object("a", "1"))
			f.wantAll(f.drain(), "rv=4 end")
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newStreaming(t, newKnown(), 1, 0)
			f.must(f.Add(object("x", "2")))
			r := f.NewReplacement()
			f.must(r.Add(object("a", "1")))
			f.must(r.Add(object("b", "1")))
			f.fail(errDisk)
			if err := f.failure(); err != nil {
				t.Errorf("Failed delivered %v although a list is under way", err)
			}
			end(f, r)
		})
	}
}

func TestQueue_Fail_WhenTheMergeCannotRead(t *testing.T) {
	for name, at := range map[string]int{"in a part": 1, "at the end": 0} {
		t.Run(name, func(t *testing.T) {
			f := newStreaming(t, newKnown(object("a", "1"), object("z", "1")), 1, 0)
			r := f.NewReplacement()
			for i := range at {
				f.must(r.Add(object(fmt.Sprint("b", i), "1")))
			}
			r.Commit("2")
			f.known.getErr = errDisk
			err := f.PopBatch(func(b Batch) error { t.Errorf("batch %s", describe(b)); return nil })
			if !errors.Is(err, errDisk) || !errors.Is(f.failure(), errDisk) {
				t.Errorf("PopBatch returned %v", err)
			}
		})
	}
}

func loss(rv string) *LostError { return &LostError{RV: rv, Err: errDisk} }

// wantLoss checks that Failed delivers a LostError.
func (f *fixture) wantLoss(rv string) {
	f.Helper()
	var lost *LostError
	if err := f.failure(); !errors.As(err, &lost) || lost.RV != rv || !errors.Is(err, errDisk) {
		f.Errorf("Failed delivered %v, want the loss of %s", err, rv)
	}
}

// Another list would not tell what was deleted since.
func TestQueue_Fail_LossIsNotHealedByAQueuedList(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		f := newFixture(t, newKnown())
		f.must(f.Add(object("a", "1")))
		f.list("3", object("b", "3"))
		f.fail(loss("0"))
		if f.Len() != 0 {
			t.Errorf("%d items are left", f.Len())
		}
		f.wantLoss("0")
	})
}

func TestQueue_Fail_LossGivesUpAListThatWasNotMadeForIt(t *testing.T) {
	for name, parts := range map[string]int{"nothing queued": 1, "a part queued": 2} {
		t.Run(name, func(t *testing.T) {
			f := newStreaming(t, newKnown(), 1, 0)
			r := f.NewReplacement()
			for i := range parts {
				f.must(r.Add(object(fmt.Sprint("a", i), "1")))
			}
			f.Fail(errDisk)
			f.Fail(loss("5"))
			if err := r.Add(object("b", "1")); !errors.Is(err, ErrAbandoned) {
				t.Errorf("Add returned %v", err)
			}
			r.Commit("6")
			if f.Len() != 0 {
				t.Errorf("%d items are queued", f.Len())
			}
			f.wantLoss("5")
			f.list("5", object("a", "1"))
			f.wantAll(f.drain(), "Replaced a@1 rv=5 end")
		})
	}
}

// The objects are lost until they have been listed, whatever else fails meanwhile.
func TestQueue_Fail_LossLastsUntilAListIsApplied(t *testing.T) {
	f := newStreaming(t, newKnown(), 1, 0)
	f.Fail(loss("5"))
	f.wantLoss("5")
	f.list("5", object("a", "1"), object("b", "1"))
	f.pop()
	f.fail(errDisk)
	f.wantLoss("5")
	f.list("5", object("a", "1"), object("b", "1"))
	f.drain()
	f.Fail(errDisk)
	if err := f.failure(); !errors.Is(err, errDisk) || errors.As(err, new(*LostError)) {
		t.Errorf("Failed delivered %v", err)
	}
}

// What belonged to another cluster is not asked for again.
func TestQueue_Reset_ForgetsALoss(t *testing.T) {
	f := newStreaming(t, newKnown(), 1, 0)
	f.Fail(loss("5"))
	f.Reset()
	if err := f.failure(); err != nil {
		t.Errorf("Failed delivered %v", err)
	}
	f.pop()
	f.Fail(errDisk)
	if err := f.failure(); !errors.Is(err, errDisk) || errors.As(err, new(*LostError)) {
		t.Errorf("Failed delivered %v", err)
	}
}

// TestQueue_Limit checks what waits for room, and what ends the wait.
func TestQueue_Limit(t *testing.T) {
	pushes := map[string]func(*fixture) error{
		"Add":    func(f *fixture) error { return f.Add(object("new", "9")) },
		"Update": func(f *fixture) error { return f.Update(object("new", "9")) },
		"Delete": func(f *fixture) error { return f.Delete(object("new", "9")) },
		"list": func(f *fixture) error {
			r := f.NewReplacement()
			return errors.Join(r.Add(object("new", "9")), r.Add(object("new2", "9")))
		},
	}
	ends := map[string]struct {
		do      func(*fixture)
		listErr error
	}{
		"room":    {do: func(f *fixture) { f.pop() }},
		"failure": {do: func(f *fixture) { f.fail(errDisk) }},
		"loss":    {do: func(f *fixture) { f.fail(loss("1")) }, listErr: ErrAbandoned},
		"Close":   {do: func(f *fixture) { f.Close() }, listErr: ErrClosed},
	}
	for what, push := range pushes {
		for until, end := range ends {
			t.Run(what+" until "+until, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newStreaming(t, newKnown(), 1, 2)
					f.must(f.Add(object("a", "1")))
					f.must(f.Add(object("b", "2")))
					f.must(f.Bookmark("3"))
					f.CaughtUp(true)
					done := make(chan error, 1)
					go func() { done <- push(f) }()
					synctest.Wait()
					select {
					case err := <-done:
						t.Fatalf("did not wait: %v", err)
					default:
					}
					end.do(f)
					synctest.Wait()
					want := end.listErr
					if what != "list" {
						want = nil
					}
					if err := <-done; !errors.Is(err, want) {
						t.Errorf("returned %v, want %v", err, want)
					}
				})
			})
		}
	}
}

// What does not add to the objects that wait does not wait itself.
func TestQueue_Limit_HoldsUpObjectsOnly(t *testing.T) {
	f := newStreaming(t, newKnown(object("a", "1")), maxBatch, 1)
	f.must(f.Update(object("a", "2")))
	f.must(f.Update(object("a", "2"))) // a repetition
	f.must(f.Bookmark("3"))
	f.CaughtUp(false)
	f.Resync()
	r := f.NewReplacement()
	f.must(r.Add(object("a", "4")))
	r.Commit("4")
	f.Reset()
	if f.Len() != 6 {
		t.Errorf("%d items", f.Len())
	}
}

// sized is the size of an object: the length of its version.
func sized(obj any) int64 { return int64(len(version(obj))) }

// Large objects make batches and parts small, and the queue full, before there are many.
func TestQueue_Bytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKnown()
		f := &fixture{T: t, known: k, Queue: New(Options{Known: k, Stream: true, Bytes: 40, Size: sized})}
		r := f.NewReplacement()
		added := 0
		go func() {
			for n := range 9 {
				f.must(r.Add(object(fmt.Sprint(n), strings.Repeat("1", 10))))
				added++
			}
			r.Commit("1")
		}()
		synctest.Wait()
		if added != 5 { // four parts, and one that waits for room
			t.Errorf("%d objects of 10 bytes were read ahead, of 40 bytes that may wait", added)
		}
		for range 9 {
			if b := f.pop(); len(b.Deltas) != 1 {
				t.Errorf("a batch of a list has %d objects of 10 bytes, a quarter of 40", len(b.Deltas))
			}
			synctest.Wait()
		}
		f.must(f.Add(object("a", "333")))
		f.must(f.Add(object("b", "4444444")))
		f.must(f.Add(object("c", "5555555555")))
		f.must(f.Add(object("d", "6")))
		f.wantAll(f.drain(), "Added a@333, Added b@4444444 rv=4444444", "Added c@5555555555 rv=5555555555", "Added d@6 rv=6")
	})
}
