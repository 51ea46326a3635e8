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
			return next.prune(t.lookup)
		})
	})
}

// prune drops deletions of keys that have no value below.
func (o *overlay) prune(below func(keySpace, []byte) ([]byte, error)) error {
	spaces := []keySpace{{}, {departed: true}}
	for name := range o.indices {
		spaces = append(spaces, keySpace{index: name})
	}
	for _, s := range spaces {
		if err := o.pruneSpace(s, below); err != nil {
			return err
		}
	}
	o.pruned = o.deletions
	return nil
}

func (o *overlay) pruneSpace(s keySpace, below func(keySpace, []byte) ([]byte, error)) (err error) {
	t, hides := s.tree(o)
	var needless []entry
	t.Ascend(func(e entry) bool {
		var value []byte
		if e.value == nil && !hides {
			value, err = below(s, e.key)
		}
		if e.value == nil && value == nil {
			needless = append(needless, e)
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	for _, e := range needless {
		t.Delete(e)
		o.uncharge(e)
	}
	return nil
}
