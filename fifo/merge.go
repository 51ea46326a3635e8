package fifo

import (
	"maps"
	"slices"

	"k8s.io/client-go/tools/cache"
)

// merge finds what is known and not in a list that arrives in parts, by merging
// the two. It guarantees, whatever the order of the list, that in the end gone and
// the keys behind reached are exactly the known keys that the list has not:
//
//   - every key that was ever listed is at or before reached;
//   - a known key is put into gone when reached passes it, unless the same part
//     lists it, and taken out when it is listed after all.
//
// API servers list in the byte order of the keys. Then nothing is taken out again,
// and gone holds the keys to delete only. In another order it holds, for a time,
// the keys of objects that are listed later: more memory, the same result. So it
// does for an object that is changed or added while a streamed list is read.
type merge struct {
	// reached is the greatest key that was listed.
	reached string
	gone    map[string]struct{}
	// left, once the list has arrived whole, are the keys of gone that have not
	// been taken, ordered.
	left  []string
	whole bool
}

// add merges a part of the list.
func (m *merge) add(known KnownObjects, part []Delta) error {
	reached, listed := m.reached, make(map[string]struct{}, len(part))
	for _, d := range part {
		switch {
		case d.Type != cache.Deleted:
			delete(m.gone, d.Key)
			listed[d.Key] = struct{}{}
			reached = max(reached, d.Key)
		case d.Key <= m.reached:
			// Another part may have listed it, before it was removed.
			m.put(d.Key)
		}
	}
	if reached == m.reached {
		return nil
	}
	err := known.KeysIn(m.reached, reached, func(key string) bool {
		if _, ok := listed[key]; !ok {
			m.put(key)
		}
		return true
	})
	m.reached = reached
	return err
}

func (m *merge) put(key string) {
	if m.gone == nil {
		m.gone = map[string]struct{}{}
	}
	m.gone[key] = struct{}{}
}

// take returns, once the list has arrived whole, up to limit of the keys to
// delete, ordered, and whether there are more. Those behind reached are read when
// their turn comes: of a list that is empty they are all.
func (m *merge) take(known KnownObjects, limit int) (keys []string, more bool, err error) {
	if !m.whole {
		m.whole, m.left, m.gone = true, slices.Sorted(maps.Keys(m.gone)), nil
	}
	keys = takeUpTo(&m.left, limit)
	if len(m.left) > 0 {
		return keys, true, nil
	}
	after := m.reached
	err = known.KeysIn(after, "", func(key string) bool {
		if more = len(keys) == limit; more {
			return false
		}
		keys, m.reached = append(keys, key), key
		return true
	})
	return keys, more, err
}

// part is a part of a streamed list in the queue. It yields what differs from what
// is known; the last one also the deletes, before that. Deletes have to wait for
// it: what is not listed yet may be listed later, if the order of keys does not hold.
type part struct {
	stream *stream
	deltas []Delta
	first  bool
	last   bool
	// rv, of the last part, is the version of the list.
	rv string
	// merged is set once deltas have been merged, and deleted once the last part
	// has yielded all deletes.
	merged, deleted bool
}

func (p *part) size() int { return len(p.deltas) }

func (p *part) next(known KnownObjects, limit int) (Batch, bool, error) {
	if !p.merged {
		p.merged = true
		if err := p.stream.merge.add(known, p.deltas); err != nil {
			return Batch{}, false, err
		}
	}
	deleted, err := p.deletes(known, limit)
	if err != nil {
		return Batch{}, false, err
	}
	changed, err := changed(known, takeUpTo(&p.deltas, limit-len(deleted)))
	if err != nil {
		return Batch{}, false, err
	}
	batch := Batch{Deltas: append(deleted, changed...), List: ListPartial}
	if len(p.deltas) > 0 || p.last && !p.deleted {
		return batch, true, nil
	}
	if p.last {
		batch.List, batch.RV = ListEnd, p.rv
	}
	return batch, false, nil
}

func (p *part) deletes(known KnownObjects, limit int) ([]Delta, error) {
	if !p.last || p.deleted {
		return nil, nil
	}
	keys, more, err := p.stream.merge.take(known, limit)
	if err != nil {
		return nil, err
	}
	p.deleted = !more
	return tombstones(known, keys)
}
