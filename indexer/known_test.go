package indexer

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/warmcache/warmcache/fifo"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

var _ fifo.KnownObjects = &Known{}

// comparisons are pods that are compared with pod("a", "1", "x").
var comparisons = []struct {
	name      string
	pod       *corev1.Pod
	unchanged bool
}{
	{"equal", pod("a", "1", "x"), true},
	{"other version", pod("a", "2", "x"), false},
	{"same version, other content", pod("a", "1", "y"), false},
	{"same version, other UID", withUID(pod("a", "1", "x"), "uid-2"), false},
	{"absent", pod("b", "1", "x"), false},
}

// unchanged compares all of comparisons, in one call.
func unchanged(t *testing.T, x *Indexer) []bool {
	t.Helper()
	var keys []string
	var objs []any
	for _, c := range comparisons {
		keys, objs = append(keys, "ns/"+c.pod.Name), append(objs, c.pod)
	}
	got, err := x.Known().Unchanged(keys, objs)
	if err != nil || len(got) != len(keys) {
		t.Fatalf("Unchanged: %v, %v", got, err)
	}
	return got
}

func TestKnown_KeysIn(t *testing.T) {
	x := New(Options{})
	for _, name := range []string{"c", "a", "d", "b"} {
		if err := x.Add(pod(name, "1", "")); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		after, upTo string
		limit       int
		want        string
	}{
		{"", "", 9, "[ns/a ns/b ns/c ns/d]"},
		{"ns/a", "ns/c", 9, "[ns/b ns/c]"},
		{"ns/b", "", 1, "[ns/c]"},
		{"ns/d", "", 9, "[]"},
	} {
		var got []string
		err := x.Known().KeysIn(test.after, test.upTo, func(key string) bool {
			got = append(got, key)
			return len(got) < test.limit
		})
		if fmt.Sprint(got) != test.want || err != nil {
			t.Errorf("behind %q up to %q: %v, %v, want %s", test.after, test.upTo, got, err, test.want)
		}
	}
}

func TestKnown_Unchanged(t *testing.T) {
	memory := New(Options{})
	if err := memory.Add(pod("a", "1", "x")); err != nil {
		t.Fatal(err)
	}
	persistent := start(t, storetest.NewMemory(), startOptions{})
	persistent.list("1", pod("a", "1", "x"))
	suspended := start(t, storetest.NewMemory(), refuse("a", store.ErrClosed))
	suspended.list("1", pod("a", "1", "x"))
	for name, x := range map[string]*Indexer{"memory": memory, "file": persistent.Indexer, "suspended": suspended.Indexer} {
		for i, got := range unchanged(t, x) {
			if c := comparisons[i]; got != c.unchanged {
				t.Errorf("%s, %s: unchanged is %t", name, c.name, got)
			}
		}
	}
	if got, err := memory.Known().Unchanged(nil, nil); len(got) != 0 || err != nil {
		t.Errorf("nothing to compare: %v, %v", got, err)
	}
}

func TestKnown_Unchanged_OtherVersionsAreNotEncoded(t *testing.T) {
	encoded := 0
	p := start(t, storetest.NewMemory(), startOptions{
		codec: picky{Codec: podCodec(t), encode: func(*corev1.Pod) error { encoded++; return nil }},
	})
	p.list("1", pod("a", "1", "x"))
	encoded = 0
	keys, objs := []string{"ns/a", "ns/b"}, []any{pod("a", "2", "x"), pod("b", "1", "x")}
	if _, err := p.Known().Unchanged(keys, objs); err != nil || encoded != 0 {
		t.Errorf("%d objects were encoded, %v", encoded, err)
	}
}

// The record decides, not the object in memory, which a caller may have mutated.
func TestKnown_Unchanged_ComparesTheRecord(t *testing.T) {
	p := start(t, storetest.NewMemory(), startOptions{})
	a := pod("a", "1", "x")
	p.list("1", a)
	a.Annotations["apps"] = "mutated"
	same, err := p.Known().Unchanged([]string{"ns/a", "ns/a"}, []any{pod("a", "1", "x"), pod("a", "1", "mutated")})
	if err != nil || !slices.Equal(same, []bool{true, false}) {
		t.Errorf("unchanged %v, %v", same, err)
	}
}

// What cannot be compared counts as changed: an error would make every list fail
// in the same place.
func TestKnown_Unchanged_CannotBeCompared(t *testing.T) {
	damaged := fmt.Errorf("%w: test", store.ErrCorrupt)
	var get, view error
	var encode error
	s := &spy{
		onView: func() error { return view },
		tx:     func(tx store.Tx) store.Tx { return damagedTx{Tx: tx, get: get} },
	}
	p := start(t, storetest.NewMemory(), startOptions{
		wrap:  s.around,
		codec: picky{Codec: podCodec(t), encode: func(*corev1.Pod) error { return encode }},
	})
	p.list("1", pod("a", "1", "x"))
	for name, fail := range map[string]func(){
		"record": func() { get = damaged },
		"file":   func() { view = damaged },
		"closed": func() { view = store.ErrClosed },
		"encode": func() { encode = errors.New("test") },
	} {
		get, view, encode = nil, nil, nil
		if !unchanged(t, p.Indexer)[0] {
			t.Fatal("an equal object counts as changed")
		}
		if fail(); slices.Contains(unchanged(t, p.Indexer), true) {
			t.Errorf("%s: counts as unchanged", name)
		}
	}
}

func TestKnown_IsWhatTheIndexerServes(t *testing.T) {
	p := start(t, storetest.NewMemory(), startOptions{})
	a := pod("a", "1", "x")
	p.list("1", a)
	known := p.Known()
	if got := known.ListKeys(); !slices.Equal(got, []string{"ns/a"}) {
		t.Errorf("keys %v", got)
	}
	if item, exists, err := known.GetByKey("ns/a"); item != any(a) || !exists || err != nil {
		t.Errorf("GetByKey: %v, %t, %v", item, exists, err)
	}
	if item, exists, err := known.GetByKey("ns/b"); item != nil || exists || err != nil {
		t.Errorf("GetByKey: %v, %t, %v", item, exists, err)
	}
}
