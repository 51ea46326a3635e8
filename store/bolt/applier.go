package bolt

import (
	"time"

	"github.com/warmcache/warmcache/store"
)

// applier puts a batch into an overlay.
type applier struct {
	overlay *overlay
	now     time.Time
	// tx sees the overlay as it changes, and what is below. Nil if the batch
	// does not need it.
	tx *tx
}

func newApplier(o *overlay, now time.Time, t *tx) *applier {
	return &applier{overlay: o, now: now, tx: t}
}

// needsLookup says whether what b does depends on what is there.
func needsLookup(b *store.Batch) bool {
	if len(b.Departed) > 0 {
		return true
	}
	for i := range b.Ops {
		if b.Ops[i].Depart != "" {
			return true
		}
	}
	return false
}

// apply fails only if what is there cannot be read.
func (a *applier) apply(b *store.Batch) error {
	if b.Clear {
		a.overlay.clear()
	}
	for _, name := range b.DropIndices {
		a.overlay.dropIndex(name)
	}
	for i := range b.Ops {
		if err := a.op(&b.Ops[i]); err != nil {
			return err
		}
	}
	for _, op := range b.Index {
		a.index(op.Key, op.Changes)
	}
	for i := range b.Departed {
		if err := a.departed(&b.Departed[i]); err != nil {
			return err
		}
	}
	if b.Header != nil {
		a.overlay.setHeader(b.Header)
	}
	return nil
}

func (a *applier) op(op *store.Op) error {
	key := []byte(op.Key)
	if op.Depart != "" {
		old, err := a.tx.lookup(keySpace{}, key)
		if err != nil {
			return err
		}
		// The record is copied, because what it is now may be in the mapping of
		// the file.
		if old != nil {
			departed := encodePair(op.Key, op.Depart)
			a.overlay.setDeparted(departed, encodeDeparted(departed, a.now, 0, 0, old))
		}
	}
	a.overlay.setObject(key, op.Value)
	a.index(op.Key, op.Index)
	return nil
}

func (a *applier) index(key string, changes []store.IndexChange) {
	for _, change := range changes {
		for _, value := range change.Remove {
			a.overlay.setIndex(change.Name, encodePair(value, key), nil)
		}
		for _, value := range change.Add {
			a.overlay.setIndex(change.Name, encodePair(value, key), present)
		}
	}
}

func (a *applier) departed(op *store.DepartedOp) error {
	key := encodePair(op.Key, op.UID)
	sealed, err := a.tx.lookup(keySpace{departed: true}, key)
	if err != nil || sealed == nil {
		return err
	}
	if op.Remove {
		a.overlay.setDeparted(key, nil)
		return nil
	}
	record, err := decodeDeparted(key, sealed)
	if err == nil {
		a.overlay.setDeparted(key, encodeDeparted(key, record.Since, op.Attempts, op.Age, record.Value))
	}
	// Departed reports damage to whoever reads the record.
	return nil
}
