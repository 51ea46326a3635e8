package informer

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/warmcache/warmcache/store"
)

// initials are the events of an initial list.
func initials(names ...string) []string {
	events := make([]string, len(names))
	for n, name := range names {
		events[n] = "initial " + name
	}
	return events
}

func letters(s string) []string { return strings.Split(s, "") }

func TestReplay_ShowsEverythingInOrder(t *testing.T) {
	for _, size := range []int{1, 2, 3, 100} {
		onShelf(t, size, letters("fedcba"), func(t *testing.T, s *shelf) {
			v := &viewer{}
			l := s.join(v)
			v.wants(initials("a", "b", "c", "d", "e", "f")...)
			if !l.HasSynced() {
				t.Error("the registration has not synced")
			}
			s.change("+g", "a", "-b")
			v.wants("add g", "update a", "delete b")
		})
	}
}

func TestReplay_OfNothing(t *testing.T) {
	onShelf(t, 2, nil, func(t *testing.T, s *shelf) {
		v := &viewer{}
		l := s.join(v)
		v.wants()
		if !l.HasSynced() {
			t.Error("the registration has not synced")
		}
		s.change("+a")
		v.wants("add a")
	})
}

// TestReplay_SlowHandlerHoldsOneChunk checks that a handler that does not return keeps
// one chunk and the changes of what it knows, and that everybody else goes on.
func TestReplay_SlowHandlerHoldsOneChunk(t *testing.T) {
	names := make([]string, 1000)
	for n := range names {
		names[n] = fmt.Sprintf("o%03d", n)
	}
	onShelf(t, 10, names, func(t *testing.T, s *shelf) {
		slow, open := gate("initial o003")
		l := s.join(slow)
		synctest.Wait()
		if s.chunks != 1 {
			t.Errorf("%d chunks were taken for a handler that has not returned from the first", s.chunks)
		}
		fast := &viewer{}
		s.join(fast)
		fast.wants(initials(names...)...)
		for n := range 500 {
			s.change(names[n], names[999-n]) // the update of every object
		}
		synctest.Wait()
		if got := len(fast.events); got != 1000 {
			t.Errorf("the other handler was told of %d changes", got)
		}
		if got := len(l.mu.waiting); got != 10 {
			t.Errorf("%d notifications wait for the slow handler, want those of its first chunk", got)
		}
		if s.chunks != 1+101 {
			t.Errorf("%d chunks were taken", s.chunks)
		}
		open()
		if !eventually(l.HasSynced) || len(slow.events) != 1010 {
			t.Errorf("the slow handler was told %d times", len(slow.events))
		}
	})
}

// TestReplay_BeforeItsTurn checks what a handler is told of changes to objects that it
// has not been shown yet.
func TestReplay_BeforeItsTurn(t *testing.T) {
	for name, test := range map[string]struct {
		changes, want []string
	}{
		"added":                  {[]string{"+x"}, initials("b", "c", "d", "x")},
		"updated":                {[]string{"c"}, initials("b", "c", "d")},
		"deleted":                {[]string{"-c"}, []string{"initial b", "initial c", "delete c", "initial d"}},
		"replaced":               {[]string{"!c"}, []string{"initial b", "initial c", "delete c", "initial c", "initial d"}},
		"replaced and deleted":   {[]string{"!c", "-c"}, []string{"initial b", "initial c", "delete c", "initial c", "delete c", "initial d"}},
		"deleted and added":      {[]string{"-c", "+c", "c"}, []string{"initial b", "initial c", "delete c", "initial c", "initial d"}},
		"added and deleted":      {[]string{"+x", "x", "-x"}, []string{"initial b", "initial x", "delete x", "initial c", "initial d"}},
		"known, updated":         {[]string{"a", "b"}, []string{"initial b", "update a", "update b", "initial c", "initial d"}},
		"known, deleted":         {[]string{"-a", "-b"}, []string{"initial b", "delete a", "delete b", "initial c", "initial d"}},
		"known, replaced":        {[]string{"!a", "!b"}, []string{"initial b", "update a", "update b", "initial c", "initial d"}},
		"added before the place": {[]string{"+aa"}, []string{"initial b", "add aa", "initial c", "initial d"}},
	} {
		for _, batched := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, batched %v", name, batched), func(t *testing.T) {
				onShelf(t, 2, letters("abcd"), func(t *testing.T, s *shelf) {
					v, open := gate("initial a")
					l := s.join(v) // it has taken a and b
					synctest.Wait()
					if batched {
						s.change(test.changes...)
					} else {
						for _, c := range test.changes {
							s.change(c)
						}
					}
					open()
					v.wants(append([]string{"initial a"}, test.want...)...)
					if !l.HasSynced() {
						t.Error("the registration has not synced")
					}
				})
			})
		}
	}
}

// TestReplay_BetweenApplyAndDistribute checks that a chunk does not show a change whose
// notification is still to come.
func TestReplay_BetweenApplyAndDistribute(t *testing.T) {
	onShelf(t, 2, letters("abcd"), func(t *testing.T, s *shelf) {
		v, open := gate("initial a")
		s.join(v)
		synctest.Wait()
		s.applied = func() {
			open()
			v.wants(initials("a", "b")...)
		}
		s.change("c", "-d", "+e", "a")
		v.wants("initial d", "delete d", "update a", "initial c", "initial e")
	})
}

// TestReplay_HasSynced checks that a registration has synced when its handler has
// returned from the last object, and from what it was introduced to and lost.
func TestReplay_HasSynced(t *testing.T) {
	for _, at := range []string{"initial a", "initial d", "delete c"} {
		onShelf(t, 2, letters("abcd"), func(t *testing.T, s *shelf) {
			first, openFirst := gate("initial b")
			before := first.before
			v, open := gate(at)
			last := v.before
			v.before = func(event string) { before(event); last(event) }
			l := s.join(v)
			synctest.Wait()
			s.change("-c")
			openFirst()
			synctest.Wait()
			if l.HasSynced() {
				t.Errorf("the registration has synced before %q has returned", at)
			}
			open()
			synctest.Wait()
			if !l.HasSynced() {
				t.Error("the registration has not synced")
			}
		})
	}
}

// TestReplay_OfAllHandlers checks that those that are there when the informer has
// synced are shown everything, each at its pace, and hear nothing before.
func TestReplay_OfAllHandlers(t *testing.T) {
	onShelf(t, 2, letters("abc"), func(t *testing.T, s *shelf) {
		one, two := &viewer{t: t}, &viewer{t: t}
		for _, v := range []*viewer{one, two} {
			v.known = map[string]*corev1.ConfigMap{}
			s.processor.add(newListener(klog.Logger{}, v, s.clock, "handler", 0), nil)
		}
		one.wants()
		s.applying.Lock()
		s.processor.startReplay(s.source())
		s.processor.upstreamSynced()
		s.applying.Unlock()
		one.wants(initials("a", "b", "c")...)
		two.wants(initials("a", "b", "c")...)
		for l := range s.processor.mu.listeners {
			if !l.HasSynced() {
				t.Error("a registration has not synced")
			}
		}
	})
}

// TestReplay_RemovedHandler removes a handler in the middle of its replay, in which it
// keeps another one from nothing.
func TestReplay_RemovedHandler(t *testing.T) {
	onShelf(t, 2, letters("abcdef"), func(t *testing.T, s *shelf) {
		v, open := gate("initial c")
		l := s.join(v)
		other := &viewer{}
		s.join(other)
		synctest.Wait()
		s.change("-f", "d")
		if err := s.RemoveEventHandler(l); err != nil {
			t.Fatal(err)
		}
		s.change("+g")
		open()
		<-l.finished
		v.wants(initials("a", "b", "c")...)
		if l.HasSynced() {
			t.Error("a removed registration has synced")
		}
		other.wants(append(initials("a", "b", "c", "d", "e", "f"), "delete f", "update d", "add g")...)
	})
}

// TestReplay_Stopped ends the informer in the middle of a replay.
func TestReplay_Stopped(t *testing.T) {
	onShelf(t, 2, letters("abcdef"), func(t *testing.T, s *shelf) {
		v, open := gate("initial c")
		l := s.join(v)
		synctest.Wait()
		s.cancel()
		synctest.Wait()
		open()
		<-s.done
		v.wants(initials("a", "b", "c")...)
		if l.HasSynced() {
			t.Error("the registration has synced")
		}
	})
}

// TestResync_GoesOnFromLiveEvents checks that changes during a resync come in order
// with it, and that none is left out.
func TestResync_GoesOnFromLiveEvents(t *testing.T) {
	onShelf(t, 2, letters("abcd"), func(t *testing.T, s *shelf) {
		v, open := gate("resync a")
		l := s.join(v)
		v.wants(initials("a", "b", "c", "d")...)
		l.startResync(s.source())
		synctest.Wait()
		s.change("a", "b", "c", "-d", "+e", "+aa")
		l.startResync(s.source()) // is under way
		open()
		v.wants("resync a", "resync b",
			"update a", "update b", "update c", "delete d", "add e", "add aa",
			"resync c", "resync e")
		l.startResync(s.source())
		v.wants("resync a", "resync aa", "resync b", "resync c", "resync e")
	})
}

// TestResync_DuringReplay checks that who is being shown everything is not shown
// everything again, and that a resync that is due does not end a replay.
func TestResync_DuringReplay(t *testing.T) {
	onShelf(t, 2, letters("abcd"), func(t *testing.T, s *shelf) {
		v, open := gate("initial a")
		l := s.join(v)
		synctest.Wait()
		l.startResync(s.source())
		s.change("d")
		open()
		v.wants(initials("a", "b", "c", "d")...)
		if !l.HasSynced() {
			t.Error("the registration has not synced")
		}
	})
}

// TestShowAnew_All checks that everything is shown anew, in whatever pass a handler is,
// and once only.
func TestShowAnew_All(t *testing.T) {
	onShelf(t, 2, letters("abc"), func(t *testing.T, s *shelf) {
		replaying, openReplaying := gate("initial b")
		replaying.anew = true
		s.join(replaying)
		resyncing, openResyncing := gate("resync b")
		resyncing.anew = true
		l := s.join(resyncing)
		resyncing.wants(initials("a", "b", "c")...)
		l.startResync(s.source())
		idle := &viewer{anew: true}
		s.join(idle)
		idle.wants(initials("a", "b", "c")...)
		resynced := []string{"resync a", "resync b", "resync c"}
		all := []string{"add a", "add b", "add c"}
		s.processor.showAllAnew(s.source())
		idle.wants(all...)
		s.processor.showAllAnew(s.source())
		idle.wants(all...)
		openReplaying()
		openResyncing()
		replaying.wants(append(initials("a", "b", "c"), all...)...)
		resyncing.wants(append(resynced, all...)...)
	})
}

// TestReplay_UnreadableChunk checks that a pass goes on where it was once objects can
// be read again.
func TestReplay_UnreadableChunk(t *testing.T) {
	onShelf(t, 2, letters("abcdef"), func(t *testing.T, s *shelf) {
		readable := make(chan struct{})
		s.failChunk = func(after string) error {
			select {
			case <-readable:
				return nil
			default:
			}
			if after == "d" {
				return errDisk
			}
			return nil
		}
		s.await = func(stop <-chan struct{}) bool {
			select {
			case <-readable:
				return true
			case <-stop:
				return false
			}
		}
		v := &viewer{}
		l := s.join(v)
		v.wants(initials("a", "b", "c", "d")...)
		removed := &viewer{}
		other := s.join(removed)
		removed.wants(initials("a", "b", "c", "d")...)
		s.change("-e")
		removing := time.Now()
		if err := s.RemoveEventHandler(other); err != nil {
			t.Fatal(err)
		}
		<-other.finished
		if took := time.Since(removing); took > 0 {
			t.Errorf("a removed handler waited for %s", took)
		}
		time.Sleep(time.Hour)
		if l.HasSynced() {
			t.Error("the registration has synced without what could not be read")
		}
		close(readable)
		v.wants("initial e", "delete e", "initial f")
		if !l.HasSynced() {
			t.Error("the registration has not synced")
		}
	})
}

// TestReplay_UnreadableObject checks what has become of changes that were queued for
// objects of a chunk that was then not to be read to its end: the handler has not been
// shown those.
func TestReplay_UnreadableObject(t *testing.T) {
	onShelf(t, 5, letters("abcdefg"), func(t *testing.T, s *shelf) {
		var readable atomic.Bool
		s.failObject = func(key string) error {
			if key == "c" && !readable.Load() {
				return errDisk
			}
			return nil
		}
		v, open := gate("initial b")
		l := s.join(v) // it has taken all but f and g
		synctest.Wait()
		s.change("a", "c", "-d", "!e", "-f", "+aa")
		open()
		v.wants(initials("a", "b")...)
		readable.Store(true)
		time.Sleep(time.Minute)
		v.wants("update a",
			"initial d", "delete d", "initial e", "delete e", "initial f", "delete f", "add aa",
			"initial c", "initial e", "initial g")
		if !l.HasSynced() {
			t.Error("the registration has not synced")
		}
	})
}

// TestReplay_UnreadableObject_LeavesNothing checks that a handler for which nothing is
// left to be told has dealt with everything.
func TestReplay_UnreadableObject_LeavesNothing(t *testing.T) {
	onShelf(t, 3, letters("abc"), func(t *testing.T, s *shelf) {
		s.failObject = func(key string) error {
			if key == "c" {
				return errDisk
			}
			return nil
		}
		v, open := gate("initial b")
		s.join(v)
		synctest.Wait()
		s.change("c")
		open()
		v.wants(initials("a", "b")...)
		if handled := s.processor.handled(); handled < s.processor.mu.seq {
			t.Errorf("handled %d, distributed %d", handled, s.processor.mu.seq)
		}
	})
}

// TestReplay_UnreadableForGood checks that what can be delivered is, and that the
// handler is not told that it knows everything, when the indexer or the store ends.
func TestReplay_UnreadableForGood(t *testing.T) {
	for name, test := range map[string]struct {
		err      error
		readable bool
	}{
		"detached": {errDisk, false},
		"closed":   {fmt.Errorf("reading: %w", store.ErrClosed), true},
	} {
		t.Run(name, func(t *testing.T) { testUnreadableForGood(t, test.err, test.readable) })
	}
}

func testUnreadableForGood(t *testing.T, failure error, readable bool) {
	t.Helper()
	onShelf(t, 2, letters("abcd"), func(t *testing.T, s *shelf) {
		reads := 0
		s.failChunk = func(after string) error {
			if after == "" {
				return nil
			}
			reads++
			return failure
		}
		s.await = func(<-chan struct{}) bool { return readable }
		v := &viewer{}
		l := s.join(v)
		time.Sleep(time.Minute)
		v.wants(initials("a", "b")...)
		s.change("a", "c", "-d")
		time.Sleep(time.Hour)
		v.wants("update a", "initial d", "delete d")
		if l.HasSynced() || reads != 1 {
			t.Errorf("synced %v after %d failed reads", l.HasSynced(), reads)
		}
	})
}

// TestReplay_Handled checks that a handler counts as having returned from a delete once
// it has, however much of its replay is left.
func TestReplay_Handled(t *testing.T) {
	onShelf(t, 2, letters("abcdef"), func(t *testing.T, s *shelf) {
		v := &viewer{}
		arrived, proceed := make(chan string), make(chan struct{})
		v.before = func(event string) {
			arrived <- event
			<-proceed
		}
		seq := func() uint64 {
			s.processor.mu.Lock()
			defer s.processor.mu.Unlock()
			return s.processor.mu.seq
		}
		l := s.join(v)
		if first := <-arrived; first != "initial a" || s.processor.handled() < seq() {
			t.Errorf("at %q: handled %d", first, s.processor.handled())
		}
		s.change("-e", "-b")
		ends := []uint64{seq()}
		s.change("!f")
		ends = append(ends, seq())
		s.change("a")
		for _, step := range []struct {
			event   string
			handled int // of the ends
		}{
			{"initial b", 0},
			{"initial e", 0},
			{"delete e", 0},
			{"delete b", 0},
			{"initial f", 1},
			{"delete f", 1},
			{"update a", 2},
			{"initial c", 2},
			{"initial d", 2},
			{"initial f", 2},
		} {
			proceed <- struct{}{}
			event, handled := <-arrived, s.processor.handled()
			done := 0
			for done < len(ends) && ends[done] <= handled {
				done++
			}
			if event != step.event || done != step.handled {
				t.Errorf("at %q: handled %d, the ends are %v; want %q, %d of them", event, handled, ends, step.event, step.handled)
			}
		}
		close(proceed)
		go func() {
			for range arrived {
			}
		}()
		if !eventually(l.HasSynced) {
			t.Error("the registration has not synced")
		}
		close(arrived)
	})
}
