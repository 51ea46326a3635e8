package apitest

import "sync"

// gate counts the requests being answered, and closes so that their number can
// fall to zero.
type gate struct {
	mu struct {
		sync.Mutex
		open   bool
		inside int
	}
	left *sync.Cond
}

func newGate() *gate {
	g := &gate{}
	g.left = sync.NewCond(&g.mu)
	return g
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.open = true
}

// close lets nobody in any more and waits until all have left.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.open = false
	for g.mu.inside > 0 {
		g.left.Wait()
	}
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.open {
		g.mu.inside++
	}
	return g.mu.open
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.inside--
	g.left.Broadcast()
}
