package informer

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/cache/synctrack"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

type kind uint8

const (
	added kind = iota
	updated
	deleted
)

// A handler is slow, as in client-go (shared_informer.go), when a call takes longer
// than slowCall while more than slowBacklog notifications wait.
const (
	slowCall    = 100 * time.Millisecond
	slowBacklog = 1024
)

// notification is one call of a handler.
type notification struct {
	kind kind
	// initial says that this belongs to what the handler must have been told to
	// have synced; for OnAdd it is isInInitialList.
	initial bool
	// key is that of the object in the indexer. It is empty for what does not come
	// from there, such as departed objects, and for initial lists from memory.
	key string
	// old is the state before, nil if there was none. OnDelete is not told of it.
	old, obj any
	// seq numbers the notifications of an informer.
	seq uint64
	// before, if not nil, is called right before the handler.
	before func()
}

// listener relays notifications to one handler. Its queue is unbounded, as in
// client-go: a slow handler delays neither the informer nor other handlers. What the
// indexer does not hold in memory is not queued, see pass. It implements
// cache.ResourceEventHandlerRegistration.
type listener struct {
	logger  klog.Logger
	handler cache.ResourceEventHandler
	name    string
	clock   clock.Clock
	// tracker counts the initial notifications that are not delivered yet, and the
	// replay.
	tracker *synctrack.SingleFileTracker
	// stop is closed by close, finished when the handler will not be called any
	// more.
	stop, finished chan struct{}

	// resync is the handler's resync period; 0 means none.
	resync time.Duration
	// started says that run was called; guarded by the processor.
	started bool

	mu struct {
		sync.Mutex
		waiting []notification
		closed  bool
		pass    pass
		// handled is the seq of the last notification that the handler has
		// returned from; idle says that there is none left. Neither counts the
		// objects of a pass.
		handled    uint64
		idle       bool
		nextResync time.Time
	}
	wake *sync.Cond
}

func newListener(logger klog.Logger, handler cache.ResourceEventHandler, c clock.Clock, upstream string, resync time.Duration) *listener {
	name := handlerName(handler)
	l := &listener{
		logger:   logger,
		handler:  handler,
		name:     name,
		clock:    c,
		resync:   resync,
		tracker:  synctrack.NewSingleFileTracker(fmt.Sprintf("%s + event handler %s", upstream, name)),
		stop:     make(chan struct{}),
		finished: make(chan struct{}),
	}
	l.wake = sync.NewCond(&l.mu)
	l.mu.idle = true
	l.mu.nextResync = c.Now().Add(resync)
	return l
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (l *listener) HasSynced() bool { return l.tracker.HasSynced() }

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (l *listener) HasSyncedChecker() cache.DoneChecker { return l.tracker }

// ShutdownChan is what cache.ShutDownEventHandler waits for.
func (l *listener) ShutdownChan() <-chan struct{} { return l.finished }

// add queues notifications for the handler, which it takes over, or in a replay what
// they come to.
func (l *listener) add(ns ...notification) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.waiting = slices.Grow(l.mu.waiting, len(ns))
	for _, n := range ns {
		if l.mu.pass.hides(n.key) {
			l.queueLocked(unseen(n)...)
		} else {
			l.queueLocked(n)
		}
	}
	l.mu.idle = l.mu.idle && len(l.mu.waiting) == 0
	l.wake.Signal()
}

func (l *listener) queueLocked(ns ...notification) {
	for _, n := range ns {
		if n.initial {
			l.tracker.Start()
		}
		l.mu.waiting = append(l.mu.waiting, n)
	}
}

func (l *listener) takeWaitingLocked() []notification {
	batch := l.mu.waiting
	l.mu.waiting = nil
	return batch
}

// close makes run return after the current notification. What waits is dropped,
// as in client-go.
func (l *listener) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mu.closed {
		l.mu.closed = true
		close(l.stop)
	}
	l.wake.Signal()
}

// run calls the handler until close.
func (l *listener) run() {
	defer close(l.finished)
	for l.await() {
		batch, p := l.take()
		if !l.callAll(batch) {
			return
		}
		if p != nil && !l.show(p) {
			return
		}
	}
}

// await waits for something to take, or returns false after close.
func (l *listener) await() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.mu.waiting) == 0 && !l.mu.pass.pulls() && !l.mu.closed {
		l.wake.Wait()
	}
	return !l.mu.closed
}

// callAll calls the handler for each notification of a batch and reports whether to
// go on.
func (l *listener) callAll(batch []notification) bool {
	for n := range batch {
		if !l.call(batch[n], len(batch)-n-1) {
			return false
		}
		batch[n] = notification{} // let the objects go
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.idle = len(l.mu.waiting) == 0
	return true
}

// call calls the handler, while left notifications of the batch wait, and reports
// whether to go on.
func (l *listener) call(n notification, left int) bool {
	start := l.clock.Now()
	ok := l.deliver(n)
	l.reportSlow(l.clock.Since(start), left)
	if !ok {
		// Only seen when crashes are configured not to end the process.
		l.clock.Sleep(time.Second)
	}
	return !l.isClosed()
}

// deliver calls the handler and reports whether it returned normally.
func (l *listener) deliver(n notification) (ok bool) {
	defer utilruntime.HandleCrashWithLogger(l.logger)
	if n.before != nil {
		n.before()
	}
	switch n.kind {
	case added:
		l.handler.OnAdd(n.obj, n.initial)
	case updated:
		l.handler.OnUpdate(n.old, n.obj)
	case deleted:
		l.handler.OnDelete(n.obj)
	}
	if n.initial {
		l.tracker.Finished()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.handled = max(l.mu.handled, n.seq)
	return true
}

// reportSlow logs a call during which the handler fell further behind. The batch
// under way still holds left notifications.
func (l *listener) reportSlow(took time.Duration, left int) {
	if took < slowCall {
		return
	}
	l.mu.Lock()
	waiting := left + len(l.mu.waiting)
	l.mu.Unlock()
	if waiting > slowBacklog {
		l.logger.Info("A slow handler falls behind", "handler", l.name, "duration", took, "waiting", waiting)
	}
}

func (l *listener) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.closed
}

// handled returns the seq up to which the handler has returned from everything.
func (l *listener) handled() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.idle {
		return math.MaxUint64
	}
	return l.mu.handled
}

// dueForResync reports whether the handler wants a resync now, and if so sets
// the time of the next.
func (l *listener) dueForResync(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resync == 0 || now.Before(l.mu.nextResync) {
		return false
	}
	l.mu.nextResync = now.Add(l.resync)
	return true
}
