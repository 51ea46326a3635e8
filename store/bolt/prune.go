package bolt

// pruneAbove is how many deletions an overlay may hold before it is worth looking
// for those that are not needed.
const pruneAbove = 1024

// prune makes next, which is to replace pending, forget deletions of what is not
// there, if there are many.
//
// A deletion hides what is below: an older overlay, or the file. On a disk that
// works it does not wait for long. On one that fails, every name that comes and
// goes, and every value that an index once had, would leave one behind, for as
// long as it fails. Nothing can appear below meanwhile: what a commit writes is
// the frozen overlay, which is looked at.
func (c *collection) prune(next *overlay) error {
	if next.deletions <= 2*next.pruned+pruneAbove {
		return nil
	}
	if _, failure := c.db.lastCommit(); failure == nil {
		return nil
	}
	return c.view(func(t *tx) error {
		return t.engine(func() error {
			t.below()
			next.prune(func(s keySpace, key []byte) bool { return t.lookup(s, key) != nil })
			return nil
		})
	})
}

// prune drops deletions of keys that are not below.
func (o *overlay) prune(below func(keySpace, []byte) bool) {
	o.pruneSpace(keySpace{}, below)
	o.pruneSpace(keySpace{departed: true}, below)
	for name := range o.indices {
		o.pruneSpace(keySpace{index: name}, below)
	}
	o.pruned = o.deletions
}

func (o *overlay) pruneSpace(s keySpace, below func(keySpace, []byte) bool) {
	t, hides := s.tree(o)
	var needless []entry
	t.Ascend(func(e entry) bool {
		if e.value == nil && (hides || !below(s, e.key)) {
			needless = append(needless, e)
		}
		return true
	})
	for _, e := range needless {
		t.Delete(e)
		o.uncharge(e)
	}
}
