package informer

import (
	"context"
	"slices"
	"sync"
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
	// departedCheck is how often the tracker looks whether handlers have
	// returned. As long as an attempt has not ended on disk, a process that ends
	// for any other reason counts against the record.
	departedCheck = 100 * time.Millisecond
)

// departedTracker knows the departed records whose deletes have been given to
// handlers, so that they can be removed from the file in time. It is guarded by
// delivery.
type departedTracker struct {
	// enabled is set when there is a file to keep records in.
	enabled   bool
	retention time.Duration
	// entries are deliveries, ordered by expiry, deliveries their number by
	// record: another late handler, or an object that a selector let go, took
	// back and let go again, makes more than one.
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

func (id departedID) attempt(n int) store.DepartedOp {
	return store.DepartedOp{Key: id.key, UID: id.uid, Attempts: n}
}

type departedEntry struct {
	departedID
	// seq is the notification of the delete.
	seq     uint64
	expires time.Time
	// before is the number of attempts that the record counted before this one.
	before int
}

// attempt tracks a delivery that the record counts as an attempt until it ends.
func (t *departedTracker) attempt(e departedEntry, before int) {
	e.before = before
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
	for _, d := range i.takeDeparted(ctx) {
		var seq uint64
		for _, n := range i.departedNotifications(ctx, d, d.Attempts > 0) {
			seq = i.notify(n, false)
		}
		i.delivery.departed.attempt(i.entry(d.Key, d.UID, seq), d.Attempts)
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
		case d.Attempts >= maxAttempts:
			logger.Error(nil, "Delivering this delete has ended the process before; giving up on it",
				"informer", i.name(), "key", d.Key, "uid", d.UID, "attempts", d.Attempts)
			ops = append(ops, id.removal())
			continue
		case d.Attempts == 0:
			ops = append(ops, id.attempt(1))
		}
		departed = append(departed, d)
	}
	if len(ops) > 0 {
		i.indexer.UpdateDeparted(ops)
		i.flush(ctx)
	}
	return departed
}

// departedNotifications introduces the object, which handlers of this process
// have never seen, and deletes it. Suspect says that the attempt has not been
// noted with the others.
func (i *sharedIndexInformer) departedNotifications(ctx context.Context, d indexer.Departed, suspect bool) []notification {
	tombstone := cache.DeletedFinalStateUnknown{Key: d.Key, Obj: d.Object}
	ns := []notification{{kind: deleted, initial: true, obj: tombstone}}
	if d.Object != nil {
		ns = slices.Insert(ns, 0, notification{kind: added, initial: true, obj: d.Object})
	}
	if suspect {
		ns[0].before = i.noteAttempt(ctx, d)
	}
	return ns
}

// noteAttempt returns a function that notes, durably and once, another attempt to
// deliver a departed object. It runs in the goroutine of a handler.
func (i *sharedIndexInformer) noteAttempt(ctx context.Context, d indexer.Departed) func() {
	return sync.OnceFunc(func() {
		i.indexer.UpdateDeparted([]store.DepartedOp{departedID{d.Key, d.UID}.attempt(d.Attempts + 1)})
		i.flush(ctx)
	})
}

func (i *sharedIndexInformer) entry(key, uid string, seq uint64) departedEntry {
	expires := i.clock.Now().Add(i.delivery.departed.retention)
	return departedEntry{departedID: departedID{key, uid}, seq: seq, expires: expires}
}

// trackDeparted notes a delete that has just been given to the handlers.
func (i *sharedIndexInformer) trackDeparted(key string, old any, seq uint64) {
	if t := &i.delivery.departed; t.enabled && !t.waiting && old != nil {
		t.track(i.entry(key, indexer.DepartedUID(old), seq))
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
		ns = append(ns, i.departedNotifications(context.Background(), d, d.Attempts > 0 || !first)...)
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
			t.attempt(i.entry(late[0].Key, late[0].UID, n.seq), late[0].Attempts)
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
		id := t.attempts[0].departedID
		if t.trying[id]--; t.trying[id] == 0 {
			delete(t.trying, id)
			ops = append(ops, id.attempt(0))
		}
		t.attempts = t.attempts[1:]
		ended = true
	}
	for len(t.entries) > 0 && t.entries[0].seq <= handled && !now.Before(t.entries[0].expires) {
		if t.ended(t.entries[0].departedID) {
			ops = append(ops, t.entries[0].removal())
		}
		t.entries = t.entries[1:]
	}
	i.indexer.UpdateDeparted(ops)
	switch {
	case len(t.entries) == 0:
		return 0, false, ended
	case len(t.attempts) > 0:
		return departedCheck, true, ended
	}
	return max(departedCheck, t.entries[0].expires.Sub(now)), true, ended
}

// flush makes what was applied durable now, or as soon as a failing disk lets it.
func (i *sharedIndexInformer) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, departedFlush)
	defer cancel()
	if err := i.indexer.Flush(ctx); err != nil {
		klog.FromContext(ctx).V(2).Info("Changes are not on disk yet", "informer", i.name(), "err", err)
	}
}

// endAttempts takes back, when the informer stops, the attempts that have not ended
// yet: it is not these deliveries that end the process. The records stay, those of
// deletes that handlers have returned from too: a delete that is still in a
// workqueue is lost with the process however it ends.
func (i *sharedIndexInformer) endAttempts() {
	i.delivery.Lock()
	defer i.delivery.Unlock()
	t, handled := &i.delivery.departed, i.processor.handled()
	var ops []store.DepartedOp
	for _, e := range t.attempts {
		before := 0
		if e.seq > handled {
			before = e.before
		}
		ops = append(ops, e.attempt(before))
	}
	t.reset()
	i.indexer.UpdateDeparted(ops)
}
