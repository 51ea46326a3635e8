package factory

import (
	"context"
	"sync"
)

// answer remembers what ask returned, so that many informers that start at once
// make one request.
//
//   - While a call of ask is under way, nobody else calls it: the others wait for
//     its result and share it, an error too. Informers that start while the
//     server is down thus wait for one timeout, not one after the other.
//   - A success is remembered until forget. A failure is not: the next get asks
//     again.
//   - Each get ends with its own context. If the context of the one who asks
//     ends, another one takes over.
//
// No goroutine is started and the lock is not held while ask runs.
type answer[T any] struct {
	ask func(ctx context.Context) (T, error)

	mu struct {
		sync.Mutex
		// last is the call under way, or the one that succeeded; nil if
		// there is neither.
		last *call[T]
	}
}

// call is one call of ask. Its result may be read when done is closed.
type call[T any] struct {
	done  chan struct{}
	value T
	err   error
	// abandoned says that the caller's context ended, so that err says
	// nothing about the server.
	abandoned bool
}

func newAnswer[T any](ask func(ctx context.Context) (T, error)) *answer[T] {
	return &answer[T]{ask: ask}
}

// get returns the remembered value, the result of the call under way, or that
// of a new one.
func (a *answer[T]) get(ctx context.Context) (T, error) {
	for {
		c, mine := a.join()
		if mine {
			a.run(ctx, c)
			return c.value, c.err
		}
		select {
		case <-c.done:
			if !c.abandoned {
				return c.value, c.err
			}
		case <-ctx.Done():
			var zero T
			return zero, context.Cause(ctx)
		}
	}
}

// join returns the last call, or a new one that the caller must run.
func (a *answer[T]) join() (c *call[T], mine bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.last == nil {
		a.mu.last = &call[T]{done: make(chan struct{})}
		mine = true
	}
	return a.mu.last, mine
}

func (a *answer[T]) run(ctx context.Context, c *call[T]) {
	// Whoever waits is released even if ask panics or exits the goroutine.
	c.abandoned = true
	defer func() {
		if c.abandoned || c.err != nil {
			a.drop(c)
		}
		close(c.done)
	}()
	c.value, c.err = a.ask(ctx)
	c.abandoned = c.err != nil && ctx.Err() != nil
}

// drop forgets c unless a newer call has replaced it.
func (a *answer[T]) drop(c *call[T]) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.last == c {
		a.mu.last = nil
	}
}

// forget makes the next get ask again. Those who wait for a call under way still
// get its result.
func (a *answer[T]) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.last = nil
}
