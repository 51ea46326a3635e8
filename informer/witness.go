package informer

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/audit"
	"github.com/warmcache/warmcache/fifo"
)

// maxWitnessed is how many deletes are remembered during an audit: some 10 MB.
const maxWitnessed = 100_000

// errPatience is the error of an await that has taken too long.
var errPatience = errors.New("it has taken too long")

// witness tells an audit what the pump applies while it is on:
//
//   - A delete is noted before it is applied: who does not find an object any more can
//     find the note.
//   - A list is noted before its first part is applied, and as ended after its last.
//     In between the cache is neither in the old state nor in the new one.
//   - Who waits is woken after each batch.
//
// And it takes the request of an audit for a list to the pump, which alone may fail the
// queue.
type witness struct {
	mu struct {
		sync.Mutex
		witnessed
		// on is set while there is an audit; deleted has the keys that were deleted
		// since it began.
		on      bool
		deleted map[string]struct{}
		// repair, if not nil, is why the pump is to ask for a list.
		repair error
		// changed, if not nil, is closed after the next batch.
		changed chan struct{}
		audits  AuditStatus
	}
}

// witnessed is what an audit may wait for.
type witnessed struct {
	// lists counts lists of which something was applied; listing is set until the last
	// of them has been applied whole.
	lists   uint64
	listing bool
	// requested is the value of lists when the pump took the last request for one.
	requested uint64
	// version is the resourceVersion that holds since the last batch. Unlike that of the
	// indexer, nobody else moves it.
	version string
}

// loaded is called with the version of what was stored before anything is applied.
func (w *witness) loaded(rv string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.version = rv
}

// begin is called when an audit begins.
func (w *witness) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.on, w.mu.deleted = true, map[string]struct{}{}
}

// end is called when an audit ends. A request that was not taken is dropped.
func (w *witness) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.on, w.mu.deleted, w.mu.repair = false, nil, nil
}

// before is called by the pump with a batch that it is about to apply.
func (w *witness) before(b fifo.Batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b.Reset || b.List != fifo.NoList {
		if !w.mu.listing {
			w.mu.lists++
		}
		w.mu.listing = true
	}
	if !w.mu.on {
		return
	}
	for _, d := range b.Deltas {
		if d.Type == cache.Deleted && len(w.mu.deleted) <= maxWitnessed {
			w.mu.deleted[d.Key] = struct{}{}
		}
	}
}

// after is called by the pump with a batch that it has applied and the version that
// holds now, if the batch tells. It returns why a list is to follow, or nil. In the middle
// of a list or a resync it is too early: the store, or handlers, would not get the rest. The
// queue, which was woken, has another batch behind that.
func (w *witness) after(b fifo.Batch, rv string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b.List == fifo.ListEnd {
		w.mu.listing = false
	}
	if rv != "" || b.List == fifo.ListEnd {
		w.mu.version = rv
	}
	if w.mu.changed != nil {
		close(w.mu.changed)
		w.mu.changed = nil
	}
	if w.mu.listing || len(b.Deltas) > 0 && b.Deltas[0].Type == cache.Sync {
		return nil
	}
	repair := w.mu.repair
	if repair != nil {
		w.mu.repair, w.mu.requested = nil, w.mu.lists
	}
	return repair
}

// request makes the pump ask for a list, which witnessed.repaired tells the end of. One that
// is under way does not do: it may have passed, unsuspecting, what is to be repaired.
func (w *witness) request(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.repair, w.mu.requested = why, math.MaxUint64
}

// repaired reports whether the list that was requested has been applied.
func (w *witnessed) repaired() bool { return w.lists > w.requested && !w.listing }

// await waits until a condition holds, which is evaluated under the lock after each
// batch. The error is that of ctx, or errPatience.
func (w *witness) await(ctx context.Context, patience <-chan time.Time, condition func(*witnessed) bool) error {
	for {
		w.mu.Lock()
		if condition(&w.mu.witnessed) {
			w.mu.Unlock()
			return nil
		}
		if w.mu.changed == nil {
			w.mu.changed = make(chan struct{})
		}
		changed := w.mu.changed
		w.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-patience:
			return errPatience
		}
	}
}

// sawDelete reports whether a delete of key was applied since the audit began.
func (w *witness) sawDelete(key string) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.mu.deleted) > maxWitnessed {
		return false, audit.ErrBusy
	}
	_, deleted := w.mu.deleted[key]
	return deleted, nil
}

// conclude counts an audit.
func (w *witness) conclude(r audit.Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.audits.add(r)
}

// status returns what came of the audits.
func (w *witness) status() AuditStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.audits
}

// version returns the resourceVersion up to which everything was applied, or "" if that
// is not known.
func (w *witness) version() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.version
}
