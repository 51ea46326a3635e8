package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/warmcache/warmcache/store"
)

// Since format 1. Buckets are flat: each level of nesting costs allocations on
// every Get. <id> is Identity.String, which has no "/" after its "?", so that
// i/<id>/<name> is unambiguous.
var (
	// metaBucket describes the file.
	metaBucket = []byte("meta")
	// formatKey → sealed decimal format version. Every version of this library,
	// past or future, must be able to read it.
	formatKey = []byte("format")
	// createdKey → sealed time of creation, RFC 3339.
	createdKey = []byte("created")
	// writerKey → sealed version of this library at creation.
	writerKey = []byte("writer")

	// headerPrefix<id> describes a collection and makes it exist.
	headerPrefix = "h/"
	// headerKey → sealed headerRecord; absent if no header was ever applied.
	headerKey = []byte("header")
	// totalsKey → sealed totalsRecord.
	totalsKey = []byte("totals")
	// indexTotalsPrefix<name> → sealed indexTotals.
	indexTotalsPrefix = "index/"

	// objectPrefix<id>: object key → sealed record.
	objectPrefix = "o/"
	// indexPrefix<id>/<name>: pair (index value, object key) → nothing.
	indexPrefix = "i/"
	// departedPrefix<id>: pair (object key, UID) → departed record.
	departedPrefix = "d/"
)

// bucketNames are the names of one collection's buckets.
type bucketNames struct {
	header, objects, departed []byte
	// indices is the prefix of the buckets of all indices.
	indices string
}

func namesOf(id store.Identity) bucketNames {
	s := id.String()
	return bucketNames{
		header:   []byte(headerPrefix + s),
		objects:  []byte(objectPrefix + s),
		departed: []byte(departedPrefix + s),
		indices:  indexPrefix + s + "/",
	}
}

func (n *bucketNames) index(name string) []byte { return []byte(n.indices + name) }

// of returns the name of the bucket of a key space.
func (n *bucketNames) of(s keySpace) []byte {
	switch {
	case s.departed:
		return n.departed
	case s.index != "":
		return n.index(s.index)
	default:
		return n.objects
	}
}

func indexTotalsKey(name string) []byte { return []byte(indexTotalsPrefix + name) }

// headerRecord is a store.Header as it is stored, sealed. Fields may be added;
// a reader that does not know them skips them.
type headerRecord struct {
	RV          string            `msgpack:"rv,omitempty"`
	Complete    bool              `msgpack:"complete,omitempty"`
	Fingerprint string            `msgpack:"fingerprint,omitempty"`
	Cluster     string            `msgpack:"cluster,omitempty"`
	Indices     map[string]string `msgpack:"indices,omitempty"`
	// Contact is in seconds and nanoseconds since 1970; absent if it is zero.
	Contact     []int64 `msgpack:"contact,omitempty"`
	Clean       bool    `msgpack:"clean,omitempty"`
	NoBookmarks bool    `msgpack:"noBookmarks,omitempty"`
	Replays     bool    `msgpack:"replays,omitempty"`
	Schema      string  `msgpack:"schema,omitempty"`
	// Newest has key, UID and RV; absent if there is none.
	Newest []string `msgpack:"newest,omitempty"`
}

func encodeHeader(h *store.Header) ([]byte, error) {
	record := headerRecord{
		RV: h.RV, Complete: h.Complete, Fingerprint: h.Fingerprint, Cluster: h.Cluster,
		Indices: h.Indices, NoBookmarks: h.NoBookmarks, Replays: h.Replays, Clean: h.Clean, Schema: h.Schema,
	}
	if h.Newest != (store.ObjectRef{}) {
		record.Newest = []string{h.Newest.Key, h.Newest.UID, h.Newest.RV}
	}
	if !h.Contact.IsZero() {
		record.Contact = []int64{h.Contact.Unix(), int64(h.Contact.Nanosecond())}
	}
	b, err := msgpack.Marshal(&record)
	if err != nil {
		return nil, fmt.Errorf("encode header: %w", err)
	}
	return store.Seal(b), nil
}

func decodeHeader(sealed []byte) (store.Header, error) {
	b, err := store.Unseal(sealed)
	if err != nil {
		return store.Header{}, fmt.Errorf("header: %w", err)
	}
	var record headerRecord
	if err := msgpack.Unmarshal(b, &record); err != nil {
		return store.Header{}, fmt.Errorf("header: %w: %w", store.ErrCorrupt, err)
	}
	h := store.Header{
		RV: record.RV, Complete: record.Complete, Fingerprint: record.Fingerprint, Cluster: record.Cluster,
		Indices: record.Indices, NoBookmarks: record.NoBookmarks, Replays: record.Replays, Clean: record.Clean, Schema: record.Schema,
	}
	if len(record.Newest) == 3 {
		h.Newest = store.ObjectRef{Key: record.Newest[0], UID: record.Newest[1], RV: record.Newest[2]}
	}
	if len(record.Contact) == 2 {
		h.Contact = time.Unix(record.Contact[0], record.Contact[1])
	}
	return h.Clone(), nil
}

// totalsRecord counts a collection. It is stored as six big-endian 64-bit numbers
// in the order of the fields, sealed.
type totalsRecord struct {
	objects store.Totals
	// departed counts the departed records, under their pair keys.
	departed store.Totals
}

const totalsSize = 6 * 8

func (t *totalsRecord) encode() []byte {
	b := make([]byte, 0, totalsSize+4)
	for _, n := range []uint64{
		uint64(t.objects.Count), uint64(t.objects.Bytes), t.objects.Sum,
		uint64(t.departed.Count), uint64(t.departed.Bytes), t.departed.Sum,
	} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return store.Seal(b)
}

func decodeTotals(sealed []byte) (totalsRecord, error) {
	b, err := unsealExactly(sealed, totalsSize)
	if err != nil {
		return totalsRecord{}, fmt.Errorf("totals: %w", err)
	}
	number := func(i int) uint64 { return binary.BigEndian.Uint64(b[i*8:]) }
	return totalsRecord{
		objects:  store.Totals{Count: int64(number(0)), Bytes: int64(number(1)), Sum: number(2)},
		departed: store.Totals{Count: int64(number(3)), Bytes: int64(number(4)), Sum: number(5)},
	}, nil
}

// unsealExactly is store.Unseal for a value whose size is known.
func unsealExactly(sealed []byte, size int) ([]byte, error) {
	b, err := store.Unseal(sealed)
	if err == nil && len(b) != size {
		err = fmt.Errorf("%w: %d bytes", store.ErrCorrupt, len(b))
	}
	return b, err
}

// indexTotals describe the entries of an index, which have no checksum of their
// own. They are stored as two big-endian 64-bit numbers, sealed.
type indexTotals struct {
	count int64
	// sum is the wrapping sum of store.Sum over the entries.
	sum uint64
}

const indexTotalsSize = 2 * 8

func (t *indexTotals) add(entry []byte) {
	t.count++
	t.sum += store.Sum(string(entry), nil)
}

func (t *indexTotals) remove(entry []byte) {
	t.count--
	t.sum -= store.Sum(string(entry), nil)
}

func (t *indexTotals) encode() []byte {
	b := make([]byte, 0, indexTotalsSize+4)
	b = binary.BigEndian.AppendUint64(b, uint64(t.count))
	return store.Seal(binary.BigEndian.AppendUint64(b, t.sum))
}

func decodeIndexTotals(sealed []byte) (indexTotals, error) {
	b, err := unsealExactly(sealed, indexTotalsSize)
	if err != nil {
		return indexTotals{}, fmt.Errorf("index totals: %w", err)
	}
	return indexTotals{count: int64(binary.BigEndian.Uint64(b)), sum: binary.BigEndian.Uint64(b[8:])}, nil
}

// A departed record is stored as the time since 1970 in nanoseconds (8 bytes,
// big-endian), its age in seconds (3 bytes), attempts (1 byte), the sealed record of
// the object, and a checksum of key and all of that: unlike an object's, its key is in
// no total.
const departedHeaderSize = 8 + 3 + 1

// encodeDeparted encodes a record as a DepartedOp that is valid may have made it.
func encodeDeparted(key []byte, since time.Time, attempts int, age time.Duration, value []byte) []byte {
	b := make([]byte, 0, len(key)+departedHeaderSize+len(value)+4)
	b = append(b, key...)
	b = binary.BigEndian.AppendUint64(b, uint64(since.UnixNano()))
	b = binary.BigEndian.AppendUint32(b, uint32(age/time.Second)<<8|uint32(attempts))
	return store.Seal(append(b, value...))[len(key):]
}

// decodeDeparted returns the record stored under key.
func decodeDeparted(key, stored []byte) (store.Departed, error) {
	name, uid, err := splitPair(key)
	if err != nil {
		return store.Departed{}, fmt.Errorf("departed record: %w", err)
	}
	b, err := store.Unseal(slices.Concat(key, stored))
	if err == nil && len(b) < len(key)+departedHeaderSize {
		err = fmt.Errorf("%w: %d bytes", store.ErrCorrupt, len(b))
	}
	if err != nil {
		return store.Departed{}, fmt.Errorf("departed record of %q: %w", name, err)
	}
	b = b[len(key):]
	ageAndAttempts := binary.BigEndian.Uint32(b[8:])
	return store.Departed{
		Key: string(name), UID: string(uid),
		Since:    departedSince(b),
		Attempts: int(ageAndAttempts & 0xff),
		Age:      time.Duration(ageAndAttempts>>8) * time.Second,
		Value:    b[departedHeaderSize:],
	}, nil
}

// departedSince reads the time of an encoded departed record without verifying
// it.
func departedSince(b []byte) time.Time {
	return time.Unix(0, int64(binary.BigEndian.Uint64(b))).UTC()
}

// encodeFormat and decodeFormat convert the value of formatKey.
func encodeFormat(version int) []byte { return store.Seal([]byte(strconv.Itoa(version))) }

func decodeFormat(sealed []byte) (int, error) {
	b, err := store.Unseal(sealed)
	if err != nil {
		return 0, fmt.Errorf("format version: %w", err)
	}
	version, err := strconv.Atoi(string(b))
	if err != nil || version < 1 {
		return 0, fmt.Errorf("format version: %w: %q", store.ErrCorrupt, b)
	}
	return version, nil
}

// identityOf returns the identity in the name of a header bucket.
func identityOf(bucket []byte) (store.Identity, error) {
	s, found := strings.CutPrefix(string(bucket), headerPrefix)
	if !found {
		return store.Identity{}, errors.New("not a header bucket")
	}
	id, err := store.ParseIdentity(s)
	if err != nil {
		return id, fmt.Errorf("%w: bucket %q: %w", store.ErrCorrupt, bucket, err)
	}
	return id, nil
}
