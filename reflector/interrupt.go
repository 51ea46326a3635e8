package reflector

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/clock"
)

// noAnswerError says that a request was given up.
type noAnswerError struct{ within time.Duration }

func (e noAnswerError) Error() string { return fmt.Sprintf("no answer within %s", e.within) }

// patience returns a context that ends when there has been no answer for some time.
// Whoever gets one has to say so, and cancel the context when it is done with it.
func patience(ctx context.Context, c clock.Clock, limit time.Duration) (_ context.Context, answered, cancel func()) {
	ctx, cancelCause := context.WithCancelCause(ctx)
	waiting, answered := context.WithCancel(ctx)
	timer := c.NewTimer(limit)
	go func() {
		defer timer.Stop()
		select {
		case <-timer.C():
			cancelCause(noAnswerError{limit})
		case <-waiting.Done():
		}
	}()
	return ctx, answered, func() { answered(); cancelCause(nil) }
}

// answerWithin is interruptible for a request that is given up when there is no
// answer in time.
func answerWithin[T any](ctx context.Context, c clock.Clock, limit time.Duration, request func(context.Context) (T, error)) (T, error) {
	ctx, _, cancel := patience(ctx, c, limit)
	defer cancel()
	return interruptible(ctx, func() (T, error) { return request(ctx) }, nil)
}

// interruptible calls f, but does not hold up a stop: ListerWatchers made for
// older versions of client-go do not know the context. What f returns after ctx
// has ended goes to late, if there is one. A panic of f is the caller's. Why ctx has
// ended is the error, also if f was faster to say that it has.
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
		return none, context.Cause(ctx)
	case a := <-answers:
		if a.panicked != nil {
			//hygiene:allow panic: the ListerWatcher's own, back on the goroutine that called it
			panic(a.panicked)
		}
		if a.err != nil && ctx.Err() != nil {
			return a.value, context.Cause(ctx)
		}
		return a.value, a.err
	}
}
