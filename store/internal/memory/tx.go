package memory

import (
	"github.com/warmcache/warmcache/store"
)

// tx implements store.Tx over one state.
type tx struct{ s *state }

func (t tx) Header() (store.Header, error) {
	if t.s.header == nil {
		return store.Header{}, store.ErrNotFound
	}
	return t.s.header.Clone(), nil
}

func (t tx) Totals() (store.Totals, error) { return t.s.totals, nil }

func (t tx) Get(key string) ([]byte, error) {
	found, ok := t.s.objects.Get(object{key: key})
	if !ok {
		return nil, store.ErrNotFound
	}
	return found.value, nil
}

func (t tx) Scan(from string, fn func(key, value []byte) bool) error {
	t.s.objects.AscendGreaterOrEqual(object{key: from}, func(o object) bool {
		return fn([]byte(o.key), o.value)
	})
	return nil
}

func (t tx) IndexKeys(name, value, from string, fn func(key []byte) bool) error {
	index := t.s.indices[name]
	if index == nil {
		return nil
	}
	index.AscendGreaterOrEqual(indexEntry{value, from}, func(e indexEntry) bool {
		return e.value == value && fn([]byte(e.key))
	})
	return nil
}

func (t tx) IndexValues(name, from string, fn func(value []byte) bool) error {
	index := t.s.indices[name]
	if index == nil {
		return nil
	}
	last, first := "", true
	index.AscendGreaterOrEqual(indexEntry{value: from}, func(e indexEntry) bool {
		if !first && e.value == last {
			return true
		}
		last, first = e.value, false
		return fn([]byte(e.value))
	})
	return nil
}

func (t tx) Departed(fn func(store.Departed) bool) error {
	t.s.departed.Ascend(fn)
	return nil
}
