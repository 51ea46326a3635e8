package indexer

import (
	"context"
	"errors"

	"github.com/warmcache/warmcache/internal/objectcache"
	"github.com/warmcache/warmcache/store"
)

// What an informer needs to know of an indexer in disk residency.

// Residency returns where the objects are: in memory, whatever the Options say, as long
// as there is no collection that can be read.
func (x *Indexer) Residency() Residency {
	if x.disk.Load() != nil {
		return Disk
	}
	return Memory
}

// AwaitLost waits until stored objects are lost, and returns false if ctx ends before.
// It returns at once as long as IsLost does.
func (x *Indexer) AwaitLost(ctx context.Context) bool {
	var unreadable <-chan struct{}
	var losses uint64
	d := x.disk.Load()
	if d != nil {
		losses, unreadable = d.health.count(), d.health.lost()
	}
	select {
	case <-ctx.Done():
		return false
	case <-x.Lost():
		if d != nil { // nobody need read to find out
			d.health.fail(store.ErrCorrupt, losses, func() {}) // the engine has condemned it
		}
	case <-unreadable:
	}
	return true
}

// IsLost says whether BeginAnew has to be called before anything can be applied.
func (x *Indexer) IsLost() bool {
	d := x.disk.Load()
	if d == nil {
		return false
	}
	lost := x.Lost()
	return d.health.mustBegin() || lost != nil && isClosed(lost)
}

// BeginAnew empties a collection in disk residency whose objects cannot be read. Nothing
// is served until a list, an Update with Complete at its end, has filled it. It
// returns the version that was lost. An error means that it was lost again, or that
// the store is closed.
func (x *Indexer) BeginAnew() (rv string, err error) {
	d := x.disk.Load()
	if d == nil {
		return "", ErrResidency
	}
	return x.beginAnew(d)
}

// AwaitReadable waits until stored objects can be read. It returns false if stop is
// closed before, or the indexer was detached. In memory residency they always can.
func (x *Indexer) AwaitReadable(stop <-chan struct{}) bool {
	d := x.disk.Load()
	return d == nil || d.health.await(stop, func() bool { return d.health.err == nil })
}

// EndWaits lets go of reads that wait until objects have been listed again, or an index
// has been written: nobody will do that any more. Detach does the same, but comes too
// late for readers that the informer waits for, its handlers.
func (x *Indexer) EndWaits() {
	if d := x.disk.Load(); d != nil {
		d.health.end()
	}
}

// GiveUp notes that the store was closed under an indexer in disk residency, which can
// neither read nor write any more.
func (x *Indexer) GiveUp(cause error) {
	x.write.Lock()
	defer x.write.Unlock()
	if x.write.persistentLocked() {
		x.suspendLocked(cause)
	}
}

// ReadErr returns why stored objects cannot be read at present, an error that wraps
// ErrUnreadable, or that of GiveUp, or nil. In memory residency they always can.
func (x *Indexer) ReadErr() error {
	d := x.disk.Load()
	if d == nil {
		return nil
	}
	if w := x.writing.Load(); w.collection != nil && errors.Is(w.suspended, store.ErrClosed) {
		return w.suspended
	}
	return d.health.why()
}

// ReadErrors returns how many reads of stored objects have failed.
func (x *Indexer) ReadErrors() int64 {
	d := x.disk.Load()
	if d == nil {
		return 0
	}
	return d.readErrors.Load()
}

// CacheStats describe the cache of decoded objects.
type CacheStats = objectcache.Stats

// CacheStats returns zeros in memory residency.
func (x *Indexer) CacheStats() CacheStats {
	d := x.disk.Load()
	if d == nil {
		return CacheStats{}
	}
	return d.cache.Stats()
}

// IsFull says that more waits for the disk than the memory budget allows, so that nothing
// should be applied before a Flush. In memory residency it never is.
func (x *Indexer) IsFull() bool {
	d := x.disk.Load()
	if d == nil {
		return false
	}
	return d.collection.Durability().Pending > d.budget
}
