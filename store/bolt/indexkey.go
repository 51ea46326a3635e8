package bolt

import (
	"bytes"
	"fmt"

	"github.com/warmcache/warmcache/store"
)

// A pair of strings is stored as one key that sorts as the pair does: an index
// entry is (value, object key), a departed record (object key, UID). The first
// string is escaped and terminated, the second follows verbatim:
//
//	0x00        is written as 0x00 0xff
//	the end     is written as 0x00 0x01
//
// The terminator is smaller than what any longer string has in its place, so
// that "a" comes before "a\x00" and before "ab". All pairs with the same first
// string share a prefix, and 0x00 0x02 in place of its terminator is greater
// than all of them.
const (
	pairEscape     = 0x00
	pairEscapedNul = 0xff
	pairEnd        = 0x01
	pairAfter      = 0x02
)

// appendPair appends the encoding of (first, second) to dst. With an empty
// second it is the prefix of all pairs that begin with first.
func appendPair(dst []byte, first, second string) []byte {
	for i := range len(first) {
		dst = append(dst, first[i])
		if first[i] == pairEscape {
			dst = append(dst, pairEscapedNul)
		}
	}
	dst = append(dst, pairEscape, pairEnd)
	return append(dst, second...)
}

// encodePair is appendPair to a new slice of the right size.
func encodePair(first, second string) []byte {
	return appendPair(make([]byte, 0, len(first)+2+len(second)), first, second)
}

// splitPair decodes a pair. The second string shares memory with b, and so does
// the first unless it had to be unescaped. Bytes that appendPair cannot have
// written give an error wrapping store.ErrCorrupt.
func splitPair(b []byte) (first, second []byte, err error) {
	end := pairPrefixLen(b)
	if end < 0 {
		return nil, nil, fmt.Errorf("%w: %q is not an encoded pair", store.ErrCorrupt, b)
	}
	first = b[:end-2]
	if bytes.IndexByte(first, pairEscape) >= 0 {
		first = bytes.ReplaceAll(first, []byte{pairEscape, pairEscapedNul}, []byte{pairEscape})
	}
	return first, b[end:], nil
}

// pairPrefixLen returns the length of the first string with its terminator, or
// -1 if there is none.
func pairPrefixLen(b []byte) int {
	for i := 0; i+1 < len(b); i++ {
		if b[i] != pairEscape {
			continue
		}
		switch b[i+1] {
		case pairEnd:
			return i + 2
		case pairEscapedNul:
			i++
		default:
			return -1
		}
	}
	return -1
}

// appendAfterPrefix appends the smallest key that is greater than every pair
// with the same first string as the pair b.
func appendAfterPrefix(dst, b []byte) []byte {
	end := pairPrefixLen(b)
	dst = append(dst, b[:end-1]...)
	return append(dst, pairAfter)
}
