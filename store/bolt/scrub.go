package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/warmcache/warmcache/store"
)

// defaultScrubChunk is how many bytes are read at a time, while commits wait.
const defaultScrubChunk = 256 << 10

// scrubRetry is when a pass begins anew that the disk did not let go on.
const scrubRetry = time.Minute

// scrubber reads the file in the background, a little at a time, and verifies what
// shows damage: the checksum of every record and departed record, and the totals
// of objects, departed records and indices. It leaves to Check what is wrong
// without being damaged, such as an index entry of an object that does not exist:
// an index function that is not one leaves such entries.
//
// It runs on the committer, between commits, so that a chunk and the totals that
// it adds to are of one state. What commits change in the part that has been read,
// they change in these totals, too: see changed. Thus the totals of what was read
// until the end are those of the last state, although no transaction lasted that
// long.
//
// It sees what the page cache has. Damage of the disk shows when it is read again.
type scrubber struct {
	db *DB
	// due is when the next chunk is to be read.
	due time.Time
	// generation is what the pass is about; nil between passes.
	generation *generation
	// names are those of the collection that is being read. header is the name
	// of the last one of which reading has begun.
	names  *bucketNames
	header []byte
	// space is the part of it that is being read, next the first key that has
	// not been.
	space keySpace
	next  []byte
	// found is what there is below next.
	found totalsRecord
	index indexTotals
}

// wait returns in how long the next chunk is due; a negative time is never.
func (s *scrubber) wait(now time.Time) time.Duration {
	if s.db.options.ScrubInterval < 0 {
		return -1
	}
	return max(0, s.due.Sub(now))
}

// step reads the next chunk. Damage ends the generation.
func (s *scrubber) step() {
	g := s.db.current()
	f := g.opened.Load()
	if g != s.generation {
		*s = scrubber{db: s.db, generation: g}
	}
	if !g.ready() {
		// There will be a file soon, or it is going to be verified.
		s.due = s.db.options.Clock.Now().Add(time.Second)
		return
	}
	read, ended, most := 0, false, s.db.options.scrubChunk
	err := s.db.guard(g, func() error {
		return f.view(func(tx *bbolt.Tx) (err error) {
			for err == nil && !ended && read < most {
				var n int
				n, ended, err = s.chunk(tx, most-read)
				read += n
			}
			return err
		})
	})
	s.finish(read, ended, err)
}

// finish notes what a step has done.
func (s *scrubber) finish(read int, ended bool, err error) {
	now := s.db.options.Clock.Now()
	s.due = now.Add(time.Duration(float64(read) / float64(s.db.options.ScrubRate) * float64(time.Second)))
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	status := &s.db.mu.scrub
	status.Checked += int64(read)
	status.Total = max(s.db.mu.fileBytes-s.db.mu.freeBytes, status.Checked)
	if errors.Is(err, store.ErrCorrupt) {
		status.Problems++
	}
	if ended {
		status.Passes++
		status.Completed = now.Round(0).UTC()
	}
	if ended || err != nil {
		status.Checked, status.Total = 0, 0
		s.generation = nil
		s.due = now.Add(s.db.options.ScrubInterval)
	}
	if err != nil && !errors.Is(err, store.ErrCorrupt) {
		s.due = now.Add(min(scrubRetry, s.db.options.ScrubInterval))
		s.db.log.Error(err, "Cannot read the cache file to look for damage; trying again", "path", s.db.path, "in", s.due.Sub(now))
	}
}

// chunk reads some of the current part, or goes to the next one. It returns how
// much it has read, and whether nothing is left.
func (s *scrubber) chunk(tx *bbolt.Tx, most int) (read int, ended bool, err error) {
	if s.names == nil {
		return 0, !s.nextCollection(tx), nil
	}
	header := tx.Bucket(s.names.header)
	if header == nil {
		s.names = nil // it was forgotten
		return 0, false, nil
	}
	read, done, err := s.read(tx, most)
	if err == nil && done {
		if err = s.compare(header); err == nil {
			s.nextSpace(header)
		}
	}
	if err != nil {
		id, _ := identityOf(s.names.header)
		err = fmt.Errorf("found by the scrub: %s: %s: %w", id, s.space, err)
	}
	return read, false, err
}

// nextCollection begins with the collection after the last one.
func (s *scrubber) nextCollection(tx *bbolt.Tx) bool {
	after := []byte(headerPrefix)
	if s.header != nil {
		after = append(bytes.Clone(s.header), 0)
	}
	name, _ := tx.Cursor().Seek(after)
	if !bytes.HasPrefix(name, []byte(headerPrefix)) {
		return false
	}
	s.header = bytes.Clone(name)
	if id, err := identityOf(name); err == nil {
		names := namesOf(id)
		s.names = &names
		s.restart(keySpace{})
	}
	return true
}

// restart begins with a part of the collection.
func (s *scrubber) restart(space keySpace) {
	s.space, s.next, s.found, s.index = space, nil, totalsRecord{}, indexTotals{}
}

// nextSpace goes to the next part: objects, departed records, each index that has
// totals, whether it has entries or not.
func (s *scrubber) nextSpace(header *bbolt.Bucket) {
	if s.space == (keySpace{}) {
		s.restart(keySpace{departed: true})
		return
	}
	after := indexTotalsKey(s.space.index)
	if s.space.index != "" {
		after = append(after, 0)
	}
	key, _ := header.Cursor().Seek(after)
	index, found := bytes.CutPrefix(key, []byte(indexTotalsPrefix))
	if !found {
		s.names = nil
		return
	}
	s.restart(keySpace{index: string(index)})
}

// read verifies what comes next in the part. It returns how much that was, and
// whether it was the rest. It reads pages as if nothing had been verified, which was
// when the file was opened.
func (s *scrubber) read(tx *bbolt.Tx, most int) (read int, done bool, err error) {
	bucket := tx.Bucket(s.names.of(s.space))
	if bucket == nil {
		return 0, true, nil
	}
	cursor := s.cursor(tx, bucket)
	key, value, err := cursor.seek(s.next)
	for key != nil && read < most {
		if err := s.take(key, value); err != nil {
			return read, false, err
		}
		read += len(key) + len(value)
		key, value, err = cursor.next()
	}
	return read, key == nil, err
}

func (s *scrubber) cursor(tx *bbolt.Tx, bucket *bbolt.Bucket) fileCursor {
	if bucket.Root() == 0 {
		// It is in a page of the directory.
		return boltBucket{bucket}.cursor()
	}
	unverified := &pageBucket{
		walker:  newVetter(tx, s.generation.opened.Load().file).walker,
		root:    uint64(bucket.Root()),
		spoiled: func(err error) error { return err },
	}
	return unverified.cursor()
}

// take verifies one value and counts it.
func (s *scrubber) take(key, value []byte) error {
	if bytes.Compare(key, s.next) < 0 {
		return damaged("%q is not in its place", key)
	}
	if err := s.verify(key, value); err != nil {
		return err
	}
	s.add(s.space, key, value)
	s.next = append(append(s.next[:0], key...), 0)
	return nil
}

func (s *scrubber) verify(key, value []byte) error {
	switch {
	case s.space.index != "":
		return nil
	case s.space.departed:
		record, err := decodeDeparted(key, value)
		if err == nil {
			_, err = store.Unseal(record.Value)
		}
		return err
	}
	if _, err := store.Unseal(value); err != nil {
		return fmt.Errorf("%q: %w", key, err)
	}
	return nil
}

func (s *scrubber) add(space keySpace, key, value []byte) {
	switch {
	case space.index != "":
		s.index.add(key)
	case space.departed:
		s.found.departed.Add(string(key), value)
	default:
		s.found.objects.Add(string(key), value)
	}
}

func (s *scrubber) remove(space keySpace, key, value []byte) {
	switch {
	case space.index != "":
		s.index.remove(key)
	case space.departed:
		s.found.departed.Remove(string(key), value)
	default:
		s.found.objects.Remove(string(key), value)
	}
}

// compare verifies the totals of the part that has been read.
func (s *scrubber) compare(header *bbolt.Bucket) error {
	if s.space.index != "" {
		stored, err := decodeIndexTotals(header.Get(indexTotalsKey(s.space.index)))
		if err == nil && stored != s.index {
			err = damaged("totals are %+v, found %+v", stored, s.index)
		}
		return err
	}
	stored, err := totalsIn(boltBucket{header})
	switch {
	case err != nil:
		return err
	case s.space.departed && stored.departed != s.found.departed,
		!s.space.departed && stored.objects != s.found.objects:
		return damaged("totals are %+v, found %+v", stored, s.found)
	}
	return nil
}

// changed notes that a transaction changes a value, or deletes it, or adds one,
// nil standing for none. One that fails must be followed by failed.
func (s *scrubber) changed(c *collection, space keySpace, key, old, value []byte) {
	if !s.reads(c, space) || bytes.Compare(key, s.next) >= 0 {
		return
	}
	if old != nil {
		s.remove(space, key, old)
	}
	if value != nil {
		s.add(space, key, value)
	}
}

// cleared notes that a transaction empties a collection.
func (s *scrubber) cleared(c *collection) {
	if s.reads(c, s.space) {
		s.restart(keySpace{})
	}
}

// emptied notes that a transaction empties a part of a collection.
func (s *scrubber) emptied(c *collection, space keySpace) {
	if s.reads(c, space) {
		s.restart(space)
	}
}

// failed notes that a transaction has failed, and may yet be visible: what it has
// changed is not known.
func (s *scrubber) failed() { s.restart(s.space) }

func (s *scrubber) reads(c *collection, space keySpace) bool {
	return s.names != nil && s.space == space && bytes.Equal(s.header, c.names.header)
}
