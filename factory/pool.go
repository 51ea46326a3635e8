package factory

import (
	"context"
	"maps"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// pool holds the informers of a factory, one per key, and runs them.
type pool[K comparable] struct {
	// running counts the goroutines of started informers.
	running sync.WaitGroup

	// mu is not held while waiting for anything. It is held while get builds an
	// informer: nothing else makes sure that there is one per key.
	mu struct {
		sync.Mutex
		informers map[K]cache.SharedIndexInformer
		// started is the part of informers that has been started.
		started map[K]cache.SharedIndexInformer
		// shuttingDown is set before shutdown waits for running, which must
		// not grow from then on.
		shuttingDown bool
	}
}

// get returns the informer of a key, which build makes if there is none yet.
func (p *pool[K]) get(key K, build func() cache.SharedIndexInformer) cache.SharedIndexInformer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if inf, ok := p.mu.informers[key]; ok {
		return inf
	}
	if p.mu.informers == nil {
		p.mu.informers = map[K]cache.SharedIndexInformer{}
		p.mu.started = map[K]cache.SharedIndexInformer{}
	}
	inf := build()
	p.mu.informers[key] = inf
	return inf
}

// start runs all informers that are not running yet, until ctx ends, after
// calling before if there are any. It does nothing after shutdown was called.
func (p *pool[K]) start(ctx context.Context, before func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.shuttingDown || len(p.mu.started) == len(p.mu.informers) {
		return
	}
	before()
	for key, inf := range p.mu.informers {
		if _, started := p.mu.started[key]; !started {
			p.mu.started[key] = inf
			p.running.Go(func() { inf.RunWithContext(ctx) })
		}
	}
}

// shutdown keeps start from starting anything more and waits until all started
// informers have ended.
func (p *pool[K]) shutdown() {
	p.mu.Lock()
	p.mu.shuttingDown = true
	p.mu.Unlock()
	p.running.Wait()
}

// waitForCacheSync waits until all informers that have been started by now are
// synced, or ctx ends, and says which are.
func (p *pool[K]) waitForCacheSync(ctx context.Context) (synced map[K]bool, err error) {
	started := p.startedInformers()
	checkers := make([]cache.DoneChecker, 0, len(started))
	for _, inf := range started {
		checkers = append(checkers, inf.HasSyncedChecker())
	}
	cache.WaitFor(ctx, "", checkers...) // An empty name means no logging.

	synced = make(map[K]bool, len(started))
	for key, inf := range started {
		synced[key] = inf.HasSynced()
		if !synced[key] {
			err = context.Cause(ctx)
		}
	}
	return synced, err
}

// startedInformers returns a copy, because waiting must not hold the lock.
func (p *pool[K]) startedInformers() map[K]cache.SharedIndexInformer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.mu.started)
}
