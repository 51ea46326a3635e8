package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

const checksumSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Seal appends the CRC32C of b to b and returns the result, which is how every
// value of a collection ends.
func Seal(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// Unseal returns value without its checksum, sharing its memory, or an error
// wrapping ErrCorrupt if the checksum does not hold.
func Unseal(value []byte) ([]byte, error) {
	n := len(value) - checksumSize
	if n < 0 {
		return nil, fmt.Errorf("%w: record of %d bytes is too short", ErrCorrupt, len(value))
	}
	if crc32.Checksum(value[:n], castagnoli) != binary.BigEndian.Uint32(value[n:]) {
		return nil, fmt.Errorf("%w: record checksum mismatch", ErrCorrupt)
	}
	return value[:n], nil
}

// Sum is what one record adds to the sum of its collection: a hash of the key
// and of the record's checksum. It does not verify the record.
//
// The stored checksum is used as it is. Another CRC over the sealed value would
// be the same constant for every content, because it covers its own checksum.
func Sum(key string, value []byte) uint64 {
	var sum uint64
	if n := len(value) - checksumSize; n >= 0 {
		sum = uint64(binary.BigEndian.Uint32(value[n:]))
	}
	// FNV-1a over the key, seeded with the checksum, then a finaliser
	// (splitmix64) so that sums of similar keys do not cancel out.
	sum ^= 14695981039346656037
	for i := range len(key) {
		sum = (sum ^ uint64(key[i])) * 1099511628211
	}
	sum = (sum ^ sum>>30) * 0xbf58476d1ce4e5b9
	sum = (sum ^ sum>>27) * 0x94d049bb133111eb
	return sum ^ sum>>31
}
