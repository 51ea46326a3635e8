package store

import (
	"bytes"
	"errors"
	"testing"
)

func TestUnseal_ReturnsWhatWasSealed(t *testing.T) {
	for _, b := range [][]byte{{}, []byte("record"), bytes.Repeat([]byte{0xff}, 5000)} {
		got, err := Unseal(Seal(bytes.Clone(b)))
		if err != nil || !bytes.Equal(got, b) {
			t.Errorf("Unseal(Seal(%d bytes)): %d bytes, %v", len(b), len(got), err)
		}
	}
}

func TestUnseal_NoticesEveryBit(t *testing.T) {
	sealed := Seal([]byte("record"))
	for bit := range len(sealed) * 8 {
		damaged := bytes.Clone(sealed)
		damaged[bit/8] ^= 1 << (bit % 8)
		if _, err := Unseal(damaged); !errors.Is(err, ErrCorrupt) {
			t.Errorf("bit %d: %v, want ErrCorrupt", bit, err)
		}
	}
	for n := range sealed {
		if _, err := Unseal(sealed[:n]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("first %d bytes: %v, want ErrCorrupt", n, err)
		}
	}
}

// A checksum over a sealed value would be the same for every content.
func TestSum_DependsOnKeyAndContent(t *testing.T) {
	seen := map[uint64]string{}
	for _, key := range []string{"", "a", "b", "a/b", "b/a"} {
		for _, content := range []string{"", "1", "2", "12", "21"} {
			sum := Sum(key, Seal([]byte(content)))
			if other, ok := seen[sum]; ok {
				t.Errorf("%q=%q sums up like %s", key, content, other)
			}
			seen[sum] = key + "=" + content
		}
	}
}

// Swapping two records must not cancel out.
func TestTotals_SwappedRecords(t *testing.T) {
	one, two := Seal([]byte("1")), Seal([]byte("2"))
	var right, swapped Totals
	right.Add("a", one)
	right.Add("b", two)
	swapped.Add("a", two)
	swapped.Add("b", one)
	if right == swapped {
		t.Error("totals do not notice that two records were swapped")
	}
	right.Remove("a", one)
	right.Remove("b", two)
	if right != (Totals{}) {
		t.Errorf("totals after removing everything: %+v", right)
	}
}

func FuzzUnseal(f *testing.F) {
	for _, seed := range [][]byte{{}, {1, 2, 3}, Seal(nil), Seal([]byte("record")), []byte("record")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		got, err := Unseal(value)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("got %v, want ErrCorrupt", err)
			}
			return
		}
		if !bytes.Equal(Seal(bytes.Clone(got)), value) {
			t.Errorf("%x reads as %x", value, got)
		}
	})
}
