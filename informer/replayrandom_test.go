package informer

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestReplay_RandomChanges has objects change at random while handlers of all paces
// come, are shown everything, resynced, and go, and reads fail. Each handler checks that
// what it is told is a history (see viewer); at the end all know what there is.
func TestReplay_RandomChanges(t *testing.T) {
	seed := flag.Lookup("seed").Value.(flag.Getter).Get().(uint64)
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("replay with -seed=%d", seed)
	r := rand.New(rand.NewPCG(seed, 5))
	for n := 0; n < 200 && !t.Failed(); n++ {
		onShelf(t, 1+r.IntN(6), nil, func(_ *testing.T, s *shelf) {
			(&weather{shelf: s, rand: r}).round()
		})
		if t.Failed() {
			t.Logf("in round %d", n)
		}
	}
}

// weather is a shelf on which everything happens at random.
type weather struct {
	*shelf
	rand      *rand.Rand
	viewers   []*viewer
	listeners []*listener

	mu struct {
		sync.Mutex
		// rand is for the handlers' goroutines.
		rand *rand.Rand
		// fair is set when nothing goes wrong any more.
		fair bool
	}
}

// chance reports true n times in a hundred.
func (w *weather) chance(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.mu.fair && w.mu.rand.IntN(100) < n
}

func (w *weather) pause(most time.Duration) {
	w.mu.Lock()
	d := time.Duration(w.mu.rand.Int64N(int64(most)))
	w.mu.Unlock()
	time.Sleep(d)
}

func (w *weather) round() {
	w.mu.rand = rand.New(rand.NewPCG(w.rand.Uint64(), 5))
	for range w.rand.IntN(20) {
		w.mutate()
	}
	w.applied = func() {
		if w.chance(20) {
			w.pause(20 * time.Millisecond)
		}
	}
	w.failChunk = func(string) error { return w.maybe(5) }
	w.failObject = func(string) error { return w.maybe(5) }
	w.await = func(<-chan struct{}) bool { w.pause(5 * time.Second); return true }
	for range 100 {
		w.step()
		w.pause(20 * time.Millisecond)
	}
	w.mu.Lock()
	w.mu.fair = true
	w.mu.Unlock()
	w.compare()
}

func (w *weather) maybe(n int) error {
	if w.chance(n) {
		return errDisk
	}
	return nil
}

func (w *weather) step() {
	switch n := w.rand.IntN(100); {
	case n < 5:
		w.handle()
	case n < 10 && len(w.listeners) > 0:
		w.listeners[w.rand.IntN(len(w.listeners))].startResync(w.source())
	case n < 12 && len(w.listeners) > 1:
		if err := w.RemoveEventHandler(w.listeners[0]); err != nil {
			w.t.Error(err)
		}
		w.listeners, w.viewers = w.listeners[1:], w.viewers[1:]
	default:
		w.mutate()
	}
}

// handle adds a handler that takes its time.
func (w *weather) handle() {
	pace := time.Duration(1+w.rand.IntN(100)) * time.Millisecond
	v := &viewer{before: func(string) {
		if w.chance(30) {
			w.pause(pace)
		}
	}}
	w.viewers = append(w.viewers, v)
	w.listeners = append(w.listeners, w.join(v))
}

// mutate changes up to three objects at once.
func (w *weather) mutate() {
	var changes []string
	exists := map[string]bool{}
	for key := range w.state() {
		exists[key] = true
	}
	for range 1 + w.rand.IntN(3) {
		name := fmt.Sprintf("o%02d", w.rand.IntN(20))
		kind := "+"
		if exists[name] {
			kind = []string{"", "", "-", "!"}[w.rand.IntN(4)]
		}
		exists[name] = kind != "-"
		changes = append(changes, kind+name)
	}
	w.change(changes...)
}

// compare waits for the handlers and checks that they know everything.
func (w *weather) compare() {
	if !eventually(func() bool {
		return !slices.ContainsFunc(w.listeners, func(l *listener) bool { return !l.HasSynced() })
	}) {
		w.t.Error("not all registrations have synced")
	}
	time.Sleep(time.Hour)
	synctest.Wait()
	want := w.state()
	for n, v := range w.viewers {
		if got := v.state(); !maps.Equal(got, want) {
			w.t.Errorf("handler %d knows\n%v\nthere is\n%v\nit was told %v", n, got, want, v.events)
		}
	}
	if handled := w.processor.handled(); handled < w.processor.mu.seq {
		w.t.Errorf("handled %d, distributed %d", handled, w.processor.mu.seq)
	}
}
