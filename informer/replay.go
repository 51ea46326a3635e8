package informer

import (
	"errors"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/store"
)

// rereadPause is how long a handler waits at least before stored objects that could
// not be read are read again.
const rereadPause = time.Second

// source is the stored state as listeners read it.
type source struct {
	// delivery is what changes are applied and distributed under.
	delivery sync.Locker
	objects  storedObjects
}

// storedObjects are the objects of an indexer that does not hold them in memory.
type storedObjects interface {
	// Chunk returns objects whose keys follow after, in the order of the keys, as
	// they are at one moment: none only if there are none.
	Chunk(after string) (chunk, error)
	// AwaitReadable waits until objects can be read again. It returns false if stop
	// is closed before, or if they never will be.
	AwaitReadable(stop <-chan struct{}) bool
}

// chunk is a run of objects that are decoded one by one.
type chunk interface {
	Len() int
	Key(n int) string
	Object(n int) (any, error)
}

// pass shows one handler all stored objects, in the order of their keys: as its
// initial list, the replay, or as a resync. The handler's own goroutine takes them, a
// chunk at a time and the next one only when the handler has returned from the last,
// so that a slow handler keeps one chunk in memory and holds up nobody.
//
// The zero pass is none. In a replay, of which only the order of events depends:
//
//   - The handler knows of keys up to after, or will by what is on its way to it:
//     changes of those are queued for it as always.
//   - It knows of no other key. A change of one of those is not queued, because the
//     pass will show what came of it, unless it ends an object: then that is
//     introduced and deleted at once (see unseen), or nobody would hear of the
//     delete.
//   - A chunk, the notifications that wait, and the move of after are taken together
//     under the delivery lock. So a chunk is the state that those notifications lead
//     to, and that all later ones go on from.
//
// A resync differs in that the handler knows every key, so that all changes are
// queued. The third rule keeps their order.
//
// One snapshot for all of a pass would need none of this, but would keep the engine
// from using its freed pages again for as long as the slowest handler takes.
type pass struct {
	// from is nil if there is no pass.
	from *source
	// after is the key up to which objects have been taken.
	after string
	// replay tells the initial list from a resync.
	replay bool
	// anew shows everything as added, whether or not the handler knows of it: what has
	// changed cannot be known. A resync would not do, because handlers may, and many
	// do, ignore updates that do not change the version.
	anew bool
	// again is set when everything has to be shown anew afterwards.
	again bool
	// stuck is set when nothing can be read any more.
	stuck bool
}

func (p *pass) underWay() bool { return p.from != nil }

// pulls reports whether there is something to be taken.
func (p *pass) pulls() bool { return p.from != nil && !p.stuck }

// hides reports whether the handler does not know of the key yet.
func (p *pass) hides(key string) bool { return p.from != nil && p.replay && key > p.after }

// next is the pass that follows a pass.
func (p *pass) next() pass {
	if p.again {
		return pass{from: p.from, anew: true}
	}
	return pass{}
}

// unseen is what a handler is told of a change to an object that it has not been
// shown. The object that ends is; what takes its name is not, the replay comes to it.
func unseen(n notification) []notification {
	if n.old == nil {
		return nil
	}
	introduction := notification{kind: added, initial: true, key: n.key, obj: n.old}
	switch {
	case n.kind == deleted:
		return []notification{introduction, n}
	case n.kind == updated && uidOf(n.old) != uidOf(n.obj):
		tombstone := cache.DeletedFinalStateUnknown{Key: n.key, Obj: n.old}
		return []notification{introduction, {kind: deleted, key: n.key, old: n.old, obj: tombstone, seq: n.seq}}
	}
	return nil
}

// part is what has been taken from the source at once.
type part struct {
	// pass is the one that it belongs to, as it was before.
	pass
	chunk chunk
	// err says why there is no chunk.
	err error
}

// notification is the call for an object of the part.
func (p *part) notification(key string, obj any) notification {
	if p.replay || p.anew {
		return notification{kind: added, initial: p.replay, key: key, obj: obj}
	}
	return notification{kind: updated, key: key, old: obj, obj: obj}
}

// startReplay lets the handler have the stored objects as its initial list. It is
// called under the delivery lock, at the moment from which changes are distributed.
func (l *listener) startReplay(from *source) {
	l.tracker.Start() // until the end of the pass
	l.startPass(pass{from: from, replay: true}, false)
}

// startResync redelivers the stored objects, unless a pass is under way.
func (l *listener) startResync(from *source) { l.startPass(pass{from: from}, false) }

// showAnew delivers all stored objects as added, if need be after the pass that is under
// way.
func (l *listener) showAnew(from *source) { l.startPass(pass{from: from, anew: true}, true) }

func (l *listener) startPass(p pass, again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.pass.underWay() {
		l.mu.pass.again = l.mu.pass.again || again
		return
	}
	l.mu.pass = p
	l.wake.Signal()
}

// take returns what waits for the handler, and in a pass the next part of it, which
// comes after that.
func (l *listener) take() ([]notification, *part) {
	l.mu.Lock()
	if p := l.mu.pass; p.pulls() {
		l.mu.Unlock()
		return l.pull(p)
	}
	defer l.mu.Unlock()
	return l.takeWaitingLocked(), nil
}

// pull is take in a pass, which nobody else moves on.
func (l *listener) pull(p pass) ([]notification, *part) {
	p.from.delivery.Lock()
	defer p.from.delivery.Unlock()
	c, err := p.from.objects.Chunk(p.after)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
	case c.Len() == 0:
		l.mu.pass = l.mu.pass.next()
	default:
		l.mu.pass.after = c.Key(c.Len() - 1)
	}
	return l.takeWaitingLocked(), &part{pass: p, chunk: c, err: err}
}

// show calls the handler for a part and reports whether to go on.
func (l *listener) show(p *part) bool {
	if p.err != nil {
		return l.awaitReadable(p, p.err)
	}
	for n := range p.chunk.Len() {
		obj, err := p.chunk.Object(n)
		if err != nil {
			l.putBack(p, n)
			return l.awaitReadable(p, err)
		}
		if p.replay {
			l.tracker.Start()
		}
		if !l.call(p.notification(p.chunk.Key(n), obj), 0) {
			return false
		}
	}
	if p.replay && p.chunk.Len() == 0 {
		l.tracker.Finished()
	}
	return true
}

// putBack gives up a part from its nth object on. The handler has not been shown
// what follows, so that of what has been queued since the part was taken there remains
// what would have been queued without it.
func (l *listener) putBack(p *part, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.mu.pass.after
	l.mu.pass.after = p.after
	if n > 0 {
		l.mu.pass.after = p.chunk.Key(n - 1)
	}
	waiting := l.mu.waiting
	l.mu.waiting = nil
	for _, w := range waiting {
		if w.key <= taken && l.mu.pass.hides(w.key) {
			l.queueLocked(unseen(w)...)
		} else {
			l.mu.waiting = append(l.mu.waiting, w)
		}
	}
	l.mu.idle = len(l.mu.waiting) == 0
}

// awaitReadable waits until the stored objects can be read again, and reports whether
// to go on.
func (l *listener) awaitReadable(p *part, err error) bool {
	l.logger.Error(err, "Stored objects cannot be read; a handler waits for them", "handler", l.name)
	select {
	case <-l.stop:
		return false
	case <-l.clock.After(rereadPause):
	}
	// A closed store does not come back.
	if errors.Is(err, store.ErrClosed) || !p.from.objects.AwaitReadable(l.stop) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.mu.pass.stuck = true
	}
	return true
}
