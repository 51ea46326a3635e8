package informer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/warmcache/warmcache/indexer"
	"github.com/warmcache/warmcache/store"
)

const (
	// maxAttempts is how many deliveries of a departed object may end with the
	// process before it is given up.
	maxAttempts = 3
	// departedFlush bounds how long a delivery waits for its attempt to be
	// noted on a slow disk.
	departedFlush = 5 * time.Second
	// slowFlush is for a disk that the last delivery has waited for in vain.
	slowFlush = 20 * time.Millisecond
	// departedCheck is how often the tracker looks whether handlers have
	// returned. As long as an attempt has not ended on disk, a process that ends
	// for any other reason counts against the record.
	departedCheck = 100 * time.Millisecond
	// suspectPatience is how long a handler is kept from the next suspect by another
	// one that is slow, suspectCheck how often it looks.
	suspectPatience = 5 * time.Second
	suspectCheck    = 5 * time.Millisecond
)

// departedTracker knows the departed records whose deletes have been given to
// handlers, so that they can be removed from the file in time. It is guarded by
// delivery.
type departedTracker struct {
	// enabled is set when there is a file to keep records in.
	enabled   bool
	retention time.Duration
	// entries are deliveries in their order, deliveries their number by record:
	// another late handler, or an object that a selector let go, took back and let
	// go again, makes more than one.
	entries    []departedEntry
	deliveries map[departedID]int
	// attempts are those entries whose record counts an attempt, trying their
	// number by record.
	attempts []departedEntry
	trying   map[departedID]int
	// late are the departed objects that waited for a handler. Each handler that
	// registers before lateUntil gets them.
	late      []indexer.Departed
	lateUntil time.Time
	// slowDisk is set while flushes take too long.
	slowDisk atomic.Bool
	// waiting says that no handler has been there to give departed objects to:
	// they stay in the file, however long that takes.
	waiting bool
	// replayed is how many were given to handlers when the informer started.
	replayed int
	// wake tells the goroutine that expires entries that there are some.
	wake chan struct{}
}

// departedID names a record.
type departedID struct{ key, uid string }

func (id departedID) removal() store.DepartedOp {
	return store.DepartedOp{Key: id.key, UID: id.uid, Remove: true}
}

func (id departedID) attempt(n int, age time.Duration) store.DepartedOp {
	return store.DepartedOp{Key: id.key, UID: id.uid, Attempts: n, Age: min(age, store.MaxAge)}
}

type departedEntry struct {
	departedID
	// seq is the notification of the delete.
	seq     uint64
	expires time.Time
	// before is the number of attempts that the record counted before this one,
	// age its age.
	before int
	age    time.Duration
}

// attempt tracks a delivery that the record counts as an attempt until it ends.
func (t *departedTracker) attempt(e departedEntry) {
	if t.trying == nil {
		t.trying = map[departedID]int{}
	}
	t.attempts = append(t.attempts, e)
	t.trying[e.departedID]++
	t.track(e)
}

func (t *departedTracker) track(e departedEntry) {
	if t.deliveries == nil {
		t.deliveries = map[departedID]int{}
	}
	t.entries = append(t.entries, e)
	t.deliveries[e.departedID]++
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// ended forgets one delivery and reports whether it was the last of its record.
func (t *departedTracker) ended(id departedID) bool {
	t.deliveries[id]--
	if t.deliveries[id] > 0 {
		return false
	}
	delete(t.deliveries, id)
	return true
}

func (t *departedTracker) reset() {
	t.entries, t.deliveries, t.attempts, t.trying, t.late = nil, nil, nil, nil, nil
}

// replayDeparted gives the departed objects in the file to the handlers.
func (i *sharedIndexInformer) replayDeparted(ctx context.Context) {
	if i.processor.empty() {
		i.delivery.departed.waiting = true
		return
	}
	var seq uint64 // of the delete before
	for _, d := range i.takeDeparted(ctx) {
		for _, n := range i.departedNotifications(ctx, d, d.Attempts > 0, seq) {
			seq = i.notify(n, false)
		}
		i.delivery.departed.attempt(i.entryOf(d, seq))
		i.delivery.departed.replayed++
	}
}

// takeDeparted reads the departed objects and notes, durably, that their delivery
// begins: one that brings the process down must not do so for ever. Of those that
// were being delivered when a process ended before, only one has ended it, if any:
// each of them is noted when its turn comes.
func (i *sharedIndexInformer) takeDeparted(ctx context.Context) []indexer.Departed {
	logger := klog.FromContext(ctx)
	all, err := i.indexer.Departed()
	if err != nil {
		logger.Error(err, "Deletes of an earlier run cannot be read and are not delivered", "informer", i.name())
		return nil
	}
	var departed []indexer.Departed
	var ops []store.DepartedOp
	for _, d := range all {
		id := departedID{d.Key, d.UID}
		switch {
		case i.isBack(d):
			ops = append(ops, id.removal())
			continue
		case d.Attempts >= maxAttempts:
			logger.Error(nil, "Delivering this delete has ended the process before; giving up on it",
				"informer", i.name(), "key", d.Key, "uid", d.UID, "attempts", d.Attempts)
			ops = append(ops, id.removal())
			continue
		case d.Attempts == 0:
			ops = append(ops, id.attempt(1, d.Age))
		}
		departed = append(departed, d)
	}
	if len(ops) > 0 {
		i.indexer.UpdateDeparted(ops)
		i.flush(ctx)
	}
	return departed
}

// isBack reports whether a selector has taken a departed object back: it is not gone.
// One that cannot be read is shown by the replay, after what is told of it here.
func (i *sharedIndexInformer) isBack(d indexer.Departed) bool {
	held, _, err := i.indexer.GetByKey(d.Key)
	return err == nil && string(uidOf(held)) == d.UID
}

// departedNotifications introduces the object, which handlers of this process
// have never seen, and deletes it. Suspect says that the attempt has not been
// noted with the others. No handler begins with a suspect before all have returned
// from the one before, whose delete has the seq after: else a handler that is ahead
// would note attempts of those that have nothing to do with the end of the process.
func (i *sharedIndexInformer) departedNotifications(ctx context.Context, d indexer.Departed, suspect bool, after uint64) []notification {
	tombstone := cache.DeletedFinalStateUnknown{Key: d.Key, Obj: d.Object}
	ns := []notification{{kind: deleted, initial: true, obj: tombstone}}
	if d.Object != nil {
		ns = slices.Insert(ns, 0, notification{kind: added, initial: true, obj: d.Object})
	}
	if suspect {
		note := i.noteAttempt(ctx, d)
		ns[0].before = func() {
			i.awaitHandled(ctx, after)
			note()
		}
	}
	return ns
}

// awaitHandled waits, for suspectPatience at most, until all handlers have returned
// from everything up to a notification.
func (i *sharedIndexInformer) awaitHandled(ctx context.Context, seq uint64) {
	for deadline := i.clock.Now().Add(suspectPatience); i.processor.handled() < seq && i.clock.Now().Before(deadline); {
		select {
		case <-ctx.Done():
			return
		case <-i.clock.After(suspectCheck):
		}
	}
}

// noteAttempt returns a function that notes, durably and once, another attempt to
// deliver a departed object. It runs in the goroutine of a handler.
func (i *sharedIndexInformer) noteAttempt(ctx context.Context, d indexer.Departed) func() {
	return sync.OnceFunc(func() {
		i.indexer.UpdateDeparted([]store.DepartedOp{departedID{d.Key, d.UID}.attempt(d.Attempts+1, d.Age)})
		i.flush(ctx)
	})
}

// entryOf returns the entry for the delivery of d that ends with seq.
func (i *sharedIndexInformer) entryOf(d indexer.Departed, seq uint64) departedEntry {
	return departedEntry{
		departedID: departedID{d.Key, d.UID},
		seq:        seq,
		expires:    i.clock.Now().Add(i.delivery.departed.retention - d.Age),
		before:     d.Attempts,
		age:        d.Age,
	}
}

// trackDeparted notes a delete that has just been given to the handlers.
func (i *sharedIndexInformer) trackDeparted(key string, old any, seq uint64) {
	if t := &i.delivery.departed; t.enabled && !t.waiting && old != nil {
		t.track(i.entryOf(indexer.Departed{Key: key, UID: indexer.DepartedUID(old)}, seq))
	}
}

// departedForLateHandler returns what a handler that registers after the replay
// missed, if no handler was there to be told.
func (i *sharedIndexInformer) departedForLateHandler() []notification {
	t := &i.delivery.departed
	first := t.waiting
	if first {
		t.waiting = false
		t.late = i.takeDeparted(context.Background())
		t.lateUntil = i.clock.Now().Add(t.retention)
	}
	if !i.clock.Now().Before(t.lateUntil) {
		t.late = nil
	}
	var ns []notification
	for _, d := range t.late {
		// The attempts of the first handler are over when another one comes.
		ns = append(ns, i.departedNotifications(context.Background(), d, d.Attempts > 0 || !first, 0)...)
	}
	return ns
}

// trackLate notes the deletes among the notifications that a late handler was
// given: one for each late object, in their order.
func (i *sharedIndexInformer) trackLate(ns []notification) {
	t := &i.delivery.departed
	late := t.late
	for _, n := range ns {
		if n.kind == deleted {
			t.attempt(i.entryOf(late[0], n.seq))
			late = late[1:]
		}
	}
}

// expireDeparted removes departed records some time after every handler has
// returned from the delete, while the informer runs.
func (i *sharedIndexInformer) expireDeparted(ctx context.Context) {
	for {
		var timer <-chan time.Time
		pause, more, ended := i.sweepDeparted()
		if more {
			timer = i.clock.After(pause)
		}
		if ended {
			i.flush(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-timer:
		case <-i.delivery.departed.wake:
			// Not at once: handlers need a moment, and many deletes make one
			// sweep.
			select {
			case <-ctx.Done():
				return
			case <-i.clock.After(departedCheck):
			}
		}
	}
}

// sweepDeparted ends attempts and removes records where it is time. It returns
// when to look again, if there is anything left, and whether attempts ended.
func (i *sharedIndexInformer) sweepDeparted() (pause time.Duration, more, ended bool) {
	i.delivery.Lock()
	defer i.delivery.Unlock()
	t := &i.delivery.departed
	now, handled := i.clock.Now(), i.processor.handled()
	var ops []store.DepartedOp
	for len(t.attempts) > 0 && t.attempts[0].seq <= handled {
		e := t.attempts[0]
		if t.trying[e.departedID]--; t.trying[e.departedID] == 0 {
			delete(t.trying, e.departedID)
			ops = append(ops, e.attempt(0, e.age))
		}
		t.attempts = t.attempts[1:]
		ended = true
	}
	// A record that has aged in earlier processes expires before others that were
	// delivered with it.
	t.entries = slices.DeleteFunc(t.entries, func(e departedEntry) bool {
		expired := e.seq <= handled && !now.Before(e.expires)
		if expired && t.ended(e.departedID) {
			ops = append(ops, e.removal())
		}
		return expired
	})
	i.indexer.UpdateDeparted(ops)
	switch {
	case len(t.entries) == 0:
		return 0, false, ended
	case len(t.attempts) > 0:
		return departedCheck, true, ended
	}
	next := slices.MinFunc(t.entries, func(a, b departedEntry) int { return a.expires.Compare(b.expires) })
	return max(departedCheck, next.expires.Sub(now)), true, ended
}

// flush makes what was applied durable now, or as soon as a failing disk lets it. It
// waits for a disk that hangs, but long only once.
func (i *sharedIndexInformer) flush(ctx context.Context) {
	slow, patience := &i.delivery.departed.slowDisk, departedFlush
	if slow.Load() {
		patience = slowFlush
	}
	err := i.flushWithin(ctx, patience)
	slow.Store(errors.Is(err, context.DeadlineExceeded))
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Changes are not on disk yet", "informer", i.name(), "err", err)
	}
}

// flushWithin waits until everything applied is durable, but no longer than patience.
func (i *sharedIndexInformer) flushWithin(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return i.indexer.Flush(ctx)
}

// keepDeparted writes down, when the informer stops, what the next start needs to
// know of records: for how long they have been kept since their delivery, and that
// no attempt is under way any more. It is not the deliveries that have not ended that
// end the process. No record goes: a delete that is still in a workqueue would be lost
// with it.
func (i *sharedIndexInformer) keepDeparted() {
	i.delivery.Lock()
	defer i.delivery.Unlock()
	t, now, handled := &i.delivery.departed, i.clock.Now(), i.processor.handled()
	ops := make([]store.DepartedOp, 0, len(t.entries))
	for _, e := range t.entries {
		op := e.attempt(e.before, e.age)
		if e.seq <= handled {
			op = e.attempt(0, max(e.age, t.retention-e.expires.Sub(now)))
		}
		ops = append(ops, op)
	}
	t.reset()
	i.indexer.UpdateDeparted(ops)
}
