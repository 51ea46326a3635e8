package crashtest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/warmcache/warmcache/internal/apitest"
)

const (
	// bulk is more than twice the thousand differences that are applied at once,
	// so that lists can be interrupted half-way.
	bulk = 2200
	// hot is how many objects of each kind come and go.
	hot = 40
)

func bulkKey(i int) string { return fmt.Sprintf("a/bulk-%04d", i) }

func hotKey(i int) string { return fmt.Sprintf("%s/hot-%02d", []string{"a", "b"}[i%2], i) }

var tiers = []string{"gold", "iron", "wood"}

// fill creates what is there at the beginning.
func (w *world) fill() {
	for i := range bulk {
		w.put(configMaps, bulkKey(i), tiers[i%3])
	}
	for _, gvr := range []schema.GroupVersionResource{configMaps, pods, leases} {
		for i := range hot / 2 {
			w.put(gvr, hotKey(i), tiers[i%3])
		}
	}
}

// change makes one random change: create, update, relabel, delete or recreate.
func (w *world) change(random *rand.Rand) {
	gvr := []schema.GroupVersionResource{configMaps, configMaps, pods, pods, leases}[random.IntN(5)]
	key, tier := hotKey(random.IntN(hot)), tiers[random.IntN(3)]
	switch random.IntN(5) {
	case 0:
		w.remove(gvr, key)
	case 1:
		w.remove(gvr, key)
		w.put(gvr, key, tier)
	default:
		w.put(gvr, key, tier)
	}
}

// upheaval makes most objects of the large collection differ from what anybody
// has stored. With coming and going, some of them vanish or come back, which
// tells an informer that resumes where it must not that something is wrong.
func (w *world) upheaval(random *rand.Rand, comeAndGo bool) {
	live := w.now(specs[0])
	for i := range bulk {
		key := bulkKey(i)
		_, exists := live[key]
		switch n := random.IntN(20); {
		case n == 0 && comeAndGo:
			w.remove(configMaps, key)
		case n > 1 && (exists || comeAndGo):
			w.put(configMaps, key, tiers[random.IntN(3)])
		}
	}
}

// whileDown changes the server while no process runs. What was stored may expire.
func (w *world) whileDown(random *rand.Rand, expire bool) {
	for range random.IntN(12) {
		w.change(random)
	}
	if expire && random.IntN(5) == 0 {
		w.server.Compact()
	}
	w.beat()
}

// chaos changes the server while a process runs, until it is stopped.
type chaos struct {
	w       *world
	random  *rand.Rand
	stop    chan struct{}
	stopped sync.WaitGroup
	// quiet changes nothing that is watched.
	quiet bool
	// faults is how many more errors the process is allowed to meet: each costs
	// it client-go's backoff, of which the first is about a second.
	faults int
	active []*apitest.Injected
	// ailing is for how many more actions the server is down, or an injected
	// fault in force.
	ailing int
}

func newChaos(w *world, seed uint64) *chaos {
	c := &chaos{w: w, random: rand.New(rand.NewPCG(seed, 0)), stop: make(chan struct{})}
	if c.random.IntN(8) == 0 {
		c.faults = 1
	}
	return c
}

func (c *chaos) start() { c.stopped.Go(c.run) }

func (c *chaos) run() {
	for {
		select {
		case <-c.stop:
			return
		case <-time.After(time.Duration(c.random.IntN(4000)) * time.Microsecond):
		}
		c.act()
	}
}

// act does one thing, mostly a change.
func (c *chaos) act() {
	if c.ailing > 0 {
		if c.ailing--; c.ailing == 0 {
			c.heal()
		}
	}
	switch n := c.random.IntN(400); {
	case c.quiet:
		c.w.beat()
	case n == 0:
		c.w.server.Compact()
	case n < 3:
		c.w.server.EndWatches()
	case n == 4:
		// Watches that end and a version that has expired: a list while running.
		c.w.server.EndWatches()
		for range 20 {
			c.w.change(c.random)
		}
		c.w.server.Compact()
	case n < 12:
		// Faster than they can be applied.
		for range 30 {
			c.w.change(c.random)
		}
	case n < 20 && c.faults > 0:
		c.faults--
		c.fault()
	case n < 60:
		c.w.beat()
	default:
		c.w.change(c.random)
	}
}

// fault makes something go wrong for a while.
func (c *chaos) fault() {
	c.ailing = 1 + c.random.IntN(100)
	faults := []apitest.Fault{
		{Verb: "watch", DropAfterEvents: 3, Times: 2},
		{Verb: "list", Status: 500, Times: 1},
		{Verb: "watch", Status: 429, Times: 1},
		{Verb: "list", DropAfterBytes: 1000, Times: 1},
		{Verb: "watch", DropAfterBytes: 5000, Times: 2},
		{Verb: "list", Delay: 20 * time.Millisecond, Times: 3},
		{Verb: "watch", Stall: true},
	}
	if n := c.random.IntN(len(faults) + 1); n < len(faults) {
		c.active = append(c.active, c.w.server.Inject(faults[n]))
		return
	}
	if err := c.w.server.Down(); err != nil {
		c.w.t.Error(err)
	}
}

// end stops it and makes the server well again.
func (c *chaos) end() {
	select {
	case <-c.stop:
		return
	default:
	}
	close(c.stop)
	c.stopped.Wait()
	c.heal()
}

func (c *chaos) heal() {
	for _, fault := range c.active {
		fault.Remove()
	}
	if err := c.w.server.Up(); err != nil {
		c.w.t.Error(err)
	}
}
