package indexer

import (
	"time"

	"github.com/warmcache/warmcache/store"
)

// Lost returns a channel that is closed when what is stored is lost, or nil if nothing
// is written. Then Restore must be called in memory residency, and BeginAnew in disk
// residency; see IsLost.
func (x *Indexer) Lost() <-chan struct{} {
	x.write.Lock()
	defer x.write.Unlock()
	if !x.write.persistentLocked() {
		return nil
	}
	return x.write.collection.Lost()
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Restore writes all objects in memory to a collection that was lost. Before Load
// has returned it does nothing, because Load deals with the loss itself. Reads and
// changes go on meanwhile; until the end the header says that the collection is
// incomplete. It gives up when the collection is lost again: then Lost is closed.
//
// Two things cannot be restored: departed records, so that a crash within their
// retention loses these deletes, and what handlers have made of objects that are
// not theirs to change, which is written as it is.
func (x *Indexer) Restore() {
	start := time.Now()
	objects := 0
	for again := true; again; {
		keys, err := x.beginRestore()
		for err == nil && len(keys) > 0 {
			n := min(restoreChunk, len(keys))
			err = x.restore(keys[:n])
			keys = keys[n:]
			objects += n
		}
		if err != nil {
			return
		}
		again = x.endRestore()
	}
	if objects > 0 {
		x.log().Info("All objects are on their way to a new file", "objects", objects, "duration", time.Since(start).Round(time.Millisecond))
	}
}

// restoreChunk is how many objects are encoded and written while changes wait.
const restoreChunk = 1000

// beginRestore begins anew and returns what there is to write. All of it will have
// today's fingerprint.
func (x *Indexer) beginRestore() (keys []string, err error) {
	x.write.Lock()
	defer x.write.Unlock()
	if !x.write.persistentLocked() || !x.write.loaded {
		return nil, nil
	}
	x.write.restoring, x.write.restoreAgain = true, false
	header := x.write.header
	header.Fingerprint, header.Indices = x.write.fingerprint, x.fingerprintsLocked()
	if err := x.persistLocked(store.Batch{Clear: true, Header: &header}); err != nil {
		x.write.restoring = false
		return nil, err
	}
	return x.objects.ListKeys(), nil
}

// restore writes the objects that some keys have by now.
func (x *Indexer) restore(keys []string) error {
	x.write.Lock()
	defer x.write.Unlock()
	var changes []Change
	for _, key := range keys {
		if obj, exists := x.objects.Get(key); exists {
			changes = append(changes, Change{Key: key, Object: obj})
		}
	}
	err := x.restoreLocked(changes)
	if err != nil {
		x.write.restoring = false
	}
	return err
}

func (x *Indexer) restoreLocked(changes []Change) error {
	if !x.write.persistentLocked() {
		return nil
	}
	values, err := encodeAll(x.write.codec, changes)
	if err != nil {
		x.abandonLocked(err)
		return err
	}
	batch := store.Batch{Ops: make([]store.Op, len(changes))}
	for i, c := range changes {
		batch.Ops[i] = store.Op{Key: c.Key, Value: values[i], Index: x.changesLocked(nil, c.Object)}
	}
	return x.persistLocked(batch)
}

// endRestore lets the header say what is true again. It returns whether an index
// was added meanwhile, which the objects written before do not have.
func (x *Indexer) endRestore() (again bool) {
	x.write.Lock()
	defer x.write.Unlock()
	if !x.write.restoring {
		return false
	}
	if x.write.restoreAgain {
		return true
	}
	x.write.restoring = false
	header := x.write.header
	_ = x.persistLocked(store.Batch{Header: &header})
	return false
}
