package crashtest

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/warmcache/warmcache/internal/apitest"
)

// TestKill_NothingMissedAndNothingWrong is described in the package comment.
func TestKill_NothingMissedAndNothingWrong(t *testing.T) {
	killAgainAndAgain(t, 200, 0)
}

// killAgainAndAgain kills children, a fifth as many with -short, of which about a
// part are in disk residency.
func killAgainAndAgain(t *testing.T, kills int, onDisk float64) {
	if testing.Short() {
		kills /= 5
	}
	if *killsFlag > 0 {
		kills = *killsFlag
	}
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with: make kill KILLS=%d SEED=%d", kills, seed)
	k := newKiller(t, seed)
	k.onDisk = onDisk
	for k.kills < kills && !t.Failed() {
		k.live()
	}
	if t.Failed() {
		t.Fatalf("failed after %d kills, in life %d:\n%+v\n%s", k.kills, k.lives, k.life, k.process.tail())
	}
	t.Logf("%d kills in %d lives: %v; %d collections found incomplete, %d without index, %d departed records; %d objects excused, %d deletes given up",
		k.kills, k.lives, k.tally, k.file.incomplete, k.file.unindexed, k.file.departed, k.excused, k.ledger.mu.givenUp)
	k.enough()
}

// killer lets children live and kills them.
type killer struct {
	t       *testing.T
	random  *rand.Rand
	world   *world
	ledger  *ledger
	file    *fileChecker
	process *process
	life    life
	// onDisk is the part of lives in disk residency.
	onDisk float64
	// current is process, for the goroutines of the server.
	current atomic.Pointer[process]

	kills, lives, excused int
	tally                 map[string]int
}

func newKiller(t *testing.T, seed uint64) *killer {
	w := newWorld(t)
	k := &killer{
		t: t, random: rand.New(rand.NewPCG(seed, 0)), world: w, ledger: newLedger(t, w), tally: map[string]int{},
	}
	k.file = newFileChecker(t, w, k.ledger, filepath.Join(t.TempDir(), "cache", "cache.db"))
	k.life = life{URL: w.server.URL(), Path: k.file.path, IndexVersion: "1"}
	// It never matches, but sees every request.
	w.server.Inject(apitest.Fault{Match: k.observe})
	w.fill()
	return k
}

// observe sees each request when it comes in.
func (k *killer) observe(r apitest.Request) bool {
	var lists []string
	for _, s := range specs {
		if s.lists(r) {
			k.ledger.listed(s.name)
			lists = append(lists, s.name)
		}
	}
	if p := k.current.Load(); p != nil && (len(lists) > 0 || r.Verb == "watch") {
		p.requested(lists)
	}
	return false
}

// live starts a child on what the last one has left, and ends it one way or the
// other.
func (k *killer) live() {
	k.lives++
	// An interrupted list has to be made again, although nothing else asks for it.
	calm := len(k.file.unfinished) > 0 && k.random.IntN(3) > 0
	k.nextProgram(calm)
	reindex := k.life.Disk && !calm && k.random.IntN(8) == 0
	upheaval, quiet := !calm && !reindex && k.random.IntN(7) == 0, false
	switch {
	case reindex:
		k.reindex()
	case upheaval:
		quiet = k.upheaval()
	}
	if !quiet {
		k.world.whileDown(k.random, !calm)
	}
	c := newChaos(k.world, k.random.Uint64())
	c.quiet = quiet
	k.process = startProcess(k.t, k.ledger, k.life, k.current.Store, k.environment()...)
	c.start()
	defer c.end()
	switch n := k.random.IntN(4); {
	case reindex && n > 0:
		k.written("opening the file", func() bool { return k.process.mu.opened })
		k.tally["while indexing"]++
	case upheaval && n > 0:
		k.written("a list", func() bool { return k.process.mu.listed[specs[0].name] })
		k.tally["while listing"]++
	case n < 2 && !calm:
		k.early()
	default:
		k.synced(c)
	}
	k.end()
	c.end()
	if k.process.mu.quarantined != "" {
		k.t.Errorf("a kill led to quarantine: %s", k.process.mu.quarantined)
	}
}

// upheaval makes the next process apply a long list, because the stored version
// has expired or, in a quiet world, because it finds listing cheap. In the latter
// case nothing contradicts a process that wrongly resumes from half of the list.
func (k *killer) upheaval() (quiet bool) {
	quiet = k.random.IntN(2) == 0
	k.world.upheaval(k.random, !quiet)
	k.life.Flush, k.life.SlowIndex = time.Millisecond, true
	if quiet {
		k.life.ListBelow = 1 << 30
	} else {
		k.world.server.Compact()
	}
	return quiet
}

// nextProgram chooses how the next child is configured. Versions change rarely:
// a change means a list, or a rebuilt index. A calm life has no such reasons.
func (k *killer) nextProgram(calm bool) {
	l := &k.life
	l.Seed = k.random.Uint64()
	l.Policy = pick(k.random, "confirmed", "confirmed", "confirmed", "resumed", "stale")
	l.ListBelow = pick[int64](k.random, -1, -1, -1, 0)
	l.Flush = pick(k.random, time.Millisecond, 3*time.Millisecond, 10*time.Millisecond, 100*time.Millisecond)
	if calm {
		l.ListBelow = -1
	}
	l.Disk = k.random.Float64() < k.onDisk
	l.SlowIndex = false
	l.Late = k.random.IntN(6) == 0
	l.Slow = k.random.IntN(6) == 0
	if k.random.IntN(10) == 0 {
		l.IndexVersion = pick(k.random, "1", "2")
	}
	if !calm && k.random.IntN(8) == 0 {
		l.TransformVersion = pick(k.random, "", "1")
	}
}

// environment decides in which form the child lists.
func (k *killer) environment() []string {
	if k.random.IntN(3) == 0 {
		return []string{"KUBE_FEATURE_WatchListClient=false"}
	}
	return nil
}

func pick[T any](random *rand.Rand, of ...T) T { return of[random.IntN(len(of))] }

// early waits for some instant before, or around, the time at which the child
// has synced.
func (k *killer) early() {
	p := k.process
	switch k.random.IntN(5) {
	case 0:
		k.pause(150 * time.Millisecond)
	case 1:
		p.await("opening the file", func() bool { return p.mu.opened })
		k.pause(20 * time.Millisecond)
	case 2:
		p.await("a list", func() bool { return len(p.mu.listed) > 0 || p.syncedLocked() })
		k.pause(30 * time.Millisecond)
	case 3:
		n := 1 + k.random.IntN(len(specs))
		p.await("a watch", func() bool { return p.mu.watches >= n || p.syncedLocked() })
		k.pause(10 * time.Millisecond)
	case 4:
		n := 1 + k.random.IntN(2*bulk)
		p.await("calls of handlers", func() bool { return p.mu.events >= n || p.syncedLocked() })
		k.pause(2 * time.Millisecond)
	}
	k.tally["early"]++
}

// written waits until the file is written after the child has begun with something
// long: then some of it may be in the file, and the rest not.
func (k *killer) written(what string, begun func() bool) {
	p := k.process
	p.await(what, func() bool { return begun() || p.syncedLocked() })
	ticker := time.NewTicker(200 * time.Microsecond)
	defer ticker.Stop()
	for range 1 + k.random.IntN(3) {
		before := k.file.modified()
		synced := false
		for !synced && k.file.modified().Equal(before) {
			<-ticker.C
			p.mu.Lock()
			synced = p.syncedLocked()
			p.mu.Unlock()
		}
	}
	k.pause(5 * time.Millisecond)
}

// pause lets up to d pass.
func (k *killer) pause(d time.Duration) {
	<-time.After(time.Duration(k.random.Int64N(int64(d))))
}

// synced waits until the child has synced, and compares it with the server,
// twice: before and after more changes.
func (k *killer) synced(c *chaos) {
	p := k.process
	if !p.await("synchronisation", p.syncedLocked) {
		k.t.Errorf("the child ended by itself:\n%s", p.tail())
		return
	}
	k.finished()
	if k.random.IntN(2) == 0 {
		k.pause(50 * time.Millisecond)
	}
	c.end()
	k.compare()
	k.tally["compared"]++
	k.tally["relisted"] += len(p.relisted())
	k.tally["resumed"] += len(specs) - len(p.relisted())
	more := newChaos(k.world, k.random.Uint64())
	more.start()
	k.pause(50 * time.Millisecond)
	more.end()
}

// finished checks that a list which was interrupted was made again.
func (k *killer) finished() {
	p := k.process
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range k.file.unfinished {
		if !p.mu.listed[name] {
			k.t.Errorf("%s: resumed from an incomplete collection", name)
		}
	}
}

// compare checks a running child. Nothing else changes meanwhile.
func (k *killer) compare() {
	k.t.Helper()
	p := k.process
	// Events are in order: who knows these knows everything before.
	last := map[schema.GroupVersionResource]version{}
	for gvr := range kinds {
		last[gvr] = k.world.put(gvr, "b/sentinel", "gold")
	}
	known := func() bool {
		return !slices.ContainsFunc(specs, func(s spec) bool { return k.ledger.version(s.name, "b/sentinel") != last[s.gvr] })
	}
	if !p.await("the newest objects", known) {
		k.t.Errorf("the child ended by itself:\n%s", p.tail())
		return
	}
	got := p.contents()
	for _, s := range specs {
		k.excused += k.ledger.compare(s)
		want := k.world.now(s)
		for _, problem := range difference(want, got.objects[s.name]) {
			k.t.Errorf("%s: indexer %s", s.name, problem)
		}
		if n := got.transforms[s.name][k.life.TransformVersion]; n != len(want) {
			k.t.Errorf("%s: %d of %d objects have the transform %q: %v", s.name, n, len(want), k.life.TransformVersion, got.transforms[s.name])
		}
		k.compareIndex(s, want, got.indexed[s.name])
	}
}

func (k *killer) compareIndex(s spec, want map[string]version, got map[string]bool) {
	entries := map[string]bool{}
	for key, v := range want {
		obj := kinds[s.gvr]()
		obj.SetLabels(map[string]string{tierLabel: v.tier})
		obj.SetAnnotations(map[string]string{valueAnnotation: v.value})
		values, err := indexFuncs[k.life.IndexVersion](obj)
		if err != nil {
			k.t.Error(err)
		}
		for _, value := range values {
			entries[value+" "+key] = true
			if !got[value+" "+key] {
				k.t.Errorf("%s: %s is not indexed under %q", s.name, key, value)
			}
		}
	}
	if len(got) != len(entries) {
		k.t.Errorf("%s: %d index entries, want %d", s.name, len(got), len(entries))
	}
}

// end kills the child, lets it stop, or kills it while it stops, and checks what
// it has left behind.
func (k *killer) end() {
	p := k.process
	stop := k.random.IntN(3) == 0
	kill := !stop || k.random.IntN(2) == 0
	if stop {
		p.command(commandStop)
	}
	if kill {
		if stop {
			k.pause(10 * time.Millisecond)
			k.tally["killed while stopping"]++
		}
		p.kill()
		k.kills++
	} else {
		p.finish()
		k.tally["stopped"]++
	}
	p.mu.Lock()
	stopped, synced := p.mu.stopped, p.syncedLocked()
	p.mu.Unlock()
	k.file.check(stopped, synced)
	if stopped {
		k.file.leftovers()
	}
}

// enough fails if the run was long and yet never met what it is there for.
func (k *killer) enough() {
	if k.kills < 200 {
		return
	}
	met := map[string]int{
		"lives that were compared": k.tally["compared"],
		"informers that resumed":   k.tally["resumed"],
		"informers that listed":    k.tally["relisted"],
		"interrupted lists":        k.file.incomplete,
		"departed records":         k.file.departed,
		"graceful stops":           k.tally["stopped"],
		"kills while stopping":     k.tally["killed while stopping"],
	}
	if k.onDisk > 0 {
		met["interrupted writes of indices"] = k.file.unindexed
	}
	for what, n := range met {
		if n == 0 {
			k.t.Errorf("no %s", what)
		}
	}
}
