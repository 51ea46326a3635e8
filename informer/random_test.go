package informer_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/warmcache/warmcache/codec"
	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/apitest"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

var (
	seedFlag     = flag.Uint64("seed", 0, "seed of the randomised tests; 0 takes a new one")
	restartsFlag = flag.Int("restarts", 200, "restarts of the randomised restart test")
)

// TestInformer_RandomRestarts starts and ends informers at random moments while a
// server changes at random, and checks the invariants 1 to 4 of the design: what
// the store holds whenever a process ends, and what server, indexer and a
// handler whose knowledge outlives the processes agree on whenever all is quiet.
func TestInformer_RandomRestarts(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("replay with -seed=%d -restarts=%d", seed, *restartsFlag)
	inWorldWith(t, apitest.Options{Window: 40}, func(t *testing.T, w *world) {
		newChaos(w, seed).live(*restartsFlag)
	})
}

// TestInformer_RandomRestarts_LargeObjects is TestInformer_RandomRestarts with objects that
// are so large that lists read only those that differ.
func TestInformer_RandomRestarts_LargeObjects(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("replay with -seed=%d -restarts=%d", seed, *restartsFlag)
	inWorldWith(t, apitest.Options{Window: 10}, func(t *testing.T, w *world) {
		w.padding = strings.Repeat("x", 300_000)
		c := newChaos(w, seed)
		c.options = w.sparsely
		c.live((*restartsFlag + 3) / 4)
	})
}

func newChaos(w *world, seed uint64) *chaos {
	return &chaos{
		world:     w,
		rand:      rand.New(rand.NewPCG(seed, seed)),
		history:   map[string]map[string]string{},
		knowledge: map[string]string{},
		ends:      map[string]int{},
		options:   func(*informer.Options) {},
	}
}

func (c *chaos) live(restarts int) {
	c.remember()
	for n := 0; n < restarts && !c.t.Failed(); n++ {
		c.life(n)
	}
	c.t.Logf("ends: %v; %d lives resumed, %d listed, %d of them sparsely", c.ends, c.resumed, c.listed, c.sparse)
}

// chaos is the state of the test across lives.
type chaos struct {
	*world
	rand *rand.Rand
	// history is what the server had at each version.
	history map[string]map[string]string
	// knowledge is what the handlers of all lives know. It is what an external
	// system would look like that a controller keeps in line.
	knowledge map[string]string
	// frozen is set from the restore of a backup until the informer has followed:
	// a server that passes the version we hold meanwhile looks as if nothing had
	// happened.
	frozen atomic.Bool
	down   bool
	// log explains a failure.
	log []string

	ends                    map[string]int
	resumed, listed, sparse int
	// options are those that all informers have.
	options func(*informer.Options)
}

func (c *chaos) note(format string, args ...any) {
	c.log = append(c.log, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

func (c *chaos) fail(format string, args ...any) {
	c.t.Helper()
	c.t.Errorf(format, args...)
	for _, line := range c.log[max(0, len(c.log)-60):] {
		c.t.Log(line)
	}
}

// chance reports true n times in a hundred.
func (c *chaos) chance(n int) bool { return c.rand.IntN(100) < n }

// remember notes what the server has now.
func (c *chaos) remember() {
	state := map[string]string{}
	for key, desc := range c.state() {
		state[key] = version(desc)
	}
	c.history[c.server.ResourceVersion()] = state
}

// version cuts a description to uid@rv.
func version(desc string) string {
	for i := range desc {
		if desc[i] == '=' {
			return desc[:i]
		}
	}
	return desc
}

// mutate changes one thing on the server.
func (c *chaos) mutate() {
	if c.frozen.Load() {
		return
	}
	name := fmt.Sprint("o", c.rand.IntN(12))
	_, err := c.server.Get(configMaps, "default", name)
	switch exists := err == nil; {
	case c.chance(10):
		name = "secret"
		if err := c.server.Create(&corev1.Secret{ObjectMeta: configMap(fmt.Sprint("s", c.server.ResourceVersion()), "").ObjectMeta}); err != nil {
			c.t.Fatal(err)
		}
	case !exists:
		c.create(name)
	case c.chance(50):
		c.update(name, fmt.Sprint(c.rand.Uint32()))
	case c.chance(50):
		c.delete(name)
	default:
		c.delete(name)
		c.remember()
		c.create(name)
	}
	c.note("server: %s at %s", name, c.server.ResourceVersion())
	c.remember()
}

// disturb does one of the things that servers and networks do.
func (c *chaos) disturb() {
	switch c.rand.IntN(12) {
	case 0:
		c.note("server: compact")
		c.server.Compact()
	case 1:
		c.note("server: end watches")
		c.server.EndWatches()
	case 2:
		c.note("server: down %v", !c.down)
		var err error
		if c.down {
			err = c.server.Up()
		} else {
			err = c.server.Down()
		}
		if c.down = !c.down; err != nil {
			c.t.Fatal(err)
		}
	case 3:
		c.note("server: fault")
		fault := c.server.Inject(apitest.Fault{Status: []int{429, 500, 503, 403}[c.rand.IntN(4)], Times: 1 + c.rand.IntN(3)})
		time.AfterFunc(10*time.Second, fault.Remove)
	case 4:
		c.note("server: no bookmarks")
		fault := c.server.Inject(apitest.Fault{Verb: "watch", NoBookmarks: true})
		time.AfterFunc(30*time.Second, fault.Remove)
	case 5:
		c.note("server: cut")
		c.server.Inject(apitest.Fault{Verb: "watch", DropAfterEvents: 1 + c.rand.IntN(3), Times: 1})
	default:
		for range c.rand.IntN(8) {
			c.mutate()
		}
	}
}

// heal ends all disturbances.
func (c *chaos) heal() {
	if c.down {
		c.note("server: up")
		if err := c.server.Up(); err != nil {
			c.t.Fatal(err)
		}
		c.down = false
	}
}

// life runs one process.
func (c *chaos) life(n int) {
	for range c.rand.IntN(10) {
		c.disturb()
	}
	backup := c.server.Snapshot()
	if c.chance(10) && !c.frozen.Load() {
		for range c.rand.IntN(5) {
			c.mutate()
		}
	}
	l := c.begin(n)
	if c.chance(15) {
		// A restore of the state before the last mutations, at a moment when the
		// process may or may not have seen them.
		time.Sleep(time.Duration(c.rand.IntN(3)) * time.Second)
		c.restore(backup)
	}
	for range c.rand.IntN(6) {
		time.Sleep(c.moment())
		c.disturb()
		l.maybeHandle()
	}
	if c.chance(60) || l.safe {
		c.quiet(l)
	}
	l.end()
}

// moment is a random time, mostly short.
func (c *chaos) moment() time.Duration {
	return time.Duration(c.rand.ExpFloat64() * float64(2*time.Second))
}

func (c *chaos) restore(backup *apitest.Snapshot) {
	c.note("server: restored to %s", backup.ResourceVersion())
	c.frozen.Store(true)
	c.server.Restore(backup)
	limit := number(backup.ResourceVersion())
	maps.DeleteFunc(c.history, func(rv string, _ map[string]string) bool { return number(rv) > limit })
}

func number(rv string) uint64 {
	n, _ := strconv.ParseUint(rv, 10, 64)
	return n
}

// quiet lets the process come to rest and compares.
func (c *chaos) quiet(l *life) {
	c.heal()
	time.Sleep(4 * time.Minute)
	l.handle()
	time.Sleep(5 * time.Second)
	synctest.Wait()
	if l.dead() {
		return
	}
	want := c.state()
	got := map[string]string{}
	for _, obj := range l.informer.GetStore().List() {
		got[keyOf(obj)] = describe(obj)
	}
	if !maps.Equal(got, want) {
		c.fail("indexer has\n%v\nserver has\n%v", got, want)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !maps.Equal(c.knowledge, want) {
		c.fail("handlers know\n%v\nserver has\n%v", c.knowledge, want)
	}
	if s := l.status(); !s.Confirmed || !s.Synced || !s.Persistent || s.PersistedRV != s.RV {
		c.fail("status %+v", s)
	}
	if h := l.info().Header; !h.Complete {
		c.fail("header %+v", h)
	}
	c.frozen.Store(false)
}

// life is one process and the ways in which it ends.
type life struct {
	*process
	chaos *chaos
	// safe lives are not killed: another delivery that ends with its process
	// would be given up.
	safe    bool
	startRV string
	policy  informer.StartPolicy
	handled bool

	mu sync.Mutex
	// applies and events count down to the kill.
	applies, events int
	// afterWrite says on which side of the write.
	afterWrite bool
	killed     chan struct{}
	cause      string
}

// begin starts a process that will die in a random way.
func (c *chaos) begin(n int) *life {
	l := &life{
		chaos: c, killed: make(chan struct{}), startRV: c.server.ResourceVersion(),
		policy: []informer.StartPolicy{informer.Confirmed, informer.Confirmed, informer.Resumed, informer.Stale(time.Duration(1+c.rand.IntN(20)) * time.Second)}[c.rand.IntN(4)],
	}
	for _, d := range c.contents().Departed {
		l.safe = l.safe || d.Attempts >= 2
	}
	if !l.safe && c.chance(25) {
		l.applies, l.afterWrite = 1+c.rand.IntN(8), c.chance(50)
	}
	if !l.safe && c.chance(25) {
		l.events = 1 + c.rand.IntN(20)
	}
	residency := informer.Residency(c.rand.IntN(2))
	listBelow := int64(-1)
	if c.chance(5) {
		listBelow = 1 << 20
	}
	l.process = c.prepare(func(o *informer.Options) {
		o.Store = &mortalStore{o.Store, l}
		o.Start = l.policy
		o.ListBelow = listBelow
		o.Residency = residency
		c.options(o)
	})
	c.note("life %d: server at %s, %s, %s", n, l.startRV, l.policy, residency)
	if c.chance(70) {
		l.handle()
	}
	l.run()
	go l.checkSync(c.frozen.Load() || c.down)
	return l
}

// checkSync checks, at the moment the informer has synced, that it is no older
// than the server was at its start.
func (l *life) checkSync(loose bool) {
	select {
	case <-l.done:
		return
	case <-l.informer.HasSyncedChecker().Done():
	}
	s := l.status()
	if loose || l.policy != informer.Confirmed || l.dead() {
		return
	}
	if rv := s.RV; number(rv) < number(l.startRV) && !l.chaos.frozen.Load() {
		l.chaos.t.Errorf("synced at %s, the server was at %s when the informer started", rv, l.startRV)
	}
}

// maybeHandle registers a handler late, as after a leader election.
func (l *life) maybeHandle() {
	if l.chaos.chance(30) {
		l.handle()
	}
}

// handle registers the handler unless it is there already.
func (l *life) handle() {
	if l.handled {
		return
	}
	l.handled = true
	if _, err := l.informer.AddEventHandler(l); err != nil && !l.dead() {
		l.chaos.t.Fatal(err)
	}
}

func (l *life) OnAdd(obj any, _ bool) { l.learn(obj, describe(obj)) }
func (l *life) OnUpdate(_, obj any)   { l.learn(obj, describe(obj)) }
func (l *life) OnDelete(obj any)      { l.learn(obj, "") }

// learn changes the knowledge, unless the process is dead by then.
func (l *life) learn(obj any, desc string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.events--; l.events == 0 {
		l.dieLocked("in a handler")
	}
	if l.dead() {
		return
	}
	if key := keyOf(obj); desc == "" {
		delete(l.chaos.knowledge, key)
	} else {
		l.chaos.knowledge[key] = desc
	}
}

func (l *life) dead() bool {
	select {
	case <-l.killed:
		return true
	default:
		return false
	}
}

// dieLocked ends the process as SIGKILL would: from now on the store stays as it
// is and nobody learns anything.
func (l *life) dieLocked(cause string) {
	if !l.dead() {
		l.cause = cause
		l.w.memory.Open()
		close(l.killed)
	}
}

// end ends the process if nothing has yet, and checks what it has left.
func (l *life) end() {
	c := l.chaos
	l.mu.Lock()
	switch {
	case l.dead():
	case !l.safe && c.chance(60):
		l.dieLocked("at rest")
	default:
		l.cause = "gracefully"
	}
	l.mu.Unlock()
	l.stop()
	c.ends[l.cause]++
	if l.status().Lists == 0 {
		c.resumed++
	} else {
		c.listed++
	}
	c.sparse += min(1, l.status().SparseLists)
	c.note("ended %s", l.cause)
	c.checkContents()
}

// checkContents checks that the store holds exactly what the server had at the
// version of its header.
func (c *chaos) checkContents() {
	contents := c.contents()
	if contents.Header == nil || !contents.Header.Complete || number(contents.Header.RV) > number(c.server.ResourceVersion()) || c.frozen.Load() {
		return
	}
	want, ok := c.history[contents.Header.RV]
	if !ok {
		c.fail("the store is at %s, which the server never was", contents.Header.RV)
		return
	}
	got := map[string]string{}
	keys := []string{}
	for _, o := range contents.Objects {
		envelope, err := codec.ReadEnvelope([]byte(o.Value))
		if err != nil {
			c.t.Fatal(err)
		}
		got[o.Key] = fmt.Sprintf("%s@%s", envelope.UID, envelope.ResourceVersion)
		keys = append(keys, o.Key)
	}
	if !maps.Equal(got, want) {
		c.fail("the store is at %s and has\n%v\nthe server had\n%v", contents.Header.RV, got, want)
	}
	var index []storetest.IndexValue
	if len(keys) > 0 {
		index = []storetest.IndexValue{{Value: "default", Keys: keys}}
	}
	if !slices.EqualFunc(contents.Indices[storedIndex], index, func(a, b storetest.IndexValue) bool {
		return a.Value == b.Value && slices.Equal(a.Keys, b.Keys)
	}) {
		c.fail("the index has\n%v\nwant\n%v", contents.Indices, index)
	}
}

// mortalStore lets a process die before or after something is written.
type mortalStore struct {
	store.Store
	life *life
}

func (s *mortalStore) Collection(id store.Identity, owner string) (store.Collection, error) {
	c, err := s.Store.Collection(id, owner)
	if err != nil {
		return nil, err
	}
	return &mortalCollection{c, s.life}, nil
}

type mortalCollection struct {
	store.Collection
	life *life
}

func (c *mortalCollection) Apply(b store.Batch) error {
	c.life.mu.Lock()
	defer c.life.mu.Unlock()
	if c.life.applies--; c.life.applies != 0 {
		return c.Collection.Apply(b)
	}
	if !c.life.afterWrite {
		c.life.dieLocked("before a write")
		return c.Collection.Apply(b)
	}
	err := c.Collection.Apply(b)
	c.life.dieLocked("after a write")
	return err
}
