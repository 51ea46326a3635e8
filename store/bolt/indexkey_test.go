package bolt

import (
	"bytes"
	"cmp"
	"errors"
	"testing"

	"github.com/warmcache/warmcache/store"
)

var pairSeeds = []string{"", "a", "a\x00", "a\x00\x01", "a\x00\xff", "a\x01", "ab", "\x00", "\x00\x00", "\x01", "\x02", "\xff", "\xff\xff"}

func FuzzPair_OrderAndRoundTrip(f *testing.F) {
	for i, first := range pairSeeds {
		for j, second := range pairSeeds {
			f.Add(first, second, pairSeeds[(i+1)%len(pairSeeds)], pairSeeds[(j+5)%len(pairSeeds)])
			f.Add(first, second, first, pairSeeds[(j+1)%len(pairSeeds)])
		}
	}
	f.Fuzz(func(t *testing.T, first, second, otherFirst, otherSecond string) {
		a, b := encodePair(first, second), encodePair(otherFirst, otherSecond)
		want := cmp.Or(cmp.Compare(first, otherFirst), cmp.Compare(second, otherSecond))
		if got := bytes.Compare(a, b); got != want {
			t.Errorf("(%q, %q) against (%q, %q): got %d, want %d", first, second, otherFirst, otherSecond, got, want)
		}
		gotFirst, gotSecond, err := splitPair(a)
		if err != nil || string(gotFirst) != first || string(gotSecond) != second {
			t.Errorf("(%q, %q) came back as (%q, %q), %v", first, second, gotFirst, gotSecond, err)
		}
		// After the prefix come exactly the pairs with a greater first string.
		after := appendAfterPrefix(nil, a)
		if got, want := bytes.Compare(after, b) < 0, otherFirst > first; got != want {
			t.Errorf("after %q, against (%q, %q): got %v, want %v", first, otherFirst, otherSecond, got, want)
		}
		if samePrefix := bytes.HasPrefix(b, encodePair(first, "")); samePrefix != (first == otherFirst) {
			t.Errorf("%q and %q share a prefix: %v", first, otherFirst, samePrefix)
		}
	})
}

func FuzzSplitPair_Garbage(f *testing.F) {
	for _, seed := range []string{"", "a", "\x00", "a\x00", "a\x00\x03b", "\x00\xff\x00", "\x00\x01"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		first, second, err := splitPair(b)
		if err != nil {
			if !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("got %v, want ErrCorrupt", err)
			}
			return
		}
		if again := encodePair(string(first), string(second)); !bytes.Equal(again, b) {
			t.Errorf("%q was read as (%q, %q), which is written as %q", b, first, second, again)
		}
	})
}
