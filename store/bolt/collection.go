package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/warmcache/warmcache/store"
)

// collection is the state of one identity. It outlives the handles that
// Collection returns for as long as something waits for a commit, so that a
// collection that was closed on a failing disk loses nothing.
//
// What it has is lost when its generation ends: until a batch with Clear begins
// anew, everything returns the error that tells why.
//
// Lock order: writing, mu, DB.mu.
type collection struct {
	db    *DB
	id    store.Identity
	names bucketNames

	// totals are those of the last commit, nil if they are not known; written are
	// those of the one under way. They are the committer's.
	totals  *totalsRecord
	written totalsRecord

	// writing serialises those who replace pending: Apply and the committer's
	// freeze. Apply reads the file under it, but nothing waits for a commit.
	writing sync.Mutex

	// dropped are the departed records that were given up.
	dropped droppedRecords

	mu struct {
		sync.RWMutex
		// generation is what the overlays lie over.
		generation *generation
		// pending takes what is applied; it is never nil.
		pending *overlay
		// frozen is what a commit writes; nil if none is due. It is below
		// pending and above the file.
		frozen *overlay
		// applied counts batches. frozenAt is its value when frozen was
		// pending, durable when the last committed overlay was.
		applied, frozenAt, durable uint64
		// rv is the resourceVersion in the file, objects the totals of the objects
		// in it.
		rv      string
		objects store.Totals
	}
}

func newCollection(db *DB, id store.Identity, g *generation) *collection {
	c := &collection{db: db, id: id, names: namesOf(id)}
	c.mu.generation = g
	c.mu.pending = newOverlay()
	return c
}

func (c *collection) generation() *generation {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.mu.generation
}

// lost returns why what c had is lost, or nil if it is not.
func (c *collection) lost() error { return c.generation().damaged() }

// startOver makes a lost collection an empty one of the current generation.
func (c *collection) startOver() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.generation = c.db.current()
	c.mu.rv, c.mu.objects = "", store.Totals{}
	c.dropLocked()
}

// dropLocked drops the overlays of a collection that is lost.
func (c *collection) dropLocked() {
	pending, frozen := c.mu.pending.usage, usage{}
	if c.mu.frozen != nil {
		frozen = c.mu.frozen.usage
	}
	c.mu.pending, c.mu.frozen = newOverlay(), nil
	c.db.uncharge(pending, frozen)
}

// eachBucket calls fn for every bucket that holds something of a collection.
func eachBucket(tx *bbolt.Tx, names bucketNames, fn func(name []byte, b *bbolt.Bucket) error) error {
	for _, name := range [][]byte{names.objects, names.departed} {
		if b := tx.Bucket(name); b != nil {
			if err := fn(name, b); err != nil {
				return err
			}
		}
	}
	prefix := []byte(names.indices)
	cursor := tx.Cursor()
	for name, _ := cursor.Seek(prefix); bytes.HasPrefix(name, prefix); name, _ = cursor.Next() {
		if err := fn(name, tx.Bucket(name)); err != nil {
			return err
		}
	}
	return nil
}

// load reads what Durability tells about the file.
//
// A header that says Clean is not believed when the process before was killed: it
// had to take that back before it told anything to anybody, but its disk may not
// have let it.
func (c *collection) load() error {
	var header store.Header
	var totals totalsRecord
	unclosed := false
	err := c.view(func(t *tx) error {
		// Damage of either is for the reader of it to find.
		header, _ = t.Header()
		_ = t.engine(func() (err error) {
			totals, err = t.storedTotals()
			return err
		})
		f := t.generation.opened.Load()
		unclosed = f != nil && f.unclosed
		return nil
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.mu.rv, c.mu.objects = header.RV, totals.objects
	c.mu.Unlock()
	if c.db.firstTime(c.id) && header.Clean && unclosed && !c.db.readOnly {
		header.Clean = false
		return c.apply(&store.Batch{Header: &header}, new(atomic.Bool))
	}
	return nil
}

// apply makes b visible. It builds the next pending overlay aside and publishes
// it at the end, so that a batch is visible whole or, after an error, not at
// all.
func (c *collection) apply(b *store.Batch, closed *atomic.Bool) error {
	if err := c.db.admit(); err != nil {
		return err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	// Checked under the lock that Close takes after it has set closed: a batch
	// is in time for the last flush, or refused.
	if closed.Load() || c.db.closed.Load() {
		return store.ErrClosed
	}
	if err := c.lost(); err != nil {
		if !b.Clear {
			return err
		}
		c.startOver()
	}
	before := c.pending()
	next := before.clone()
	if err := c.change(next, b); err != nil {
		return err
	}
	if dropped := next.trimDeparted(c.db.options.DepartedBytes); dropped > 0 {
		c.dropped.note(c, dropped)
	}
	if err := c.prune(next); err != nil {
		return err
	}
	c.mu.Lock()
	c.mu.pending = next
	c.mu.applied++
	c.mu.Unlock()
	c.db.charge(next.usage.minus(before.usage))
	return nil
}

func (c *collection) pending() *overlay {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.mu.pending
}

// change puts b into next, in the order that store.Batch documents. It reads
// the file only if b needs to know what is there.
func (c *collection) change(next *overlay, b *store.Batch) error {
	if !needsLookup(b) {
		return newApplier(next, c.db.now(), nil).apply(b)
	}
	return c.view(func(t *tx) error {
		return t.engine(func() error {
			// The new overlay in place of the one that it was cloned from.
			t.below()
			t.layers = append([]*overlay{next}, t.layers...)
			return newApplier(next, c.db.now(), t).apply(b)
		})
	})
}

// freeze makes pending the overlay to be committed to g, unless an earlier one
// still is, and returns that overlay, or nil if there is nothing to commit.
func (c *collection) freeze(g *generation) *overlay {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.generation.damaged() != nil {
		c.dropLocked()
	}
	if c.mu.generation != g {
		return nil
	}
	if c.mu.frozen == nil && !c.mu.pending.empty() {
		c.mu.frozen, c.mu.pending = c.mu.pending, newOverlay()
		c.mu.frozenAt = c.mu.applied
		c.db.freeze(c.mu.frozen.usage)
	}
	return c.mu.frozen
}

// committed drops the frozen overlay, which is now in the file, unless c was lost
// meanwhile.
func (c *collection) committed(frozen *overlay) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.frozen != frozen {
		return
	}
	switch {
	case frozen.header != nil:
		c.mu.rv = frozen.header.RV
	case frozen.cleared:
		c.mu.rv = ""
	}
	c.mu.frozen, c.mu.objects = nil, c.written.objects
	c.mu.durable = c.mu.frozenAt
	c.db.uncharge(usage{}, frozen.usage)
}

// clean says whether the file has everything, so that the collection need not be
// kept when nobody has it open.
func (c *collection) clean() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.mu.pending.empty() && c.mu.frozen == nil
}

// flush implements store.Collection.Flush.
func (c *collection) flush(ctx context.Context) error {
	c.mu.RLock()
	target := c.mu.applied
	c.mu.RUnlock()
	for {
		// Taken before durable is read: a commit that ends in between is seen
		// by one or the other.
		attempt := c.db.nextAttempt()
		durable := c.durableSince(target)
		// Afterwards, because what is lost does not wait any more either.
		if err := c.lost(); err != nil {
			return err
		}
		if durable {
			return nil
		}
		c.db.urge()
		select {
		case <-attempt.done:
			if attempt.err != nil && !attempt.stale {
				return attempt.err
			}
		case <-c.db.stopped:
			if c.durableSince(target) {
				return nil
			}
			return store.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// durableSince says whether the first target batches are in the file. Nothing
// waiting is as good: a batch that changes nothing is never committed.
func (c *collection) durableSince(target uint64) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.mu.durable >= target || c.mu.frozen == nil && c.mu.pending.empty()
}

func (c *collection) durability() store.Durability {
	committed, err := c.db.lastCommit()
	c.mu.RLock()
	defer c.mu.RUnlock()
	if err := c.mu.generation.damaged(); err != nil {
		return store.Durability{Committed: committed, Err: err}
	}
	d := store.Durability{RV: c.mu.rv, Objects: c.mu.objects, Pending: c.mu.pending.usage.bytes, Committed: committed, Err: err}
	if c.mu.frozen != nil {
		d.Pending += c.mu.frozen.usage.bytes
	}
	return d
}

// handle implements store.Collection: one opening of a collection.
type handle struct {
	c      *collection
	owner  string
	closed atomic.Bool
}

func (h *handle) Identity() store.Identity { return h.c.id }

func (h *handle) checkOpen() error {
	if h.closed.Load() || h.c.db.closed.Load() {
		return store.ErrClosed
	}
	return nil
}

// View goes on after Close: the collection is kept by its handle, without overlays
// once these are in the file.
func (h *handle) View(fn func(store.Tx) error) error {
	if h.c.db.closed.Load() {
		return store.ErrClosed
	}
	return h.c.view(func(t *tx) error { return fn(t) })
}

func (h *handle) Apply(b store.Batch) error {
	if err := h.checkOpen(); err != nil {
		return err
	}
	if h.c.db.readOnly {
		return store.ErrReadOnly
	}
	if err := b.Validate(); err != nil {
		return err
	}
	return h.c.apply(&b, &h.closed)
}

func (h *handle) Flush(ctx context.Context) error {
	if err := h.checkOpen(); err != nil {
		return err
	}
	return h.c.flush(ctx)
}

func (h *handle) Durability() store.Durability { return h.c.durability() }

func (h *handle) Lost() <-chan struct{} { return h.c.generation().lost }

func (h *handle) Quarantine(cause error) {
	if h.c.db.closed.Load() {
		return
	}
	if !errors.Is(cause, store.ErrCorrupt) {
		cause = fmt.Errorf("%w: %w", store.ErrCorrupt, cause)
	}
	_ = h.c.db.condemn(h.c.generation(), cause) // it returns what it was given
}

// Close flushes and releases the identity. It makes one attempt: what a failing
// disk does not take stays in memory, and is there when the identity is opened
// again or the disk heals.
func (h *handle) Close() error {
	if h.closed.Swap(true) {
		return nil
	}
	// An Apply that is under way ends first.
	h.c.writing.Lock()
	h.c.writing.Unlock() //nolint:staticcheck // a barrier, not a critical section
	err := h.c.flush(context.Background())
	h.c.db.release(h)
	if errors.Is(err, store.ErrClosed) {
		// Close of the store has taken over, and reports what it could not do.
		return nil
	}
	if err != nil {
		return fmt.Errorf("close %s: %w", h.c.id, err)
	}
	return nil
}

// now is the time of departed records.
func (db *DB) now() time.Time { return db.options.Clock.Now().Round(0).UTC() }
