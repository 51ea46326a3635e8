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
	// header is what the collection was last given. The map in it is never
	// modified, only replaced.
	header store.Header
	// fingerprint is what records written by this process are read with. The
	// header carries it once all records have it.
	fingerprint string
	// loaded is set once memory and file hold the same, or what differs is
	// unread. Nothing is applied before.
	loaded bool
	// suspended says why nothing is written any more, or is nil.
	suspended error
	// restoring is set while Restore is under way: whatever header says, the
	// collection is told that it is incomplete. restoreAgain makes it begin again.
	restoring, restoreAgain bool
}

// persistentLocked reports whether changes are written.
func (p *persistence) persistentLocked() bool { return p.collection != nil && p.suspended == nil }

// foreignLocked reports whether there are records that were written under
// another fingerprint.
func (p *persistence) foreignLocked() bool { return p.header.Fingerprint != p.fingerprint }

// Origin says what a collection is good for at start.
type Origin struct {
	// RV is where a watch may resume, or empty if only a list will do.
	RV string
	// Cluster and Schema are what the objects come from; empty if unknown.
	Cluster, Schema string
	// NoBookmarks, Replays and Newest are those of store.Header.
	NoBookmarks, Replays bool
	Newest               store.ObjectRef
	// Clean is store.Header.Clean.
	Clean bool
	// Contact is when the server last vouched for the stored state; zero if it
	// is not known.
	Contact time.Time
	// Totals describe what is stored.
	Totals store.Totals
	// Readable says that this program can read the stored objects, so that a list
	// is compared with them and not only with their keys.
	Readable bool
	// Reason says why RV is empty.
	Reason string
}

// Attach gives the indexer, which must be empty, its collection and reads the
// header, not the objects; Load must follow. Records written under another
// fingerprint count as known, for deletes, but are not served.
//
// An error means that the header cannot be read, and is dealt with: the
// collection stays attached, begins anew in another file if the error wraps
// store.ErrCorrupt, and is left alone by this process otherwise. Then the indexer
// works in memory residency, whatever was asked for.
func (x *Indexer) Attach(collection store.Collection, codec Codec, fingerprint string) (Origin, error) {
	x.write.Lock()
	defer x.write.Unlock()
	x.write.collection, x.write.codec, x.write.fingerprint = collection, codec, fingerprint
	x.publishLocked()
	x.write.header = x.emptyHeaderLocked()
	origin, totals, err := x.originLocked(collection)
	if x.residency == Disk && x.write.suspended == nil {
		x.attachDiskLocked(totals)
	}
	return origin, err
}

// nothingStored is the reason of a first start.
const nothingStored = "nothing is stored yet"

// originLocked reads the header of the collection.
func (x *Indexer) originLocked(collection store.Collection) (Origin, store.Totals, error) {
	var stored store.Header
	var totals store.Totals
	err := collection.View(func(tx store.Tx) (err error) {
		if totals, err = tx.Totals(); err != nil {
			return err
		}
		stored, err = tx.Header()
		if errors.Is(err, store.ErrNotFound) && totals.Count != 0 {
			// The indexer writes no object without a header.
			return fmt.Errorf("%w: %d objects and no header", store.ErrCorrupt, totals.Count)
		}
		return err
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return Origin{Reason: nothingStored}, totals, nil
	case err != nil:
		x.distrustLocked(err)
		return Origin{Reason: "the stored header cannot be read"}, store.Totals{}, err
	}
	x.write.header = stored
	origin := originOf(stored, x.write.fingerprint)
	origin.Totals = totals
	if origin.Readable && !stored.Complete && stored.RV == "" && totals.Count == 0 {
		// An earlier start did not get as far as a list.
		origin.Readable, origin.Reason = false, nothingStored
	}
	if x.write.foreignLocked() {
		// Whatever is written from now on makes the records a mixture.
		x.write.header.Complete = false
	}
	return origin, totals, nil
}

func originOf(stored store.Header, fingerprint string) Origin {
	origin := Origin{
		Cluster: stored.Cluster, Schema: stored.Schema, NoBookmarks: stored.NoBookmarks, Replays: stored.Replays, Newest: stored.Newest,
		Clean: stored.Clean, Contact: stored.Contact, Readable: stored.Fingerprint == fingerprint,
	}
	switch {
	case !origin.Readable:
		origin.Reason = "the stored objects were written with another version of the type, the codec or the transform"
	case !stored.Complete:
		origin.Reason = "an earlier list was interrupted"
	case stored.RV == "":
		origin.Reason = "the stored objects have no resourceVersion"
	default:
		origin.RV = stored.RV
	}
	return origin
}

// Reset forgets everything, in memory and in the file, including departed
// records: the data belongs to another cluster. Nothing of it may be delivered,
// not even as deletes. Objects that have not been loaded never will be.
func (x *Indexer) Reset() {
	x.write.Lock()
	defer x.write.Unlock()
	x.objects.Replace(map[string]any{}, "")
	x.count.Store(0)
	x.setVersion("")
	if d := x.disk.Load(); d != nil {
		x.write.loaded = true
		_ = x.clearLocked(d, x.emptyHeaderLocked()) // else the objects are lost anyway
		return
	}
	x.emptyLocked()
}

// distrustLocked deals with a collection that cannot be read. Only damage is a
// reason to drop what is in it. It is one to move the whole file aside, except
// where the records are what was written, and only make no sense to this program.
func (x *Indexer) distrustLocked(cause error) {
	if !errors.Is(cause, store.ErrCorrupt) {
		x.write.loaded = true
		x.suspendLocked(cause)
		return
	}
	if !errors.Is(cause, errUndecodable) {
		x.write.collection.Quarantine(cause)
	}
	x.log().Error(cause, "Stored objects cannot be used; they are dropped and listed again", "informer", x.write.collection.Identity())
	x.emptyLocked()
}

// emptyLocked empties the file. Memory must be empty.
func (x *Indexer) emptyLocked() {
	x.write.foreign = nil
	x.write.loaded = true
	header := x.emptyHeaderLocked()
	_ = x.persistLocked(store.Batch{Clear: true, Header: &header})
}

func (x *Indexer) emptyHeaderLocked() store.Header {
	return store.Header{Fingerprint: x.write.fingerprint, Indices: x.fingerprintsLocked()}
}

// persistLocked hands a batch to the collection. Its error, which it has dealt
// with, means that the collection is lost, so that Restore will write everything;
// that it is gone for good, so that the file keeps an older consistent state; or
// that the batch holds what cannot be stored.
func (x *Indexer) persistLocked(batch store.Batch) error {
	if !x.write.persistentLocked() {
		return nil
	}
	header := batch.Header
	if header != nil && x.write.restoring {
		incomplete := *header
		incomplete.Complete = false
		batch.Header = &incomplete
	}
	err := x.write.collection.Apply(batch)
	switch {
	case errors.Is(err, store.ErrInvalidBatch):
		x.abandonLocked(err)
	case err != nil && !errors.Is(err, store.ErrCorrupt):
		x.suspendLocked(err)
	case header != nil:
		x.write.header = *header
	}
	return err
}

// suspendLocked stops writing for the rest of this process: changes that the
// file has missed cannot be told from changes it has.
func (x *Indexer) suspendLocked(cause error) {
	x.write.suspended = cause
	x.publishLocked()
	const msg = "Changes are no longer written to disk; going on from memory"
	identity := x.write.collection.Identity()
	if errors.Is(cause, store.ErrClosed) {
		// The user closed the store under a running informer, which is allowed.
		x.log().V(2).Info(msg, "informer", identity, "cause", cause)
		return
	}
	x.log().Error(cause, msg, "informer", identity)
}

// abandonLocked marks the file incomplete before suspending: the next start
// would run into the object that cannot be written soon after resuming, so it had
// better list. The version in the file stays that of its objects.
func (x *Indexer) abandonLocked(cause error) {
	header := x.write.header
	header.Complete = false
	if err := x.write.collection.Apply(store.Batch{Header: &header}); err == nil {
		x.write.header = header
	}
	x.suspendLocked(cause)
}

// Flush waits until everything applied is durable; see store.Collection.Flush. It
// returns why writing was suspended, if it was.
func (x *Indexer) Flush(ctx context.Context) error {
	x.write.Lock()
	collection, suspended := x.write.collection, x.write.suspended
	x.write.Unlock()
	if collection == nil || suspended != nil {
		return suspended
	}
	return collection.Flush(ctx)
}

// Detach flushes and releases the collection. In memory residency, the indexer keeps
// its objects and answers reads; further changes stay in memory. In disk residency
// reads go on from the collection until its store is closed, and show what another
// indexer of this identity makes of it; changes return store.ErrClosed.
func (x *Indexer) Detach() error {
	d := x.disk.Load()
	if d == nil && isClosed(x.Lost()) {
		x.Restore()
	}
	x.write.Lock()
	if x.write.persistentLocked() && x.write.loaded && (d == nil || !isClosed(d.health.lost())) {
		header := x.write.header
		header.Clean = true
		_ = x.persistLocked(store.Batch{Header: &header})
	}
	collection := x.write.collection
	x.write.collection = nil
	if d != nil {
		// Another indexer may write now, and does not tell this cache: a change
		// that never ends keeps it empty.
		d.cache.BeginAll()
	}
	x.write.Unlock()
	x.EndWaits()
	if collection == nil {
		return nil
	}
	err := collection.Close()
	last := collection.Durability()
	if last.Err == nil {
		last.Err = err
	}
	x.writing.Store(&writing{last: last})
	if err != nil && !errors.Is(err, store.ErrClosed) {
		return fmt.Errorf("closing the collection of %s: %w", collection.Identity(), err)
	}
	return nil
}
