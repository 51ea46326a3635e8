package codec

import (
	"bytes"
	"errors"
	"testing"

	"github.com/warmcache/warmcache/store"
)

// addRecords seeds f with a record of each payload kind, sealed and bare.
func addRecords(f *testing.F) {
	for _, obj := range examples() {
		record := mustEncode(f, mustNew(f, obj), obj)
		f.Add(record, uint(0))
		f.Add(record[:len(record)-checksumSize], uint(len(record)))
	}
	f.Add([]byte{}, uint(0))
}

// variants are the records that a fuzz input stands for: the bytes as they are,
// and sealed, which gets them past the checksum and into the decoders.
func variants(data []byte) [][]byte {
	return [][]byte{data, store.Seal(bytes.Clone(data))}
}

// flipped returns a copy of record with one bit changed.
func flipped(record []byte, bit uint) []byte {
	out := bytes.Clone(record)
	bit %= uint(len(out)) * 8
	out[bit/8] ^= 1 << (bit % 8)
	return out
}

// FuzzDecode feeds every decoder. Whatever decodes must encode or say why not;
// whatever does not must be called damaged.
func FuzzDecode(f *testing.F) {
	addRecords(f)
	var codecs []*Codec
	for _, obj := range examples() {
		codecs = append(codecs, mustNew(f, obj))
	}
	f.Fuzz(func(t *testing.T, data []byte, bit uint) {
		for _, c := range codecs {
			for _, record := range append(variants(data), underEnvelope(c, data)) {
				obj, err := c.Decode(record)
				switch {
				case err != nil && !errors.Is(err, store.ErrCorrupt):
					t.Errorf("%v: %v", c.payload.kind(), err)
				case err == nil:
					checkDecoded(t, c, record, bit)
					if _, err := c.Encode(obj); err != nil && !errors.Is(err, ErrUnencodable) {
						t.Errorf("%v: %v", c.payload.kind(), err)
					}
				}
			}
		}
	})
}

// underEnvelope returns a record of c with any bytes as its payload.
func underEnvelope(c *Codec, payload []byte) []byte {
	s := getScratch()
	defer putScratch(s)
	if err := s.writeEnvelope(c.header(), Envelope{}); err != nil {
		panic(err)
	}
	return store.Seal(append(s.newRecord(0), payload...))
}

// checkDecoded checks what must hold for a record that decodes.
func checkDecoded(t *testing.T, c *Codec, record []byte, bit uint) {
	if _, err := c.Decode(flipped(record, bit)); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("%v: bit %d flipped: %v", c.payload.kind(), bit, err)
	}
}

// FuzzReadEnvelope is FuzzDecode for the envelope alone.
func FuzzReadEnvelope(f *testing.F) {
	addRecords(f)
	f.Fuzz(func(t *testing.T, data []byte, bit uint) {
		for _, record := range variants(data) {
			_, err := ReadEnvelope(record)
			if err != nil && !errors.Is(err, store.ErrCorrupt) {
				t.Error(err)
			}
			if err == nil {
				if _, err := ReadEnvelope(flipped(record, bit)); !errors.Is(err, store.ErrCorrupt) {
					t.Errorf("bit %d flipped: %v", bit, err)
				}
			}
		}
	})
}
