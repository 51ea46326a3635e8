package factory

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// scripted is an answer whose ask waits for the test.
type scripted struct {
	*answer[int]
	asked   int
	replies chan func() (int, error)
}

func newScripted() *scripted {
	s := &scripted{replies: make(chan func() (int, error))}
	s.answer = newAnswer(func(ctx context.Context) (int, error) {
		s.asked++
		select {
		case reply := <-s.replies:
			return reply()
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	})
	return s
}

type result struct {
	value int
	err   error
}

// getAsync calls get in a goroutine and returns when that waits or has ended.
func (s *scripted) getAsync(ctx context.Context) <-chan result {
	results := make(chan result, 1)
	go func() {
		value, err := s.get(ctx)
		results <- result{value, err}
	}()
	synctest.Wait()
	return results
}

func TestAnswer_Get_SharesOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		a, b := s.getAsync(t.Context()), s.getAsync(t.Context())
		s.replies <- func() (int, error) { return 7, nil }
		if ra, rb := <-a, <-b; ra != (result{7, nil}) || rb != ra {
			t.Errorf("get = %v and %v, want 7", ra, rb)
		}
		if v, err := s.get(t.Context()); v != 7 || err != nil || s.asked != 1 {
			t.Errorf("get = %v, %v after %d calls; want 7 after 1", v, err, s.asked)
		}
	})
}

func TestAnswer_Get_SharesButForgetsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		failure := errors.New("unreachable")
		a, b := s.getAsync(t.Context()), s.getAsync(t.Context())
		s.replies <- func() (int, error) { return 0, failure }
		if ra, rb := <-a, <-b; !errors.Is(ra.err, failure) || !errors.Is(rb.err, failure) || s.asked != 1 {
			t.Errorf("get = %v and %v after %d calls, want the failure after 1", ra, rb, s.asked)
		}
		c := s.getAsync(t.Context())
		s.replies <- func() (int, error) { return 7, nil }
		if rc := <-c; rc != (result{7, nil}) {
			t.Errorf("get = %v, want 7", rc)
		}
	})
}

func TestAnswer_Get_AnotherTakesOverWhenTheCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		leaving, leave := context.WithCancel(t.Context())
		a, b := s.getAsync(leaving), s.getAsync(t.Context())
		leave()
		if ra := <-a; !errors.Is(ra.err, context.Canceled) {
			t.Errorf("get = %v, want its own cancellation", ra)
		}
		s.replies <- func() (int, error) { return 7, nil }
		if rb := <-b; rb != (result{7, nil}) || s.asked != 2 {
			t.Errorf("get = %v after %d calls, want 7 after 2", rb, s.asked)
		}
	})
}

func TestAnswer_Get_EndsWithItsOwnContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		a := s.getAsync(t.Context())
		waiting, leave := context.WithCancel(t.Context())
		b := s.getAsync(waiting)
		leave()
		if rb := <-b; !errors.Is(rb.err, context.Canceled) {
			t.Errorf("get = %v, want its own cancellation", rb)
		}
		s.replies <- func() (int, error) { return 7, nil }
		if ra := <-a; ra != (result{7, nil}) {
			t.Errorf("get = %v, want 7", ra)
		}
	})
}

func TestAnswer_Get_PanicReleasesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		go func() {
			defer func() { _ = recover() }()
			_, _ = s.get(t.Context())
		}()
		synctest.Wait()
		b := s.getAsync(t.Context())
		s.replies <- func() (int, error) { panic("boom") }
		s.replies <- func() (int, error) { return 7, nil }
		if rb := <-b; rb != (result{7, nil}) {
			t.Errorf("get = %v, want 7", rb)
		}
	})
}

func TestAnswer_Forget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		a := s.getAsync(t.Context())
		s.forget()
		b := s.getAsync(t.Context())
		s.replies <- func() (int, error) { return 7, nil }
		s.replies <- func() (int, error) { return 7, nil }
		if ra, rb := <-a, <-b; ra != (result{7, nil}) || rb != ra || s.asked != 2 {
			t.Errorf("get = %v and %v after %d calls, want 7 after 2", ra, rb, s.asked)
		}
		if v, err := s.get(t.Context()); v != 7 || err != nil || s.asked != 2 {
			t.Errorf("get = %v, %v after %d calls; want 7 after 2", v, err, s.asked)
		}
	})
}

func TestAnswer_Forget_FailureOfTheOldCallLeavesTheNewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		a := s.getAsync(t.Context())
		s.forget()
		b := s.getAsync(t.Context())
		s.replies <- func() (int, error) { return 0, errors.New("unreachable") } // a waits longest
		if ra := <-a; ra.err == nil {
			t.Errorf("get = %v, want the failure", ra)
		}
		c := s.getAsync(t.Context())
		s.replies <- func() (int, error) { return 7, nil }
		if rb, rc := <-b, <-c; rb != (result{7, nil}) || rc != rb || s.asked != 2 {
			t.Errorf("get = %v and %v after %d calls, want 7 after 2", rb, rc, s.asked)
		}
	})
}
