package fifo

import (
	"errors"
	"fmt"
	"testing"
)

var errDisk = errors.New("disk")

func TestQueue_Fail_DropsUntilTheNextList(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		f := newFixture(t, newKnown(object("a", "1")))
		f.must(f.Add(object("b", "2")))
		f.CaughtUp(true)
		f.Resync()
		f.must(f.Add(object("c", "3")))
		f.fail(errDisk)
		if f.Len() != 0 {
			t.Errorf("%d items are left", f.Len())
		}
		f.must(f.Add(object("d", "4")))
		f.must(f.Bookmark("5"))
		f.CaughtUp(true)
		if f.Len() != 0 {
			t.Errorf("%d items were queued after the failure", f.Len())
		}
		f.list("6", object("e", "6"))
		f.must(f.Add(object("f", "7")))
		f.CaughtUp(true)
		f.wantAll(f.drain(), "Deleted ?a@1, Replaced e@6 rv=6 end", "Added f@7 rv=7 caughtup=true")
	})
}

func TestQueue_Failed_SignalsOnce(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		f := newFixture(t, newKnown())
		f.must(f.Add(object("a", "1")))
		f.fail(errDisk)
		f.Fail(errors.New("another"))
		if err := f.failure(); !errors.Is(err, errDisk) {
			t.Errorf("Failed delivered %v, want the first error", err)
		}
		if err := f.failure(); err != nil {
			t.Errorf("Failed delivered %v too", err)
		}
		f.list("1")
		f.pop()
		f.must(f.Add(object("b", "2")))
		f.fail(errDisk)
		if f.failure() == nil {
			t.Error("the next failure is not signalled")
		}
	})
}

func TestQueue_Fail_HealedByAQueuedList(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		f := newFixture(t, newKnown())
		f.must(f.Add(object("a", "1")))
		f.Resync()
		f.list("2", object("b", "2"))
		f.must(f.Add(object("c", "3")))
		f.fail(errDisk)
		if err := f.failure(); err != nil {
			t.Errorf("Failed delivered %v although a list is queued", err)
		}
		f.wantAll(f.drain(), "Replaced b@2 rv=2 end", "Added c@3 rv=3")
	})
}

func TestReplacement_Commit_TakesTheSignalBack(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		f := newFixture(t, newKnown())
		f.must(f.Add(object("a", "1")))
		f.fail(errDisk)
		f.list("2")
		if err := f.failure(); err != nil {
			t.Errorf("Failed delivered %v after a list", err)
		}
	})
}

func TestQueue_Fail_WithinAList(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		f := newFixture(t, newKnown())
		r := f.NewReplacement()
		for i := range maxBatch + 1 {
			f.must(r.Add(object(fmt.Sprint(i), "1")))
		}
		r.Commit("2")
		f.must(f.Add(object("behind", "3")))
		f.want(Batch{List: f.pop().List}, "partial")
		f.fail(errDisk)
		if f.Len() != 0 || f.failure() == nil {
			t.Errorf("%d items are left", f.Len())
		}
		// Nothing of the first list may come after the failure: 999 of the 1000
		// objects that it brought are gone.
		f.list("4", object("0", "1"))
		if b := f.pop(); b.List != ListEnd || len(b.Deltas) != maxBatch-1 {
			t.Errorf("%d deltas, part %d", len(b.Deltas), b.List)
		}
		if len(f.known.objects) != 1 {
			t.Errorf("%d objects, want the one listed", len(f.known.objects))
		}
	})
}

func TestQueue_Fail_WithinAListBeforeAnother(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		f := newFixture(t, newKnown())
		f.list("1", object("a", "1"))
		f.must(f.Add(object("b", "2")))
		f.list("3", object("c", "3"))
		f.fail(errDisk)
		if err := f.failure(); err != nil {
			t.Errorf("Failed delivered %v", err)
		}
		f.wantAll(f.drain(), "Replaced c@3 rv=3 end")
	})
}

func TestQueue_Fail_KeepsAReset(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		f := newFixture(t, newKnown(object("foreign", "1")))
		f.must(f.Add(object("a", "2")))
		f.Reset()
		f.fail(errDisk)
		if err := f.failure(); err != nil {
			t.Errorf("Failed delivered %v although a list must follow the Reset", err)
		}
		f.list("1", object("b", "1"))
		f.wantAll(f.drain(), "reset", "Replaced b@1 rv=1 end")
	})
}

func TestQueue_Fail_ResetAfterwardsIsQueued(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		f := newFixture(t, newKnown(object("foreign", "1")))
		f.Fail(errDisk)
		f.Reset()
		f.must(f.Add(object("dropped", "2")))
		f.list("1")
		f.wantAll(f.drain(), "reset", "rv=1 end")
	})
}

func TestQueue_PopBatch_FailsWhenKnownObjectsCannotBeRead(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		for name, tc := range map[string]struct {
			breaks func(*known)
			queue  func(*fixture)
		}{
			"resync":       {func(k *known) { k.getErr = errDisk }, func(f *fixture) { f.Resync() }},
			"list, gone":   {func(k *known) { k.getErr = errDisk }, func(f *fixture) { f.list("2") }},
			"list, listed": {func(k *known) { k.unchangedErr = errDisk }, func(f *fixture) { f.list("2", object("a", "1")) }},
		} {
			t.Run(name, func(t *testing.T) {
				k := newKnown(object("a", "1"))
				f := newFixture(t, k)
				tc.breaks(k)
				tc.queue(f)
				f.must(f.Add(object("behind", "3")))
				err := f.PopBatch(func(b Batch) error { t.Errorf("batch %s", describe(b)); return nil })
				if !errors.Is(err, errDisk) || f.Len() != 0 || !errors.Is(f.failure(), errDisk) {
					t.Fatalf("PopBatch returned %v with %d items left", err, f.Len())
				}
				k.getErr, k.unchangedErr = nil, nil
				f.list("4", object("a", "4"))
				f.want(f.pop(), "Replaced a@4 rv=4 end")
			})
		}
	})
}
