package bolt

import (
	"errors"
	"fmt"
	"time"

	"github.com/warmcache/warmcache/store"
)

// Backoff of failing commits. A disk that is full rarely heals within a second,
// and should not wait much longer than half a minute when it has.
const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// backpressure is how many times MaxDirtyBytes may wait on a healthy disk.
const backpressure = 4

// attempt is one try to commit. err and stale are set before done is closed.
type attempt struct {
	done chan struct{}
	err  error
	// stale says that another generation has begun meanwhile: err says nothing
	// about what waits now.
	stale bool
}

func newAttempt() *attempt { return &attempt{done: make(chan struct{})} }

// request is a transaction that the committer runs for somebody else.
type request struct {
	fn func(*writeTx) error
	// committed runs on the committer once fn is durable.
	committed func()
	done      chan error
}

// nextAttempt returns the attempt that ends next: the one under way, or else
// the one to come.
func (db *DB) nextAttempt() *attempt {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.mu.attempt
}

// lastCommit returns when the last commit ended and why the last attempt
// failed, if it did.
func (db *DB) lastCommit() (time.Time, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.mu.committed, db.mu.err
}

// charge accounts for what an Apply added to the pending overlays, and starts a
// commit when enough waits. On a failing disk only time starts one.
func (db *DB) charge(added usage) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.mu.pending = db.mu.pending.plus(added)
	if db.mu.dirtySince.IsZero() {
		db.mu.dirtySince = db.options.Clock.Now()
		db.kick()
	}
	full := db.mu.pending.count >= db.options.MaxDirty || db.mu.pending.bytes >= db.options.MaxDirtyBytes
	if full && db.mu.err == nil && !db.mu.urgent {
		db.mu.urgent = true
		db.kick()
	}
}

// freeze accounts for a pending overlay that became a frozen one.
func (db *DB) freeze(moved usage) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.mu.pending = db.mu.pending.minus(moved)
	db.mu.frozen = db.mu.frozen.plus(moved)
}

// uncharge accounts for changes that wait no more.
func (db *DB) uncharge(pending, frozen usage) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.mu.pending = db.mu.pending.minus(pending)
	db.mu.frozen = db.mu.frozen.minus(frozen)
}

// admit blocks while too much waits for a healthy disk, so that a list is
// written at the speed of the disk and not kept in memory.
func (db *DB) admit() error {
	for {
		attempt, full := db.full()
		if !full {
			return nil
		}
		select {
		case <-attempt.done:
		case <-db.stopped:
			return store.ErrClosed
		}
	}
}

func (db *DB) full() (*attempt, bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	waiting := db.mu.pending.bytes + db.mu.frozen.bytes
	if db.mu.err != nil || waiting <= backpressure*db.options.MaxDirtyBytes {
		return nil, false
	}
	db.mu.urgent = true
	db.kick()
	return db.mu.attempt, true
}

// urge makes the committer try now, also in the middle of its backoff: whoever
// calls Flush wants to know whether the disk has healed.
func (db *DB) urge() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.mu.urgent = true
	db.kick()
}

// kick wakes the committer to look at what is due.
func (db *DB) kick() {
	select {
	case db.wake <- struct{}{}:
	default:
	}
}

// run is the committer: the only goroutine that writes to the file. It returns
// after one last attempt once the store is closed.
func (db *DB) run() {
	defer close(db.stopped)
	db.verifyFirst()
	for {
		wait, last := db.nextCommit()
		if wait == 0 {
			db.commit()
			db.serve()
		}
		if last {
			db.commitRest()
			return
		}
		// Also after a commit: one that is always due must not keep it away.
		scrub := db.scrub.wait(db.options.Clock.Now())
		if scrub == 0 {
			db.scrub.step()
		} else if wait != 0 {
			db.sleep(wait, scrub)
		}
	}
}

// commitRest commits what had to wait for an earlier overlay, if that was written.
func (db *DB) commitRest() {
	db.mu.Lock()
	rest := db.mu.err == nil && db.mu.pending.count > 0
	db.mu.Unlock()
	if rest {
		db.commit()
	}
}

// sleep waits for the shorter of two times, of which a negative one has no end, or
// for something to happen.
func (db *DB) sleep(a, b time.Duration) {
	if a < 0 || b >= 0 && b < a {
		a = b
	}
	if a < 0 {
		<-db.wake
		return
	}
	timer := db.options.Clock.NewTimer(a)
	defer timer.Stop()
	select {
	case <-db.wake:
	case <-timer.C():
	}
}

// nextCommit says in how long a commit is due: zero means now, a negative time
// not before something happens. The last one is due at once.
func (db *DB) nextCommit() (wait time.Duration, last bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	now := db.options.Clock.Now()
	dirty := !db.mu.dirtySince.IsZero() || !db.mu.generation.ready()
	switch {
	case db.mu.stopping || db.mu.urgent || len(db.mu.requests) > 0:
		return 0, db.mu.stopping
	case !dirty:
		return -1, false
	case db.mu.err != nil:
		return max(0, db.mu.retryAt.Sub(now)), false
	default:
		return max(0, db.mu.dirtySince.Add(db.options.FlushInterval).Sub(now)), false
	}
}

// commit is one attempt to make everything that was applied durable.
//
// It guarantees that a batch is in the file whole or not at all, and after every
// batch of its collection that came before. It gets that from two rules: a
// collection has at most one frozen overlay, which stays until a transaction
// with it has succeeded, and only then does the next one freeze. In order:
//
//  1. make sure that there is a file, which the last one found damaged may have left
//     none, and that it was verified
//  2. freeze what is pending, one collection after the other; each is atomic by
//     itself, and nothing is promised across collections
//  3. write all frozen overlays in one transaction
//  4. after success, drop each, under the lock that a View begins under
//  5. record the outcome, and wake those who wait for it
//
// The transaction is not split when it is large: its size is bounded by
// back-pressure as long as the disk works.
func (db *DB) commit() {
	db.mu.Lock()
	db.mu.urgent = false
	g := db.mu.generation
	db.mu.Unlock()
	f, err := db.fileOf(g)
	if errors.Is(err, errStopped) {
		return // nothing waits for it
	}
	start := db.options.Clock.Now()
	work := db.frozenWork(g)
	if err == nil && len(work) > 0 {
		err = db.update(g, f, func(tx *writeTx) error {
			for c, frozen := range work {
				if err := c.write(tx, frozen); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for c, frozen := range work {
		c.totals = nil
		if err == nil {
			c.totals = new(c.written)
			c.committed(frozen)
		}
	}
	if err == nil {
		db.measure(f)
	}
	db.finish(g, start, err, len(work) > 0)
}

// frozenWork returns what there is to write to the file of g.
func (db *DB) frozenWork(g *generation) map[*collection]*overlay {
	work := map[*collection]*overlay{}
	for _, c := range db.all() {
		if frozen := c.freeze(g); frozen != nil {
			work[c] = frozen
		}
	}
	return work
}

// update runs fn in a write transaction and commits it.
func (db *DB) update(g *generation, f *openFile, fn func(*writeTx) error) error {
	if err := db.checkPlace(f); err != nil {
		return db.condemn(g, err)
	}
	return db.guard(g, func() error {
		if err := f.settle(); err != nil {
			return err
		}
		tx, err := f.begin(true)
		if err != nil {
			return err
		}
		id := int64(tx.ID())
		vetted := &writeTx{tx, newVetter(tx, f.file)}
		if err = vetted.vetCommit(); err == nil {
			err = fn(vetted)
		}
		if err == nil {
			err = call(db.options.beforeCommit)
		}
		ended := true
		if err == nil {
			f.unsettled = true
			ended, err = f.commit(tx)
		}
		if !ended {
			return err
		}
		if err != nil {
			db.scrub.failed()
			return errors.Join(err, f.rollback(tx))
		}
		f.unsettled = false
		f.txid.Store(id)
		return call(db.options.afterCommit)
	})
}

// settle makes the meta pages durable after a commit that failed.
//
// If it was the sync of its meta page that failed, bbolt goes on from this page,
// which it sees in the page cache, and gives the pages of the state before it to
// the next transaction. But on the disk that state may still be the newest one:
// a power cut while its pages are written anew would leave nothing to open.
// Syncing again is not enough, because the kernel may take a page that it could
// not write for clean. Hence the meta pages are written as they are read.
func (f *openFile) settle() error {
	if !f.unsettled {
		return nil
	}
	metas := make([]byte, 2*pageSize)
	if _, err := f.file.ReadAt(metas, 0); err != nil {
		return fmt.Errorf("read the meta pages: %w", err)
	}
	if _, err := f.file.WriteAt(metas, 0); err != nil {
		return fmt.Errorf("write the meta pages again: %w", err)
	}
	if err := f.file.Sync(); err != nil {
		return fmt.Errorf("sync the meta pages: %w", err)
	}
	f.unsettled = false
	return nil
}

// call calls a hook that may be nil.
func call(hook func() error) error {
	if hook == nil {
		return nil
	}
	return hook()
}

// finish records how an attempt that began at start ended and tells those who wait
// for it. They wait for an attempt and not for a batch, because a failed attempt ends
// their wait too.
func (db *DB) finish(g *generation, start time.Time, err error, wrote bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	now := db.options.Clock.Now()
	if err == nil && g.damaged() != nil {
		err = g.damaged() // found after this commit, by somebody else
	}
	db.logHealthLocked(err)
	db.mu.err = err
	var pause *pauseError
	if err != nil {
		if !errors.As(err, &pause) {
			db.mu.failed++
		}
		db.mu.backoff = min(max(2*db.mu.backoff, minBackoff), maxBackoff)
		db.mu.retryAt = now.Add(db.mu.backoff)
	} else {
		db.mu.backoff = 0
		db.mu.dirtySince = time.Time{}
		if db.mu.pending.count > 0 {
			db.mu.dirtySince = now
		}
		if wrote {
			db.mu.commitTimes.Add(now.Sub(start))
			db.mu.committed = now.Round(0).UTC()
		}
	}
	db.mu.attempt.err, db.mu.attempt.stale = err, g != db.mu.generation
	close(db.mu.attempt.done)
	db.mu.attempt = newAttempt()
}

// logHealthLocked logs once when commits begin to fail, and once when they
// work again.
func (db *DB) logHealthLocked(err error) {
	switch failing := db.mu.err != nil; {
	case err != nil && !failing:
		db.log.Error(err, "Cannot write the cache file; serving from memory and trying again", "path", db.path)
	case err == nil && failing:
		db.log.Info("The cache file can be written again", "path", db.path)
	}
}

// serve runs the requests that wait. It comes after a commit, so that a request
// finds in the file what was applied before it.
func (db *DB) serve() {
	db.mu.Lock()
	requests := db.mu.requests
	db.mu.requests = nil
	db.mu.Unlock()
	for _, r := range requests {
		g := db.current()
		f, err := db.fileOf(g)
		if err == nil {
			err = db.update(g, f, r.fn)
		}
		if err == nil {
			r.committed()
		}
		r.done <- err
	}
}

// do runs fn in a write transaction of its own, on the committer, and then
// committed if that succeeded.
func (db *DB) do(fn func(*writeTx) error, committed func()) error {
	r := &request{fn: fn, committed: committed, done: make(chan error, 1)}
	db.mu.Lock()
	db.mu.requests = append(db.mu.requests, r)
	db.kick()
	db.mu.Unlock()
	select {
	case err := <-r.done:
		return err
	case <-db.stopped:
	}
	select {
	case err := <-r.done:
		return err
	default:
		return store.ErrClosed
	}
}
