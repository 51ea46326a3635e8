package indexer

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/internal/parallel"
	"github.com/warmcache/warmcache/store"
)

// Change puts or deletes one object.
type Change struct {
	// Key is the object's key.
	Key string
	// Object is the new state, or nil to delete.
	Object any
	// Depart keeps the stored record of the object that this change deletes, or
	// replaces by one of another UID, so that a restart can deliver the delete.
	Depart bool
}

// Update is a set of changes that become durable together.
type Update struct {
	Changes []Change
	// RV is the version that holds once Changes are applied; empty leaves it,
	// unless Complete is set: then it is not known.
	RV string
	// Incomplete says that this is part of a list with more to come. RV must
	// be empty. An Update with Complete ends the list.
	Incomplete, Complete bool
	// Contact, if not zero, is when the server vouched for this state.
	Contact time.Time
	// Cluster and Schema, if not empty, are what the objects come from.
	Cluster, Schema string
	// NoBookmarks, if set, records whether the server sends bookmarks.
	NoBookmarks *bool
	// Replays, if set, is the new store.Header.Replays.
	Replays *bool
	// Newest, if set, is the new store.Header.Newest.
	Newest *store.ObjectRef
}

// Apply makes u visible to readers, at once and as a whole, and hands it to the
// collection. It returns the previous state of each changed object, nil where
// there was none. The error is ErrNotLoaded, if it comes before Load; a
// collection that cannot take u is no error, see the package documentation. In
// disk residency it is, and so is an object that cannot be encoded: then nothing has
// changed.
func (x *Indexer) Apply(u Update) ([]any, error) {
	x.write.Lock()
	defer x.write.Unlock()
	return x.updateLocked(u)
}

// updateLocked is Apply. The batch for the collection comes before the change in
// memory, because it depends on what is unread until then; the collection gets
// it afterwards, so that nothing is durable that could not have been read.
func (x *Indexer) updateLocked(u Update) ([]any, error) {
	if x.write.collection != nil && !x.write.loaded {
		return nil, ErrNotLoaded
	}
	if d := x.disk.Load(); d != nil {
		olds, err := x.updateDiskLocked(d, u)
		if err == nil && (u.RV != "" || u.Complete) {
			x.setVersion(u.RV)
		}
		return olds, err
	}
	olds := x.previousLocked(u.Changes)
	var batch store.Batch
	var err error
	if x.write.persistentLocked() {
		batch, err = x.batchLocked(u, olds)
	}
	x.installLocked(u.Changes, olds)
	if u.RV != "" || u.Complete {
		x.setVersion(u.RV)
	}
	if err != nil {
		x.abandonLocked(err)
		return olds, nil
	}
	_ = x.persistLocked(batch)
	return olds, nil
}

// previousLocked looks up the state before each change, where an earlier change
// of the same object counts.
func (x *Indexer) previousLocked(changes []Change) []any {
	olds := make([]any, len(changes))
	latest := make(map[string]any, len(changes))
	for i, c := range changes {
		old, ok := latest[c.Key]
		if !ok {
			old, _ = x.objects.Get(c.Key)
		}
		olds[i] = old
		latest[c.Key] = c.Object
	}
	return olds
}

// installLocked changes the objects in memory, under one lock of theirs.
func (x *Indexer) installLocked(changes []Change, olds []any) {
	if len(changes) == 0 {
		return
	}
	transactions := make([]cache.ThreadSafeStoreTransaction, len(changes), len(changes)+1)
	for i, c := range changes {
		t := cache.TransactionTypeUpdate
		if c.Object == nil {
			t = cache.TransactionTypeDelete
		}
		x.write.foreign.replace(c.Key, 0)
		transactions[i] = cache.ThreadSafeStoreTransaction{
			Transaction: cache.Transaction{Type: t, Object: c.Object}, Key: c.Key,
		}
	}
	x.objects.Transaction(append(transactions, noVersion)...)
	x.countLocked(changes, olds)
}

// countLocked keeps the number of objects.
func (x *Indexer) countLocked(changes []Change, olds []any) {
	for i, c := range changes {
		switch {
		case olds[i] == nil && c.Object != nil:
			x.count.Add(1)
		case olds[i] != nil && c.Object == nil:
			x.count.Add(-1)
		}
	}
}

// noVersion ends a transaction. It deletes nothing, because no object has its key, and
// keeps client-go's store from taking the version of the last object, which in a part
// of a list is any, for that of the state.
var noVersion = cache.ThreadSafeStoreTransaction{
	Transaction: cache.Transaction{Type: cache.TransactionTypeDelete}, Key: "\x00",
}

// batchLocked translates u for the collection. The error names an object that
// cannot be encoded.
func (x *Indexer) batchLocked(u Update, olds []any) (store.Batch, error) {
	values, err := encodeAll(x.write.codec, u.Changes)
	if err != nil {
		return store.Batch{}, err
	}
	header := x.headerLocked(u)
	batch := store.Batch{Ops: make([]store.Op, len(u.Changes)), Header: &header}
	for i, c := range u.Changes {
		op := store.Op{Key: c.Key, Value: values[i], Index: x.changesLocked(olds[i], c.Object)}
		if c.Depart {
			op.Depart = x.departsLocked(c, olds[i])
		}
		batch.Ops[i] = op
	}
	return batch, nil
}

// mixedFingerprint is that of no program.
const mixedFingerprint = "mixed"

func (x *Indexer) headerLocked(u Update) store.Header {
	header := x.write.header
	if u.RV != "" || u.Complete {
		header.RV = u.RV
	}
	if u.Incomplete {
		header.Complete = false
	}
	if x.write.foreignLocked() && len(u.Changes) > 0 {
		// From here on some records are this program's and some are not. After a
		// crash in between neither program may take them all for its own.
		header.Fingerprint = mixedFingerprint
	}
	if u.Complete {
		header.Complete, header.Fingerprint = true, x.write.fingerprint
		header.Indices = x.fingerprintsLocked()
	}
	if !u.Contact.IsZero() {
		header.Contact = u.Contact.UTC()
	}
	if u.Cluster != "" {
		header.Cluster = u.Cluster
	}
	if u.Schema != "" {
		header.Schema = u.Schema
	}
	if u.NoBookmarks != nil {
		header.NoBookmarks = *u.NoBookmarks
	}
	if u.Replays != nil {
		header.Replays = *u.Replays
	}
	if u.Newest != nil {
		header.Newest = *u.Newest
	}
	return header
}

func encodeAll(codec Codec, changes []Change) ([][]byte, error) {
	values := make([][]byte, len(changes))
	errs := make([]error, len(changes))
	parallel.For(len(changes), func(i int) {
		if changes[i].Object != nil {
			values[i], errs[i] = encode(codec, changes[i].Object)
		}
	})
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("object %s cannot be written: %w", changes[i].Key, err)
		}
	}
	return values, nil
}

func encode(codec Codec, item any) ([]byte, error) {
	obj, ok := item.(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("type %T is not a runtime.Object", item)
	}
	return codec.Encode(obj)
}

// departsLocked returns the UID under which the record that c removes or replaces
// is kept, or "" if there is none to keep.
func (x *Indexer) departsLocked(c Change, old any) string {
	var uid string
	if old != nil {
		uid = DepartedUID(old)
	} else {
		uid, _ = x.write.foreign.uid(c.Key)
	}
	if c.Object != nil && (uid == DepartedUID(c.Object) || uid == noUID) {
		// The same object lives on. So it does if nothing is known of the one before:
		// after a change of the record format that would be all of them.
		return ""
	}
	return uid
}

// noUID stands for the UID of objects without one, which no API server makes.
const noUID = "unknown"

// DepartedUID returns the UID under which the record of obj departs.
func DepartedUID(obj any) string {
	if accessor, err := meta.Accessor(obj); err == nil && accessor.GetUID() != "" {
		return string(accessor.GetUID())
	}
	return noUID
}
