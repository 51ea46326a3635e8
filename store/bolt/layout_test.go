package bolt

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmcache/warmcache/store"
)

func TestHeader_RoundTrip(t *testing.T) {
	for _, want := range []store.Header{
		{},
		{RV: "1", Complete: true, Fingerprint: "f", Cluster: "c", Schema: "s", Clean: true, NoBookmarks: true, Replays: true, Newest: store.ObjectRef{Key: "a/b", UID: "u", RV: "11"}, Indices: map[string]string{"a": "b"}},
		{Contact: time.Date(2026, 5, 6, 7, 8, 9, 10, time.UTC)},
		{Contact: time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC)},
		{Contact: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		sealed, err := encodeHeader(&want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeHeader(sealed)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("header (-want +got):\n%s", diff)
		}
	}
}

// TestEncodings_EveryDamagedByteIsFound flips each bit of everything that the
// engine itself encodes.
func TestEncodings_EveryDamagedByteIsFound(t *testing.T) {
	header, err := encodeHeader(&store.Header{RV: "1", Indices: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	totals := totalsRecord{objects: store.Totals{Count: 1, Bytes: 2, Sum: 3}, departed: store.Totals{Count: 4, Bytes: 5, Sum: 6}}
	index := indexTotals{count: 1, sum: 2}
	key := encodePair("a", "uid")
	for name, c := range map[string]struct {
		encoded []byte
		decode  func([]byte) error
	}{
		"header":   {header, func(b []byte) error { _, err := decodeHeader(b); return err }},
		"totals":   {totals.encode(), func(b []byte) error { _, err := decodeTotals(b); return err }},
		"index":    {index.encode(), func(b []byte) error { _, err := decodeIndexTotals(b); return err }},
		"format":   {encodeFormat(12), func(b []byte) error { _, err := decodeFormat(b); return err }},
		"departed": {encodeDeparted(key, time.Now(), 1, 0, store.Seal([]byte("x"))), func(b []byte) error { _, err := decodeDeparted(key, b); return err }},
	} {
		if err := c.decode(c.encoded); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for bit := range len(c.encoded) * 8 {
			damaged := bytes.Clone(c.encoded)
			damaged[bit/8] ^= 1 << (bit % 8)
			if err := c.decode(damaged); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%s with bit %d flipped: got %v, want ErrCorrupt", name, bit, err)
			}
		}
		for n := range c.encoded {
			if err := c.decode(c.encoded[:n]); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%s cut to %d bytes: got %v, want ErrCorrupt", name, n, err)
			}
		}
	}
	if _, err := decodeDeparted(encodePair("b", "uid"), encodeDeparted(key, time.Now(), 1, 0, nil)); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("departed record under another key: got %v, want ErrCorrupt", err)
	}
}

func TestTotals_RoundTrip(t *testing.T) {
	want := totalsRecord{objects: store.Totals{Count: 1, Bytes: 2, Sum: 1 << 63}, departed: store.Totals{Count: 4, Bytes: 5, Sum: 6}}
	if got, err := decodeTotals(want.encode()); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}
