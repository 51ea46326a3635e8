package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync"

	"github.com/vmihailenco/msgpack/v5"
)

// checksumSize is the room that store.Seal needs.
const checksumSize = 4

// maxPooled is the largest buffer that is kept for the next Encode. Objects can
// have megabytes; few have.
const maxPooled = 64 << 10

// scratch is the working memory of one Encode.
type scratch struct {
	enc *msgpack.Encoder // writes to one of the buffers below
	// record is the record so far: the envelope, and then the payload unless
	// that is written in place.
	record   bytes.Buffer
	envelope bytes.Buffer
}

var scratchPool = sync.Pool{New: func() any { return &scratch{enc: msgpack.NewEncoder(nil)} }}

func getScratch() *scratch {
	s := scratchPool.Get().(*scratch)
	s.record.Reset()
	s.envelope.Reset()
	return s
}

func putScratch(s *scratch) {
	if s.record.Cap()+s.envelope.Cap() <= maxPooled {
		scratchPool.Put(s)
	}
}

// writeEnvelope writes the envelope and leaves the encoder ready for the
// payload.
func (s *scratch) writeEnvelope(head header, env Envelope) error {
	s.enc.Reset(&s.envelope)
	s.enc.SetSortMapKeys(true)
	err := errors.Join(
		s.enc.EncodeArrayLen(envelopeFields),
		s.enc.EncodeInt(formatVersion),
		s.enc.EncodeInt(int64(head.payload)),
		s.enc.EncodeInt(0), // flags
		s.enc.EncodeBytes(binary.BigEndian.AppendUint32(nil, head.typeID)),
		s.enc.EncodeString(env.APIVersion),
		s.enc.EncodeString(env.Kind),
		s.enc.EncodeString(env.ResourceVersion),
		s.enc.EncodeString(string(env.UID)),
		s.writeLabels(env.Labels),
	)
	s.enc.Reset(&s.record)
	s.enc.SetSortMapKeys(true)
	return errors.Join(err, s.enc.EncodeBytes(s.envelope.Bytes()))
}

// writeLabels writes nil as an empty map: the envelope does not tell them apart.
func (s *scratch) writeLabels(labels map[string]string) error {
	if len(labels) == 0 {
		return s.enc.EncodeMapLen(0)
	}
	return s.enc.Encode(labels)
}

// newRecord returns a copy of the record so far, followed by size bytes to be
// filled in, with room for the checksum: Seal will not move it.
func (s *scratch) newRecord(size int) []byte {
	n := s.record.Len()
	record := make([]byte, n+size, n+size+checksumSize)
	copy(record, s.record.Bytes())
	return record
}
