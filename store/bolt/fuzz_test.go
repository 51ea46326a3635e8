package bolt

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmcache/warmcache/store"
)

// Each target below gets any bytes as they are and sealed, which gets them past
// the checksum. What is not a record must be called damaged; what is must be
// the same when it is written and read again.
func sealedToo(data []byte) [][]byte {
	return [][]byte{data, store.Seal(bytes.Clone(data))}
}

// addDamaged seeds f with sealed values, whole, bare, cut off, and with a bit
// flipped.
func addDamaged(f *testing.F, sealed ...[]byte) {
	f.Add([]byte{})
	for _, value := range sealed {
		bare := value[:len(value)-4]
		flipped := bytes.Clone(value)
		flipped[len(value)/2] ^= 0x10
		for _, seed := range [][]byte{value, bare, bare[:len(bare)/2], flipped} {
			f.Add(seed)
		}
	}
}

// damagedOnly reports an error that does not say that the data is damaged.
func damagedOnly(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, store.ErrCorrupt) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %q, want one line and ErrCorrupt", err)
	}
}

func FuzzDecodeHeader(f *testing.F) {
	full := store.Header{
		RV: "12", Complete: true, Fingerprint: "f", Cluster: "c", Schema: "s", Clean: true, NoBookmarks: true, Replays: true, Newest: store.ObjectRef{Key: "a/b", UID: "u", RV: "11"},
		Indices: map[string]string{"node": "1", "": ""}, Contact: time.Unix(1, 2),
	}
	for _, h := range []store.Header{{}, full} {
		sealed, err := encodeHeader(&h)
		if err != nil {
			f.Fatal(err)
		}
		addDamaged(f, sealed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, sealed := range sealedToo(data) {
			h, err := decodeHeader(sealed)
			if err != nil {
				damagedOnly(t, err)
				continue
			}
			again, err := encodeHeader(&h)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := decodeHeader(again); err != nil || cmp.Diff(h, got) != "" {
				t.Errorf("%+v came back as %+v, %v", h, got, err)
			}
		}
	})
}

func FuzzDecodeTotals(f *testing.F) {
	totals := totalsRecord{objects: store.Totals{Count: 1, Bytes: 2, Sum: 3}, departed: store.Totals{Count: 4, Bytes: 5, Sum: 6}}
	index := indexTotals{count: 6, sum: 7}
	addDamaged(f, totals.encode(), index.encode(), encodeFormat(1))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, sealed := range sealedToo(data) {
			if totals, err := decodeTotals(sealed); err != nil {
				damagedOnly(t, err)
			} else if !bytes.Equal(totals.encode(), sealed) {
				t.Errorf("%x reads as %+v", sealed, totals)
			}
			if totals, err := decodeIndexTotals(sealed); err != nil {
				damagedOnly(t, err)
			} else if !bytes.Equal(totals.encode(), sealed) {
				t.Errorf("%x reads as %+v", sealed, totals)
			}
			if version, err := decodeFormat(sealed); err != nil {
				damagedOnly(t, err)
			} else if version < 1 {
				t.Errorf("%x reads as format %d", sealed, version)
			}
		}
	})
}

func FuzzDecodeDeparted(f *testing.F) {
	key := encodePair("ns/a", "uid")
	value := encodeDeparted(key, time.Unix(1, 2), 3, time.Minute, store.Seal([]byte("object")))
	for _, k := range [][]byte{key, {}, {0}, []byte("ns/a")} {
		f.Add(k, value)
		f.Add(k, value[:len(value)-4])
		f.Add(k, value[:5])
	}
	f.Fuzz(func(t *testing.T, key, data []byte) {
		// The checksum is of the key too.
		sealed := store.Seal(append(bytes.Clone(key), data...))[len(key):]
		for _, stored := range [][]byte{data, sealed} {
			d, err := decodeDeparted(key, stored)
			if err != nil {
				damagedOnly(t, err)
				continue
			}
			if again := encodeDeparted(key, d.Since, d.Attempts, d.Age, d.Value); !bytes.Equal(again, stored) {
				t.Errorf("%x reads as %+v", stored, d)
			}
		}
	})
}

// FuzzOwner reads any lock file, and has an owner begin with it. Nothing in it may
// keep a file from being opened for more than one quarantine, or break the lines
// of a log.
func FuzzOwner(f *testing.F) {
	for _, record := range []ownerRecord{
		{},
		{Owner: Owner{Host: "pod-1", PID: 1, Since: time.Unix(1, 0).UTC()}, Boot: bootID(), Inode: 1, Phase: phaseOpening, Strikes: maxStrikes},
		{Owner: Owner{Host: "a\nb", PID: 1}, Inode: 1, Phase: phaseDamaged},
	} {
		content, err := json.Marshal(record)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
		f.Add(content[:len(content)/2])
		f.Add(append(content, "     \n"...))
	}
	path := filepath.Join(f.TempDir(), "lock")
	f.Fuzz(func(t *testing.T, content []byte) {
		found := decodeOwner(content)
		locked := &LockedError{Path: "cache.db", Owner: found.Owner}
		if strings.ContainsAny(locked.Error(), "\n\r\x1b") {
			t.Errorf("not one line: %q", locked)
		}
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		l := &lockFile{file: file, found: found}
		if condemned := l.begin(1); condemned != "" && (found.Inode != 1 || found.Phase != phaseDamaged && found.Phase != phaseOpening) {
			t.Errorf("condemned: %s", condemned)
		}
		l.opened(1)
		if got := readOwner(file); got != l.mu.record {
			t.Errorf("wrote %+v, read %+v", l.mu.record, got)
		}
		if condemned := (&lockFile{file: file, found: readOwner(file)}).begin(1); condemned != "" {
			t.Errorf("an open file is condemned: %s", condemned)
		}
	})
}
