package informer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/warmcache/warmcache/fifo"
	"github.com/warmcache/warmcache/indexer"
	"github.com/warmcache/warmcache/store"
)

// errContradiction means that the server speaks of objects as if we held another
// state than we do: it was restored from a backup and has since passed the
// version we resumed from, or our copy is wrong. Only a list tells.
var errContradiction = errors.New("the server's events contradict the stored objects")

// load loads the stored objects, while the reflector probes and resumes. It returns
// false if ctx ended before.
func (i *sharedIndexInformer) load(ctx context.Context) bool {
	start := i.clock.Now()
	err := i.indexer.Load(ctx)
	if ctx.Err() != nil {
		// What is queued must not be applied to, or shown from, a copy that was
		// not read to its end.
		return false
	}
	if err != nil {
		i.noteCold("the stored objects cannot be read: " + err.Error())
		i.lifecycle.queue.Fail(err)
	}
	if i.start.storedClean {
		// Load has taken the mark of the graceful stop back. That must be on
		// disk before handlers are told anything that is not.
		i.flush(ctx)
	}
	klog.FromContext(ctx).V(2).Info("Loaded stored objects", "informer", i.name(),
		"objects", i.indexer.Len(), "duration", i.clock.Since(start))
	return true
}

// restore deals with a file that is found damaged. It must not begin before load has
// returned. In memory residency it writes everything anew; in disk residency it wakes
// the pump, whose next batch begins anew: see refill.
func (i *sharedIndexInformer) restore(ctx context.Context) {
	for i.indexer.AwaitLost(ctx) {
		if i.indexer.Residency() == Memory {
			i.indexer.Restore()
			continue
		}
		i.lifecycle.queue.Wake()
		if !i.indexer.AwaitReadable(ctx.Done()) {
			return
		}
	}
}

const (
	// roomPatience is how long a commit may take before the disk counts as failing.
	roomPatience = 5 * time.Second
	// roomCheck is how often the pump looks whether a failing disk has healed.
	roomCheck = time.Second
)

// pump applies batches until the queue is closed. Without a store, disk residency
// cannot go on: then it calls stopReading and waits for the end.
func (i *sharedIndexInformer) pump(ctx context.Context, stopReading func()) {
	for i.awaitRoom(ctx) {
		err := i.lifecycle.queue.PopBatch(func(b fifo.Batch) error { return i.apply(ctx, b) })
		switch {
		case errors.Is(err, fifo.ErrClosed):
			return
		case errors.Is(err, store.ErrClosed):
			klog.FromContext(ctx).Error(err, "The store was closed under an informer in disk residency; the informer does not go on", "informer", i.name())
			i.indexer.GiveUp(err)
			stopReading()
			<-ctx.Done()
			return
		case errors.Is(err, errDiffers): // the audit has said so
		case err != nil:
			klog.FromContext(ctx).Error(err, "Changes could not be applied; listing again", "informer", i.name())
			if i.indexer.IsLost() {
				// The queue has found out itself, in the middle of a list: no batch
				// that could begin anew would come of the next one either.
				i.lifecycle.queue.Wake()
			}
		}
	}
}

// awaitRoom waits, in disk residency, as long as too much waits for the disk. Meanwhile
// the queue gets full, and the reflector does not read on. It holds no lock, so that
// handlers and reads go on. It returns false if ctx ends.
func (i *sharedIndexInformer) awaitRoom(ctx context.Context) bool {
	for i.indexer.IsFull() {
		err := i.flushWithin(ctx, roomPatience)
		if ctx.Err() != nil {
			return false
		}
		if err == nil || errors.Is(err, store.ErrClosed) || i.indexer.IsLost() {
			break // there is room, or the next batch finds out
		}
		if !i.throttled.Swap(true) {
			d, _ := i.indexer.Durability()
			klog.FromContext(ctx).Error(err, "Too much waits for the disk; the watch is not read until it has been written",
				"informer", i.name(), "bytes", d.Pending)
		}
		select {
		case <-ctx.Done():
			return false
		case <-i.clock.After(roomCheck):
		}
	}
	if i.throttled.Swap(false) {
		klog.FromContext(ctx).Info("The watch is read again", "informer", i.name())
	}
	return true
}

// apply brings one batch into the indexer and then to the handlers, in this
// order: what a handler is told, it can read.
func (i *sharedIndexInformer) apply(ctx context.Context, b fifo.Batch) error {
	i.delivery.Lock()
	defer i.delivery.Unlock()
	if b.Reset {
		i.reset(ctx) // before a loss counts, which is of the other cluster's objects
	}
	if err := i.beginAnew(); err != nil {
		return err
	}
	if b.List != fifo.NoList {
		i.delivery.listed = true
	}
	i.witness.before(b)
	err := i.contradiction(b.Deltas)
	var olds []any
	if err == nil {
		olds, err = i.store(b)
	}
	if err != nil {
		if lost := i.beginAnew(); lost != nil {
			return lost
		}
		return err
	}
	switch {
	case i.delivery.refill != nil:
		i.refill(b)
	case i.delivery.replayed:
		i.distribute(b.Deltas, olds)
	}
	if b.CaughtUp != nil {
		i.caughtUp(ctx, *b.CaughtUp)
	}
	return i.applied(b)
}

// applied ends a batch. Its error makes the queue ask for the list that an audit wants.
func (i *sharedIndexInformer) applied(b fifo.Batch) error {
	if b.List == fifo.ListEnd {
		i.indexer.Suspect(false)
	}
	rv := b.RV
	if i.delivery.unversioned {
		rv = ""
	}
	repair := i.witness.after(b, rv)
	if repair != nil {
		i.indexer.Suspect(true)
	}
	return repair
}

// reset forgets the objects of another cluster. Handlers that have been shown
// them, which only the Stale policy does before the cluster is known, must not
// keep them.
func (i *sharedIndexInformer) reset(ctx context.Context) {
	var shown []any
	if i.delivery.replayed {
		for obj, err := range i.indexer.Objects(indexer.Query{}) {
			if err != nil {
				klog.FromContext(ctx).Error(err, "Deletes of objects of another cluster are not delivered", "informer", i.name())
				break
			}
			shown = append(shown, obj)
		}
	}
	i.indexer.Reset()
	i.delivery.cold = "the stored objects belong to another cluster"
	i.delivery.departed.reset()
	for _, obj := range shown {
		// Without the old object: a handler that its replay has not come to is not
		// introduced to it.
		key := keyOf(obj)
		tombstone := cache.DeletedFinalStateUnknown{Key: key, Obj: obj}
		i.notify(notification{kind: deleted, key: key, obj: tombstone}, false)
	}
}

// keyOf returns the key of an object that the indexer holds under it.
func keyOf(obj any) string {
	key, _ := cache.MetaNamespaceKeyFunc(obj)
	return key
}

// contradiction checks that watch events go on from the stored copy that was
// resumed from: what is added must not be held, and what is changed or deleted
// must be, under the same UID. After a list the state is the server's own.
func (i *sharedIndexInformer) contradiction(deltas []fifo.Delta) error {
	if i.delivery.listed {
		return nil
	}
	present := map[string]types.UID{} // after the deltas so far
	for _, d := range deltas {
		uid, known := present[d.Key]
		if !known {
			var err error
			if uid, err = i.heldUID(d.Key); err != nil {
				return err
			}
		}
		switch {
		case d.Type == cache.Sync:
			continue
		case d.Type == cache.Added && uid != "":
			return fmt.Errorf("%w: %s was added, but is there already", errContradiction, d.Key)
		case d.Type != cache.Added && uid != uidOf(d.Object):
			return fmt.Errorf("%w: %s was changed or deleted, but is not there", errContradiction, d.Key)
		}
		present[d.Key] = uidOf(d.Object)
		if d.Type == cache.Deleted {
			present[d.Key] = ""
		}
	}
	return nil
}

// heldUID returns the UID of the object that is stored under key, or "" if none is.
func (i *sharedIndexInformer) heldUID(key string) (types.UID, error) {
	old, _, err := i.indexer.GetByKey(key)
	return uidOf(old), err // meta has none for nil
}

func uidOf(obj any) types.UID {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return accessor.GetUID()
}

// store applies the deltas that change something. The result is parallel to the
// deltas: the previous state of each.
func (i *sharedIndexInformer) store(b fifo.Batch) ([]any, error) {
	update := indexer.Update{
		RV:         i.persistableRV(b),
		Incomplete: b.List == fifo.ListPartial,
		Complete:   b.List == fifo.ListEnd,
	}
	positions := make([]int, 0, len(b.Deltas))
	for position, d := range b.Deltas {
		if d.Type == cache.Sync {
			continue
		}
		// Whatever disappears departs, also what another object takes the name
		// of: that surfaces as an update, as in client-go, unless the process
		// ends before.
		change := indexer.Change{Key: d.Key, Object: d.Object, Depart: true}
		if d.Type == cache.Deleted {
			change.Object = nil
		}
		update.Changes = append(update.Changes, change)
		positions = append(positions, position)
	}
	olds := make([]any, len(b.Deltas))
	if len(update.Changes) == 0 && update.RV == "" && b.List == fifo.NoList {
		return olds, nil
	}
	i.describe(&update)
	changed, err := i.indexer.Apply(update)
	for n, position := range positions {
		if err == nil {
			olds[position] = changed[n]
		}
	}
	return olds, err
}

// persistableRV returns the version that the store has once b is applied, or "" if
// b does not tell. A server that gives its lists no version begins a watch with
// what exists, in no order, so that the versions of the objects tell nothing.
func (i *sharedIndexInformer) persistableRV(b fifo.Batch) string {
	switch {
	case b.List == fifo.ListEnd:
		i.delivery.unversioned = b.RV == "" || b.RV == "0"
	case i.delivery.unversioned:
		return ""
	}
	return b.RV
}

// describe adds what the reflector knows about the server.
func (i *sharedIndexInformer) describe(update *indexer.Update) {
	status := i.start.reflector.Status()
	update.Cluster, update.Schema = status.Cluster, status.Schema
	if update.RV != "" || update.Complete {
		update.Contact = i.clock.Now()
	}
	if status.Bookmarks != nil {
		silent := !*status.Bookmarks
		update.NoBookmarks = &silent
	}
	newest := store.ObjectRef(status.Newest)
	update.Newest, update.Replays = &newest, &status.Replays
}

// distribute tells the handlers what has been applied.
func (i *sharedIndexInformer) distribute(deltas []fifo.Delta, olds []any) {
	for n, d := range deltas {
		switch {
		case d.Type == cache.Sync:
			i.notify(notification{kind: updated, old: d.Object, obj: d.Object}, true)
		case d.Type == cache.Deleted:
			seq := i.notify(notification{kind: deleted, key: d.Key, old: olds[n], obj: d.Object}, false)
			i.trackDeparted(d.Key, olds[n], seq)
		case olds[n] == nil:
			i.notify(notification{kind: added, key: d.Key, obj: d.Object}, false)
		case uidOf(olds[n]) != uidOf(d.Object):
			seq := i.notify(notification{kind: updated, key: d.Key, old: olds[n], obj: d.Object}, false)
			i.trackDeparted(d.Key, olds[n], seq)
		default:
			// As in client-go, what did not change the version is a resync.
			same := versionOf(olds[n]) == versionOf(d.Object)
			i.notify(notification{kind: updated, key: d.Key, old: olds[n], obj: d.Object}, same)
		}
	}
}

func (i *sharedIndexInformer) notify(n notification, isSync bool) uint64 {
	if n.kind != deleted {
		i.mutations.AddObject(n.obj)
	}
	return i.processor.distribute(n, isSync)
}

func versionOf(obj any) string {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return accessor.GetResourceVersion()
}

// caughtUp shows the state to the handlers, the first time, and notes whether it
// is confirmed. It guarantees, under the delivery lock, so that no change and no
// handler comes in between:
//
//   - departed objects come before what exists, so that a name that was taken
//     again ends as present;
//   - every handler is given exactly one OnAdd for each object, and all that
//     follows;
//   - nobody sees HasSynced before all of that is queued or, in disk residency, there
//     for every handler to take.
//
// The end of the start, with its outcome, is the first mark that is confirmed.
func (i *sharedIndexInformer) caughtUp(ctx context.Context, mark fifo.CaughtUp) {
	ended := mark.Confirmed && !i.isConfirmed()
	if ended {
		i.concludeStart()
		close(i.confirmed)
	}
	if !i.delivery.replayed {
		i.replay(ctx)
	}
	if ended {
		i.logStart(ctx)
	}
}

func (i *sharedIndexInformer) replay(ctx context.Context) {
	start := i.clock.Now()
	i.replayDeparted(ctx)
	objects := i.replayStored()
	i.delivery.replayed = true
	close(i.synced)
	i.processor.upstreamSynced()
	klog.FromContext(ctx).V(2).Info("Informer has synced", "informer", i.name(), "objects", objects,
		"confirmed", i.isConfirmed(), "replay", i.clock.Since(start).Round(time.Millisecond))
}
