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

func (a *applier) apply(b *store.Batch) {
	if b.Clear {
		a.overlay.clear()
	}
	for _, name := range b.DropIndices {
		a.overlay.dropIndex(name)
	}
	for i := range b.Ops {
		a.op(&b.Ops[i])
	}
	for _, op := range b.Index {
		a.index(op.Key, op.Changes)
	}
	for i := range b.Departed {
		a.departed(&b.Departed[i])
	}
	if b.Header != nil {
		a.overlay.setHeader(b.Header)
	}
}

func (a *applier) op(op *store.Op) {
	key := []byte(op.Key)
	if op.Depart != "" {
		// The record is copied, because what it is now may be in the mapping of
		// the file.
		if old := a.tx.lookup(keySpace{}, key); old != nil {
			departed := encodePair(op.Key, op.Depart)
			a.overlay.setDeparted(departed, encodeDeparted(departed, a.now, 0, 0, old))
		}
	}
	a.overlay.setObject(key, op.Value)
	a.index(op.Key, op.Index)
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

func (a *applier) departed(op *store.DepartedOp) {
	key := encodePair(op.Key, op.UID)
	sealed := a.tx.lookup(keySpace{departed: true}, key)
	if sealed == nil {
		return
	}
	if op.Remove {
		a.overlay.setDeparted(key, nil)
		return
	}
	record, err := decodeDeparted(key, sealed)
	if err != nil {
		// Departed reports it to whoever reads the record.
		return
	}
	a.overlay.setDeparted(key, encodeDeparted(key, record.Since, op.Attempts, op.Age, record.Value))
}
