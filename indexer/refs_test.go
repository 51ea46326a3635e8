package indexer

import (
	"slices"
	"testing"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

// TestIndexer_Refs checks, in either residency, which versions are said to be held: before
// and after they are loaded, and by a program that cannot read them.
func TestIndexer_Refs(t *testing.T) {
	a, b, none := store.ObjectRef{Key: "ns/a", UID: "uid-a", RV: "1"}, store.ObjectRef{Key: "ns/b", UID: "uid-b", RV: "2"}, store.ObjectRef{}
	for _, residency := range []Residency{Memory, Disk} {
		t.Run(residency.String(), func(t *testing.T) {
			file := storetest.NewMemory()
			o := startOptions{residency: residency}
			want := func(when string, p *process, want ...store.ObjectRef) {
				t.Helper()
				if got, err := p.Refs([]string{"ns/a", "ns/x", "ns/b"}); err != nil || !slices.Equal(got, want) {
					t.Errorf("%s: Refs are %v, %v; want %v", when, got, err, want)
				}
				holds, err := p.Known().Holds([]string{"ns/a"}, []string{"uid-a"}, []string{"1"})
				if err != nil || holds != (want[0] == a) {
					t.Errorf("%s: Holds = %t, %v", when, holds, err)
				}
			}
			p := start(t, file, o)
			want("empty", p, none, none, none)
			p.list("2", pod("a", "1", "x"), pod("b", "2", "x"))
			want("listed", p, a, none, b)
			p.apply(Update{RV: "3", Changes: departing(remove("a"))})
			want("deleted", p, none, none, b)
			p.apply(Update{RV: "4", Changes: departing(put(pod("a", "1", "x")))})

			p = attach(t, file, o)
			want("not loaded", p, a, none, b)
			p.load()
			want("loaded", p, a, none, b)

			o.fingerprint = "f2"
			p = attach(t, file, o)
			want("foreign, not loaded", p, none, none, none)
			p.load()
			want("foreign", p, none, none, none)
		})
	}
	t.Run("without a store", func(t *testing.T) {
		x := New(Options{})
		if err := x.Add(pod("a", "1", "x")); err != nil {
			t.Fatal(err)
		}
		if got, err := x.Refs([]string{"ns/a"}); err != nil || got[0] != a {
			t.Errorf("Refs are %v, %v", got, err)
		}
	})
}
