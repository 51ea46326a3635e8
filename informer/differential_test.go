package informer_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// TestInformer_TellsWhatClientGoTells lets client-go's informer and ours, with and
// without a store, watch one server that changes at random, and compares all that
// handlers are told of each object: what, in which order, and old and new states.
// Left out is the one decided difference: updates that change nothing.
func TestInformer_TellsWhatClientGoTells(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("replay with -seed=%d", seed)
	inWorld(t, func(t *testing.T, w *world) {
		c := &comparison{world: w, rand: rand.New(rand.NewPCG(seed, seed))}
		c.change(10)
		for name, m := range makers {
			w.make = m
			p := w.prepare()
			c.processes = append(c.processes, p)
			c.names = append(c.names, name)
		}
		c.join() // before the start
		for _, p := range c.processes {
			p.run()
			defer p.stop()
			<-p.informer.HasSyncedChecker().Done()
		}
		c.settle()
		for round := 0; round < 150 && !t.Failed(); round++ {
			c.round()
			c.compare(round)
		}
	})
}

type comparison struct {
	*world
	rand      *rand.Rand
	processes []*process
	names     []string
	// handlers has, for each that joined, one of each informer.
	handlers [][]*witness
}

// round does one thing and waits until everybody has noticed.
func (c *comparison) round() {
	switch c.rand.IntN(10) {
	case 0:
		c.join()
	case 1:
		c.leave()
	case 2:
		c.server.EndWatches()
	case 3: // changes that a list must tell
		c.whileDown(func() { c.change(5) })
		time.Sleep(3 * time.Minute)
	case 4: // changes that a watch can still tell
		if err := c.server.Down(); err != nil {
			c.t.Fatal(err)
		}
		c.change(5)
		if err := c.server.Up(); err != nil {
			c.t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
	default:
		c.change(1 + c.rand.IntN(5))
	}
	c.settle()
}

// settle lets all watches get older than a second: after one that does not,
// client-go lists, and tells several changes as one.
func (c *comparison) settle() {
	synctest.Wait()
	time.Sleep(10 * time.Second)
	synctest.Wait()
}

// change makes n changes to a few objects.
func (c *comparison) change(n int) {
	for range n {
		name := fmt.Sprint("o", c.rand.IntN(8))
		_, err := c.server.Get(configMaps, "default", name)
		switch exists := err == nil; {
		case !exists:
			c.create(name)
		case c.rand.IntN(3) == 0:
			c.delete(name)
		default:
			c.update(name, fmt.Sprint(c.rand.Uint32()))
		}
	}
}

// join adds a handler to each informer.
func (c *comparison) join() {
	var same []*witness
	for _, p := range c.processes {
		h := &witness{told: map[string][]string{}}
		h.registration = must(p.informer.AddEventHandler(h))
		same = append(same, h)
	}
	c.handlers = append(c.handlers, same)
}

// leave removes a handler from each informer. What it has been told is compared
// until the end.
func (c *comparison) leave() {
	same := c.handlers[c.rand.IntN(len(c.handlers))]
	for n, h := range same {
		remove(c.t, c.processes[n].informer, h.registration)
	}
}

func (c *comparison) compare(round int) {
	for n, same := range c.handlers {
		want := same[0].snapshot()
		for i := 1; i < len(same); i++ {
			if diff := cmp.Diff(want, same[i].snapshot()); diff != "" {
				c.t.Fatalf("round %d, handler %d: %s (-) and %s (+) differ:\n%s", round, n, c.names[0], c.names[i], diff)
			}
		}
	}
}

// witness is a handler that remembers everything, by key.
type witness struct {
	registration cache.ResourceEventHandlerRegistration

	mu   sync.Mutex
	told map[string][]string
}

func (h *witness) tell(obj any, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := keyOf(obj)
	h.told[key] = append(h.told[key], fmt.Sprintf(format, args...))
}

func (h *witness) snapshot() map[string][]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := make(map[string][]string, len(h.told))
	for key, events := range h.told {
		c[key] = events[:len(events):len(events)]
	}
	return c
}

func (h *witness) OnAdd(obj any, initial bool) {
	h.tell(obj, "add %s, initial %v", describe(obj), initial)
}

func (h *witness) OnUpdate(old, obj any) {
	if describe(old) != describe(obj) {
		h.tell(obj, "update %s to %s", describe(old), describe(obj))
	}
}

func (h *witness) OnDelete(obj any) {
	_, final := obj.(*corev1.ConfigMap)
	h.tell(obj, "delete %s, final %v", describe(obj), final)
}
