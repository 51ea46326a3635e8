package fifo

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestReplacement_ReconcilesWithWhatIsKnown(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		f := newFixture(t, newKnown(object("same", "1"), object("changed", "1"), object("gone", "2"), object("also-gone", "3")))
		f.list("9", object("changed", "5"), object("same", "1"), object("new", "4"))
		f.want(f.pop(), "Deleted ?also-gone@3, Deleted ?gone@2, Replaced changed@5, Replaced new@4 rv=9 end")
		if len(f.known.objects) != 3 {
			t.Errorf("known: %v", f.known.objects)
		}
	})
}

func TestReplacement_UnreadableObjectsGetTheirDelete(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		k := newKnown()
		k.unreadable["ns/a"] = true
		f := newFixture(t, k)
		f.list("1")
		f.want(f.pop(), "Deleted ?a rv=1 end")
	})
}

func TestReplacement_WhatVanishedBeforeItsTurnHasNoDelete(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		k := newKnown(object("a", "1"), object("b", "1"))
		k.onList = func() { delete(k.objects, "ns/a") }
		f := newFixture(t, k)
		f.list("2")
		f.want(f.pop(), "Deleted ?b@1 rv=2 end")
	})
}

func TestReplacement_NothingChanged(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		f := newFixture(t, newKnown(object("a", "1")))
		f.list("2", object("a", "1"))
		f.want(f.pop(), "rv=2 end")
	})
}

func TestReplacement_Empty(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		f := newFixture(t, newKnown())
		f.list("1")
		f.want(f.pop(), "rv=1 end")
		f = newFixture(t, newKnown(object("a", "1")))
		f.list("2")
		f.want(f.pop(), "Deleted ?a@1 rv=2 end")
	})
}

// An object that is only in the queue when the list arrives without it has its
// delete, kubernetes/kubernetes#115658.
func TestReplacement_ReconcilesWhenItIsReached(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		f := newFixture(t, newKnown(object("deleted", "1")))
		f.must(f.Add(object("short-lived", "2")))
		f.must(f.Delete(object("deleted", "3")))
		f.must(f.Add(object("same", "4")))
		f.list("5", object("same", "4"))
		f.wantAll(f.drain(), "Added short-lived@2, Deleted deleted@3, Added same@4 rv=4", "Deleted ?short-lived@2 rv=5 end")
	})
}

func TestReplacement_ListAfterList(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		f := newFixture(t, newKnown())
		f.list("1", object("a", "1"), object("b", "1"))
		f.list("3", object("b", "2"), object("c", "3"))
		f.wantAll(f.drain(), "Replaced a@1, Replaced b@1 rv=1 end", "Deleted ?a@1, Replaced b@2, Replaced c@3 rv=3 end")
	})
}

func TestReplacement_OnlyTheEndHasTheVersion(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		// 1500 deletes, 1200 changes and, at the end, 1000 that are the same.
		k := newKnown()
		f := newFixture(t, k)
		r := f.NewReplacement()
		for i := range 1500 {
			k.objects[fmt.Sprintf("ns/gone-%d", i)] = object(fmt.Sprintf("gone-%d", i), "1")
		}
		for i := range 1200 {
			f.must(r.Add(object(fmt.Sprintf("new-%d", i), "2")))
		}
		for i := range maxBatch {
			obj := object(fmt.Sprintf("same-%d", i), "1")
			k.objects["ns/"+obj.Name] = obj
			f.must(r.Add(obj))
		}
		r.Commit("3")
		f.must(f.Add(object("later", "4")))

		batches := f.drain()
		deltas := 0
		for i, b := range batches {
			deltas += len(b.Deltas)
			if len(b.Deltas) > maxBatch {
				t.Errorf("batch of %d deltas", len(b.Deltas))
			}
			want := Batch{List: ListPartial}
			switch i {
			case len(batches) - 2:
				want = Batch{List: ListEnd, RV: "3"}
			case len(batches) - 1:
				want = Batch{RV: "4"}
			}
			if b.List != want.List || b.RV != want.RV {
				t.Errorf("batch %d of %d: list part %d at %q, want %d at %q", i, len(batches), b.List, b.RV, want.List, want.RV)
			}
		}
		if deltas != 1500+1200+1 {
			t.Errorf("%d deltas", deltas)
		}
		if k.largest > maxBatch {
			t.Errorf("compared %d objects at once", k.largest)
		}
	})
}

func TestReplacement_Add_LastOneOfAKeyWins(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		f := newFixture(t, newKnown(object("b", "3")))
		r := f.NewReplacement()
		f.must(r.Add(object("a", "1")))
		f.must(r.Add(object("b", "1")))
		f.must(r.Add(object("a", "2")))
		f.must(r.Add(object("b", "3")))
		r.Commit("4")
		f.want(f.pop(), "Replaced a@2 rv=4 end")
	})
}

func TestReplacement_Remove(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		f := newFixture(t, newKnown(object("removed", "1")))
		r := f.NewReplacement()
		for _, name := range []string{"removed", "unknown", "again"} {
			if name != "unknown" {
				f.must(r.Add(object(name, "1")))
			}
			f.must(r.Remove(object(name, "2")))
		}
		f.must(r.Add(object("again", "3")))
		r.Commit("4")
		f.want(f.pop(), "Deleted ?removed@1, Replaced again@3 rv=4 end")
	})
}

func TestReplacement_AllRemoved(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		f := newFixture(t, newKnown())
		r := f.NewReplacement()
		f.must(r.Add(object("a", "1")))
		f.must(r.Remove(object("a", "2")))
		r.Commit("3")
		f.want(f.pop(), "rv=3 end")
	})
}

func TestReplacement_DroppedLeavesNoTrace(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		f := newFixture(t, newKnown())
		f.must(f.NewReplacement().Add(object("a", "1")))
		if f.Len() != 0 {
			t.Errorf("%d items before Commit", f.Len())
		}
	})
}

func TestReplacement_IsComparedAfterTheTransform(t *testing.T) {
	k := newKnown(object("a", "transformed"))
	f := &fixture{T: t, known: k, Queue: New(Options{Known: k, Transform: func(obj any) (any, error) {
		out := obj.(*metav1.PartialObjectMetadata).DeepCopy()
		out.ResourceVersion = "transformed"
		return out, nil
	}})}
	f.list("2", object("a", "1"))
	f.want(f.pop(), "rv=2 end")
}

func TestReplacement_Keep(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		f := newFixture(t, newKnown(object("kept", "1"), object("changed", "1"), object("gone", "1")))
		r := f.NewReplacement()
		f.must(r.Add(object("changed", "2")))
		f.must(r.Keep("ns/kept", "", "1"))
		r.Commit("3")
		f.want(f.pop(), "Deleted ?gone@1, Replaced changed@2 rv=3 end")
		if !f.known.has("kept", "1") {
			t.Errorf("known: %v", f.known.objects)
		}
	})
}

// What a list has left out may not be there any more when the list is applied.
func TestReplacement_Keep_WhatIsNotThere(t *testing.T) {
	eachKind(t, func(t *testing.T, newFixture makeFixture) {
		for name, change := range map[string]func(*known){
			"another version": func(k *known) { k.objects["ns/kept"] = object("kept", "2") },
			"gone":            func(k *known) { delete(k.objects, "ns/kept") },
			"unreadable":      func(k *known) { k.getErr = errDisk },
		} {
			f := newFixture(t, newKnown(object("kept", "1")))
			r := f.NewReplacement()
			f.must(r.Keep("ns/kept", "", "1"))
			r.Commit("3")
			change(f.known)
			if err := f.PopBatch(func(b Batch) error { t.Errorf("%s: batch %s", name, describe(b)); return nil }); err == nil || f.failure() == nil {
				t.Errorf("%s: PopBatch returned %v", name, err)
			}
		}
	})
}
