package bolt

import "bytes"

// treeChunk is how many entries a treeCursor reads ahead.
const treeChunk = 32

// treeCursor walks an overlay's tree, which only offers callbacks, by reading
// chunks. The tree must be a published one, which does not change.
type treeCursor struct {
	tree  *tree
	chunk []entry
	next  int
}

// seek moves to the first entry with a key >= from.
func (c *treeCursor) seek(from []byte) { c.fill(from, false) }

// advance moves to the next entry.
func (c *treeCursor) advance() {
	c.next++
	if c.next == len(c.chunk) && c.next == treeChunk {
		c.fill(c.chunk[c.next-1].key, true)
	}
}

func (c *treeCursor) fill(from []byte, after bool) {
	c.chunk, c.next = c.chunk[:0], 0
	c.tree.AscendGreaterOrEqual(entry{key: from}, func(e entry) bool {
		if after && bytes.Equal(e.key, from) {
			return true
		}
		c.chunk = append(c.chunk, e)
		return len(c.chunk) < treeChunk
	})
}

// current returns the entry the cursor is at.
func (c *treeCursor) current() (entry, bool) {
	if c.next >= len(c.chunk) {
		return entry{}, false
	}
	return c.chunk[c.next], true
}

// mergeCursor walks what is visible of one key space: the trees of the overlays,
// newest first, over a bucket of the file. An entry hides those with the same
// key below it; deleted ones are skipped.
//
// bbolt trusts the order of the keys in a page. Where damage has changed it, a
// seek can find a key before the one it was asked for, and whoever seeks again
// from there would never come to an end. The cursor therefore verifies that the
// keys of the file ascend, and ends with err if they do not.
//
// key and value are valid until the cursor moves.
type mergeCursor struct {
	trees []treeCursor
	file  fileCursor // nil if the file is hidden or has no such bucket

	fileKey, fileValue []byte

	key, value []byte
	err        error
}

// newMergeCursor returns a cursor that must be moved with seek first. bucket may
// be nil.
func newMergeCursor(trees []*tree, bucket fileBucket) *mergeCursor {
	m := &mergeCursor{}
	for _, t := range trees {
		m.trees = append(m.trees, treeCursor{tree: t})
	}
	if bucket != nil {
		m.file = bucket.cursor()
	}
	return m
}

// seek moves to the first visible key >= from and says whether there is one.
func (m *mergeCursor) seek(from []byte) bool {
	for i := range m.trees {
		m.trees[i].seek(from)
	}
	if m.file != nil {
		var err error
		m.fileKey, m.fileValue, err = m.file.seek(from)
		switch {
		case err != nil:
			m.fail(err)
		case m.fileKey != nil && bytes.Compare(m.fileKey, from) < 0:
			m.outOfOrder(from)
		}
	}
	return m.settle()
}

// outOfOrder ends the cursor at a key of the file that does not come after the
// given one.
func (m *mergeCursor) outOfOrder(after []byte) {
	m.fail(damaged("key %q does not come after %q", m.fileKey, after))
}

// fail ends the cursor.
func (m *mergeCursor) fail(err error) { m.err, m.fileKey, m.trees = err, nil, nil }

// advance moves to the next visible key and says whether there is one.
func (m *mergeCursor) advance() bool {
	m.skip()
	return m.settle()
}

// skip moves every source that is at the current key.
func (m *mergeCursor) skip() {
	for i := range m.trees {
		if e, ok := m.trees[i].current(); ok && bytes.Equal(e.key, m.key) {
			m.trees[i].advance()
		}
	}
	if m.fileKey != nil && (len(m.trees) == 0 || bytes.Equal(m.fileKey, m.key)) {
		previous := m.fileKey
		var err error
		m.fileKey, m.fileValue, err = m.file.next()
		switch {
		case err != nil:
			m.fail(err)
		case m.fileKey != nil && bytes.Compare(m.fileKey, previous) <= 0:
			m.outOfOrder(previous)
		}
	}
}

// settle sets key and value to the smallest key of all sources, which it skips
// as long as it is deleted.
func (m *mergeCursor) settle() bool {
	for {
		if len(m.trees) == 0 {
			m.key, m.value = m.fileKey, m.fileValue
			return m.key != nil
		}
		deleted := m.smallest()
		if m.key == nil || !deleted {
			return m.key != nil
		}
		m.skip()
	}
}

// smallest sets key and value, with nil for the key if all sources have ended,
// and says whether the newest source of that key has deleted it.
func (m *mergeCursor) smallest() (deleted bool) {
	m.key, m.value = nil, nil
	for i := range m.trees {
		if e, ok := m.trees[i].current(); ok && (m.key == nil || bytes.Compare(e.key, m.key) < 0) {
			m.key, m.value, deleted = e.key, e.value, e.value == nil
		}
	}
	if m.fileKey != nil && (m.key == nil || bytes.Compare(m.fileKey, m.key) < 0) {
		m.key, m.value, deleted = m.fileKey, m.fileValue, false
	}
	return deleted
}
