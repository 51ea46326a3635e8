package damage

import (
	"encoding/binary"
	"strings"
)

// bbolt's page format, as far as it takes to find what to damage. Numbers are in
// the byte order of the machine.
const (
	pageSize    = 4096
	pageHeader  = 16 // id 8, flags 2, count 2, overflow 4
	elementSize = 16 // branch: pos 4, ksize 4, pgid 8; leaf: flags 4, pos 4, ksize 4, vsize 4

	branchPage, bucketFlag = 0x01, 0x01
)

var order = binary.NativeEndian

// span is a range of bytes of the file.
type span struct{ at, size int }

// layout says what is where in an undamaged file.
type layout struct {
	file []byte
	// spans are the places by what is there.
	spans map[string][]span
	// kinds are the names in spans, in a fixed order.
	kinds []string
}

// boltMeta is a meta page.
type boltMeta struct{ root, freelist, pages, txid uint64 }

// parseMeta returns the newest meta page of an undamaged file.
func parseMeta(file []byte) (newest boltMeta) {
	for _, page := range [][]byte{file, file[pageSize:]} {
		b := page[pageHeader:]
		m := boltMeta{order.Uint64(b[16:]), order.Uint64(b[32:]), order.Uint64(b[40:]), order.Uint64(b[48:])}
		if m.txid >= newest.txid {
			newest = m
		}
	}
	return newest
}

// parse finds everything in a file.
func parse(file []byte) *layout {
	l := &layout{file: file, spans: map[string][]span{}}
	m := parseMeta(file)
	for i := range 2 {
		l.add("meta page", i*pageSize, pageHeader+64)
	}
	freelist := int(m.freelist) * pageSize
	l.add("free list", freelist, pageHeader+8*max(1, int(order.Uint16(file[freelist+10:]))))
	l.page(int(m.root)*pageSize, "")
	return l
}

func (l *layout) add(kind string, at, size int) {
	if size == 0 {
		return
	}
	if l.spans[kind] == nil {
		l.kinds = append(l.kinds, kind)
	}
	l.spans[kind] = append(l.spans[kind], span{at, size})
}

// page finds everything in the page at an offset, and in those below it. bucket
// is the name of the bucket it belongs to, "" for the directory.
func (l *layout) page(at int, bucket string) {
	b := l.file[at:]
	count := int(order.Uint16(b[10:]))
	kind := "leaf header"
	if order.Uint16(b[8:]) == branchPage {
		kind = "branch header"
	}
	l.add(kind, at, pageHeader)
	for i := range count {
		e := at + pageHeader + i*elementSize
		if kind == "branch header" {
			l.add("branch element", e, elementSize)
			l.add("branch key", e+int(order.Uint32(l.file[e:])), int(order.Uint32(l.file[e+4:])))
			l.page(int(order.Uint64(l.file[e+8:]))*pageSize, bucket)
		} else {
			l.leaf(e, bucket)
		}
	}
}

// leaf finds what the leaf element at an offset has.
func (l *layout) leaf(e int, bucket string) {
	b := l.file[e:]
	key, keySize, valueSize := e+int(order.Uint32(b[4:])), int(order.Uint32(b[8:])), int(order.Uint32(b[12:]))
	value := key + keySize
	if order.Uint32(b)&bucketFlag == 0 {
		what := purpose(bucket, string(l.file[key:value]))
		l.add("leaf element", e, elementSize)
		l.add(what+" key", key, keySize)
		l.add(what+" value", value, valueSize)
		return
	}
	l.add("directory element", e, elementSize)
	l.add("bucket name", key, keySize)
	l.add("bucket root", value, 16)
	name := string(l.file[key:value])
	if root := order.Uint64(l.file[value:]); root != 0 {
		l.page(int(root)*pageSize, name)
	} else {
		l.page(value+16, name)
	}
}

// purpose says what the entries of a bucket are.
func purpose(bucket, key string) string {
	switch {
	case bucket == "meta":
		return "format"
	case strings.HasPrefix(bucket, "h/"):
		return key
	case strings.HasPrefix(bucket, "i/"):
		return "index entry"
	case strings.HasPrefix(bucket, "d/"):
		return "departed"
	}
	return "object"
}
