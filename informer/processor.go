package informer

import (
	"context"
	"fmt"
	"math"
	"sync"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// processor distributes notifications to listeners.
type processor struct {
	clock clock.Clock
	wg    wait.Group

	mu struct {
		sync.Mutex
		// listeners maps each to whether it gets the notifications of the
		// resync that is under way. As in client-go every listener does until
		// the first time handlers are asked.
		listeners map[*listener]bool
		running   bool
		// seq is the number of the last notification.
		seq uint64
	}
}

func newProcessor(c clock.Clock) *processor {
	p := &processor{clock: c}
	p.mu.listeners = map[*listener]bool{}
	return p
}

// run lets the handlers work until ctx ends and returns when they have.
func (p *processor) run(ctx context.Context) {
	p.mu.Lock()
	for l := range p.mu.listeners {
		p.startLocked(l)
	}
	p.mu.running = true
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	for l := range p.mu.listeners {
		l.close()
	}
	p.mu.running = false
	p.mu.Unlock()
	p.wg.Wait()
}

// add takes in a listener, after giving it its initial notifications.
func (p *processor) add(l *listener, initial []notification) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.listeners[l] = true
	for n := range initial {
		p.mu.seq++
		initial[n].seq = p.mu.seq
	}
	l.add(initial...)
	if p.mu.running {
		p.startLocked(l)
	}
}

func (p *processor) startLocked(l *listener) {
	l.started = true
	p.wg.Start(l.run)
}

// remove stops a listener. One that is not known any more is left alone.
func (p *processor) remove(handle cache.ResourceEventHandlerRegistration) error {
	l, ok := handle.(*listener)
	if !ok {
		return fmt.Errorf("registration of type %T is not from this informer", handle)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.mu.listeners[l]; !ok {
		return nil
	}
	delete(p.mu.listeners, l)
	l.close()
	if !l.started {
		close(l.finished)
	}
	return nil
}

// distribute queues a notification for every listener, or for those that are
// resyncing, and returns its number.
func (p *processor) distribute(n notification, isSync bool) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.seq++
	n.seq = p.mu.seq
	for l, isSyncing := range p.mu.listeners {
		if !isSync || isSyncing {
			l.add(n)
		}
	}
	return n.seq
}

// distributeInitial queues an initial OnAdd of every object for every listener.
func (p *processor) distributeInitial(objects []any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.listeners) == 0 {
		return
	}
	ns := initialAdds(objects)
	for n := range ns {
		p.mu.seq++
		ns[n].seq = p.mu.seq
	}
	for l := range p.mu.listeners {
		l.add(ns...)
	}
}

// startReplay lets every listener have the stored objects as its initial list.
func (p *processor) startReplay(from *source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.mu.listeners {
		l.startReplay(from)
	}
}

// showAllAnew delivers all stored objects to every listener, as added.
func (p *processor) showAllAnew(from *source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.mu.listeners {
		l.showAnew(from)
	}
}

func initialAdds(objects []any) []notification {
	ns := make([]notification, len(objects))
	for n, obj := range objects {
		ns[n] = notification{kind: added, initial: true, obj: obj}
	}
	return ns
}

// upstreamSynced tells all listeners that their initial notifications are
// complete.
func (p *processor) upstreamSynced() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.mu.listeners {
		l.tracker.UpstreamHasSynced()
	}
}

// handled returns the number up to which every handler has returned from every
// notification.
func (p *processor) handled() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	lowest := uint64(math.MaxUint64)
	for l := range p.mu.listeners {
		lowest = min(lowest, l.handled())
	}
	return lowest
}

// empty reports whether there is no handler.
func (p *processor) empty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.listeners) == 0
}

// dueForResync asks every listener and returns those that want a resync.
func (p *processor) dueForResync() []*listener {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	var due []*listener
	for l := range p.mu.listeners {
		isDue := l.dueForResync(now)
		p.mu.listeners[l] = isDue
		if isDue {
			due = append(due, l)
		}
	}
	return due
}
