package reflector

import "context"

// interruptible calls f, but does not hold up a stop: ListerWatchers made for
// older versions of client-go do not know the context. What f returns after ctx
// has ended goes to late, if there is one. A panic of f is the caller's.
func interruptible[T any](ctx context.Context, f func() (T, error), late func(T)) (T, error) {
	type answer struct {
		value    T
		err      error
		panicked any
	}
	answers := make(chan answer, 1)
	go func() {
		var a answer
		defer func() {
			a.panicked = recover()
			answers <- a
		}()
		a.value, a.err = f()
	}()
	select {
	case <-ctx.Done():
		go func() {
			if a := <-answers; a.err == nil && a.panicked == nil && late != nil {
				late(a.value)
			}
		}()
		var none T
		return none, ctx.Err()
	case a := <-answers:
		if a.panicked != nil {
			//hygiene:allow panic: the ListerWatcher's own, back on the goroutine that called it
			panic(a.panicked)
		}
		return a.value, a.err
	}
}
