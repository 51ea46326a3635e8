package indexer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/warmcache/warmcache/store"
)

// persistence is the indexer's side of its collection. It is guarded by
// Indexer.write.
type persistence struct {
	// collection is nil while the indexer works in memory only.
	collection store.Collection
	codec      Codec
	// header is what was last handed to the collection. The map in it is never
	// modified, only replaced.
	header store.Header
	// fingerprint is what records written by this process are read with. The
	// header carries it once all records have it.
	fingerprint string
	// foreign says that the stored records have another fingerprint.
	foreign bool
	// loaded is false from Attach until Load has ended: before that, memory
	// and file do not hold the same.
	loaded bool
	// suspended says why nothing is written any more, or is nil.
	suspended error
}

// Origin says what a collection is good for at start.
type Origin struct {
	// RV is where a watch may resume, or empty if only a list will do.
	RV string
	// Cluster and Schema are what the objects come from; empty if unknown.
	Cluster, Schema string
	// NoBookmarks is store.Header.NoBookmarks.
	NoBookmarks bool
	// Contact is when the server last vouched for the stored state; zero if it
	// is not known.
	Contact time.Time
	// Totals describe what is stored.
	Totals store.Totals
	// Reason says why RV is empty.
	Reason string
}

// Attach gives the indexer its collection and reads the header, not the objects.
// Records written under another fingerprint count as known, for deletes, but are
// not served. On an error, which wraps store.ErrCorrupt if the header cannot be
// read, the collection is attached and has been emptied if that was possible.
func (x *Indexer) Attach(collection store.Collection, codec Codec, fingerprint string) (Origin, error) {
	x.write.Lock()
	defer x.write.Unlock()
	x.write.collection, x.write.codec, x.write.fingerprint = collection, codec, fingerprint
	var origin Origin
	var stored store.Header
	err := collection.View(func(tx store.Tx) (err error) {
		if stored, err = tx.Header(); err == nil {
			origin.Totals, err = tx.Totals()
		}
		return err
	})
	fresh := store.Header{Fingerprint: fingerprint, Indices: x.fingerprintsLocked()}
	switch {
	case errors.Is(err, store.ErrNotFound):
		x.write.header = fresh
		origin.Reason = "nothing is stored yet"
		return origin, nil
	case err != nil:
		x.write.header = fresh
		x.clearLocked(err)
		return Origin{Reason: "the stored header is damaged"}, err
	}
	x.write.header = stored
	origin.Cluster, origin.Schema, origin.NoBookmarks = stored.Cluster, stored.Schema, stored.NoBookmarks
	origin.Contact = stored.Contact
	switch {
	case stored.Fingerprint != fingerprint:
		x.write.header.Complete = false
		origin.Reason = "the stored objects were written by another program version, transform or schema"
	case !stored.Complete:
		origin.Reason = "an earlier list was interrupted"
	case stored.RV == "":
		origin.Reason = "the stored objects have no resourceVersion"
	default:
		origin.RV = stored.RV
		x.write.rv = stored.RV
	}
	x.write.foreign = stored.Fingerprint != fingerprint
	return origin, nil
}

// Reset forgets everything, in memory and in the file, including departed
// records: the data belongs to another cluster. Nothing of it may be delivered,
// not even as deletes.
func (x *Indexer) Reset() {
	x.write.Lock()
	defer x.write.Unlock()
	x.objects.Replace(map[string]any{}, "")
	x.count.Store(0)
	x.write.rv = ""
	x.write.unread = nil
	x.emptyLocked()
}

// clearLocked empties the collection after damage.
func (x *Indexer) clearLocked(cause error) {
	x.logger.Error(cause, "Stored objects are damaged; they are dropped and listed again", "informer", x.write.collection.Identity())
	x.emptyLocked()
}

func (x *Indexer) emptyLocked() {
	header := store.Header{Fingerprint: x.write.fingerprint, Indices: x.fingerprintsLocked()}
	x.write.header, x.write.foreign = header, false
	x.persistLocked(store.Batch{Clear: true, Header: &header})
}

// persistLocked hands a batch to the collection. An error means either that the
// collection is gone for good, so that the file keeps an older consistent state,
// or that the batch holds what cannot be stored.
func (x *Indexer) persistLocked(batch store.Batch) {
	if x.write.collection == nil || x.write.suspended != nil {
		return
	}
	err := x.write.collection.Apply(batch)
	switch {
	case errors.Is(err, store.ErrInvalidBatch):
		x.abandonLocked(err)
	case err != nil:
		x.suspendLocked(err)
	}
}

// suspendLocked stops writing for the rest of this process: changes that the
// file has missed cannot be told from changes it has.
func (x *Indexer) suspendLocked(cause error) {
	x.write.suspended = cause
	level := x.logger.Error
	if errors.Is(cause, store.ErrClosed) {
		// The user closed the store under a running informer, which is allowed.
		level = func(err error, msg string, kv ...any) { x.logger.V(2).Info(msg, append(kv, "cause", err)...) }
	}
	level(cause, "Changes are no longer written to disk; going on from memory", "informer", x.write.collection.Identity())
}

// abandonLocked marks the file incomplete before suspending: an object that
// cannot be written would otherwise be missing from a state that looks whole.
func (x *Indexer) abandonLocked(cause error) {
	x.write.header.Complete = false
	header := x.write.header
	x.persistLocked(store.Batch{Header: &header})
	x.suspendLocked(cause)
}

// Flush waits until everything applied is durable; see store.Collection.Flush.
func (x *Indexer) Flush(ctx context.Context) error {
	x.write.Lock()
	collection, suspended := x.write.collection, x.write.suspended
	x.write.Unlock()
	if collection == nil || suspended != nil {
		return suspended
	}
	return collection.Flush(ctx)
}

// Detach flushes and releases the collection. The indexer keeps its objects and
// answers reads; further changes stay in memory.
func (x *Indexer) Detach() error {
	x.write.Lock()
	collection := x.write.collection
	x.write.collection = nil
	x.write.Unlock()
	if collection == nil {
		return nil
	}
	if err := collection.Close(); err != nil && !errors.Is(err, store.ErrClosed) {
		return fmt.Errorf("closing the collection of %s: %w", collection.Identity(), err)
	}
	return nil
}
