package codec

import (
	"encoding/binary"
	"errors"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

var (
	errMalformed = errors.New("malformed msgpack")
	errTooDeep   = errors.New("values are nested too deeply")
)

// class is what the first byte of a msgpack value says about the rest.
type class uint8

const (
	classInvalid class = iota
	classScalar        // followed by n bytes
	classBytes         // string or bin of n bytes
	classArray         // n values
	classMap           // n pairs of values
)

// reader reads msgpack from a slice without copying. It trusts no length: one
// that exceeds the remaining bytes is an error, so nothing large is ever
// allocated for elements that are not there. After a failure it stays failed
// and returns zero values, so callers check err once.
//
// It knows what this package writes. Extensions are refused, because the
// library decodes them with code that others can register, and so are unsigned
// integers, which no API object may hold.
type reader struct {
	data []byte
	err  error
}

// next consumes the head of the next value: its class, its first byte and the n
// of its class, which is at most the number of remaining bytes.
func (r *reader) next() (c class, code byte, n int) {
	if len(r.data) == 0 {
		return r.fail()
	}
	code = r.data[0]
	r.data = r.data[1:]
	c, n, lengthSize := classify(code)
	if lengthSize > 0 {
		if len(r.data) < lengthSize {
			return r.fail()
		}
		n = bigEndian(r.data[:lengthSize])
		r.data = r.data[lengthSize:]
	}
	if c == classInvalid || n > len(r.data) {
		return r.fail()
	}
	return c, code, n
}

func (r *reader) fail() (class, byte, int) {
	r.data, r.err = nil, errMalformed
	return classInvalid, 0, 0
}

// classify returns the class of a value by its first byte, and either its n or
// the size of the length field that has it.
func classify(code byte) (c class, n, lengthSize int) {
	switch {
	case msgpcode.IsFixedNum(code):
		return classScalar, 0, 0
	case msgpcode.IsFixedMap(code):
		return classMap, int(code & msgpcode.FixedMapMask), 0
	case msgpcode.IsFixedArray(code):
		return classArray, int(code & msgpcode.FixedArrayMask), 0
	case msgpcode.IsFixedString(code):
		return classBytes, int(code & msgpcode.FixedStrMask), 0
	}
	switch code {
	case msgpcode.Nil, msgpcode.False, msgpcode.True:
		return classScalar, 0, 0
	case msgpcode.Int8:
		return classScalar, 1, 0
	case msgpcode.Int16:
		return classScalar, 2, 0
	case msgpcode.Int32:
		return classScalar, 4, 0
	case msgpcode.Int64, msgpcode.Double:
		return classScalar, 8, 0
	case msgpcode.Str8, msgpcode.Bin8:
		return classBytes, 0, 1
	case msgpcode.Str16, msgpcode.Bin16:
		return classBytes, 0, 2
	case msgpcode.Str32, msgpcode.Bin32:
		return classBytes, 0, 4
	case msgpcode.Array16:
		return classArray, 0, 2
	case msgpcode.Array32:
		return classArray, 0, 4
	case msgpcode.Map16:
		return classMap, 0, 2
	case msgpcode.Map32:
		return classMap, 0, 4
	}
	return classInvalid, 0, 0
}

// bigEndian reads a length of 1, 2 or 4 bytes.
func bigEndian(b []byte) int {
	switch len(b) {
	case 1:
		return int(b[0])
	case 2:
		return int(binary.BigEndian.Uint16(b))
	}
	return int(binary.BigEndian.Uint32(b))
}

// bytes reads a string or bin, in the reader's memory.
func (r *reader) bytes() []byte {
	c, _, n := r.next()
	if c != classBytes {
		r.fail()
		return nil
	}
	b := r.data[:n:n]
	r.data = r.data[n:]
	return b
}

// small reads a number below 128.
func (r *reader) small() uint8 {
	_, code, _ := r.next()
	if code > msgpcode.PosFixedNumHigh {
		r.fail()
		return 0
	}
	return code
}

// container reads the head of an array or map and returns its n.
func (r *reader) container(want class) int {
	c, _, n := r.next()
	if c != want {
		r.fail()
		return 0
	}
	return n
}

// skip consumes one whole value.
func (r *reader) skip(depth int) {
	c, _, n := r.next()
	switch c {
	case classScalar, classBytes:
		r.data = r.data[n:]
		return
	case classMap:
		n *= 2
	}
	if n > 0 && depth >= maxDepth {
		r.fail()
		r.err = errTooDeep
	}
	for ; n > 0 && r.err == nil; n-- {
		r.skip(depth + 1)
	}
}

// checkMsgpack reports whether data is exactly one value, complete in all its
// parts, that this package can have written.
func checkMsgpack(data []byte) error {
	r := reader{data: data}
	r.skip(0)
	if r.err == nil && len(r.data) > 0 {
		return errMalformed
	}
	return r.err
}
