package indexer

import (
	"errors"
	"slices"
	"time"

	"github.com/warmcache/warmcache/store"
)

// Departed is an object that was deleted or found gone and may have to be
// delivered to handlers.
type Departed struct {
	Key, UID string
	// Attempts counts deliveries begun and not known to have ended.
	Attempts int
	// Age is store.Departed.Age.
	Age time.Duration
	// Object is the last known state, or nil if its record cannot be read.
	Object any
}

// Departed returns the departed objects in the file, ordered by key and UID. Their
// size is bounded by the engine.
func (x *Indexer) Departed() ([]Departed, error) {
	x.write.Lock()
	collection, codec := x.write.collection, x.write.codec
	x.write.Unlock()
	if collection == nil {
		return nil, nil
	}
	var departed []Departed
	var records [][]byte
	err := collection.View(func(tx store.Tx) error {
		return tx.Departed(func(d store.Departed) bool {
			departed = append(departed, Departed{Key: d.Key, UID: d.UID, Attempts: d.Attempts, Age: d.Age})
			records = append(records, slices.Clone(d.Value))
			return true
		})
	})
	if errors.Is(err, store.ErrCorrupt) {
		collection.Quarantine(err)
	}
	if err != nil {
		return nil, err
	}
	for i, record := range records {
		obj, err := codec.Decode(record)
		if err != nil {
			// The delete is still worth delivering: the key is what matters.
			x.log().Error(err, "Last state of a deleted object cannot be read", "key", departed[i].Key)
			continue
		}
		departed[i].Object = obj
	}
	return departed, nil
}

// UpdateDeparted changes or removes departed records.
func (x *Indexer) UpdateDeparted(ops []store.DepartedOp) {
	if len(ops) == 0 {
		return
	}
	x.write.Lock()
	defer x.write.Unlock()
	_ = x.persistLocked(store.Batch{Departed: ops})
}
