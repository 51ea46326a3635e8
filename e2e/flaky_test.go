package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/warmcache/warmcache/informer"
)

var (
	flakyFlag     = flag.Duration("flaky", 0, "how long TestFlaky lasts; 0 means 2 minutes, 40 seconds with -short")
	flakySeedFlag = flag.Uint64("flaky.seed", 0, "seed of TestFlaky's decisions; 0 means another one each time")
)

// A link that is slow, narrow, loses connections with and without notice, and is down
// at times, changes between all of that every few seconds. Behind it processes come
// and go, in either residency, while some objects keep changing and others do not.
//
// No process syncs without what the server had when it was started. When the link is
// good again, caches are what the server has, over one connection. And there are no
// lists but the first: a link that is bad says nothing about versions, so that nothing
// that it does may lead to one, as long as
//
//   - the server knows the stored version, which it does for 75 s at least,
//   - fewer than 8 watches in a row are cut off before a start has caught up, and
//   - fewer than 5 watches in a row are refused, or end within a second, although the
//     requests between them are answered.
//
// Behind the last two the bound is one list for each start, and for each five
// failures, between which pauses grow to 30 s.
func TestFlaky(t *testing.T) {
	lasts, seed := flakyScript(t)
	// The defaults are 30 s and 15 s. Stalls are noticed sooner, so that there can be
	// more of them.
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "3")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "2")
	s := newSubject(t, configMaps, pods)
	s.create("", names("object", 50)...)
	link := newLink(t, s)
	c := s.start()
	c.wantCurrent(c.waitSynced())
	c.waitPersisted()
	c.wantLists(1)
	c.terminate()

	rng := rand.New(rand.NewPCG(seed, 0))
	changes := s.keepChanging(seed)
	weather := link.worsen(t, seed)
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		residency := []informer.Residency{informer.Memory, informer.Disk}[rng.IntN(2)]
		before := s.residing(residency).mark()
		c := s.start()
		storms := rng.IntN(2) == 0
		if storms {
			link.storm(t, rng)
		}
		lived, synced := c.live(5*time.Second+below(rng, 20*time.Second), func(at *snapshot) { c.wantNotBefore(before, at) })
		if rng.IntN(2) == 0 {
			c.kill()
		} else {
			c.terminate()
		}
		c.wantLists(0)
		t.Logf("process %d, in residency %v, started in a storm: %v; lived for %s; had synced: %v; %s", s.starts, residency, storms, lived, synced, c.requests("configmaps"))
		pause(t, below(rng, 3*time.Second))
	}
	before := s.residing(informer.Disk).mark()
	c = s.start()
	weather()
	changes()
	c.wantNotBefore(before, c.waitSynced())
	c.waitCurrent()
	c.wantLists(0)
	c.eventually("one connection is left", func() error {
		if n := link.connections(); n != 1 {
			return fmt.Errorf("%d connections", n)
		}
		return nil
	})
	c.terminate()
	c.eventually("no connection is left", func() error {
		if n := link.connections(); n != 0 {
			return fmt.Errorf("%d connections", n)
		}
		return nil
	})
}

func flakyScript(t *testing.T) (lasts time.Duration, seed uint64) {
	t.Helper()
	lasts, seed = 2*time.Minute, *flakySeedFlag
	if testing.Short() {
		lasts = 40 * time.Second
	}
	if *flakyFlag > 0 {
		lasts = *flakyFlag
	}
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat the decisions, if not the timing, with -run TestFlaky -flaky %s -flaky.seed %d", lasts, seed)
	return lasts, seed
}

// live lets a process run for some time and returns for how long it did, and whether
// it has synced, which onSynced is told of.
func (c *child) live(d time.Duration, onSynced func(*snapshot)) (lived time.Duration, synced bool) {
	c.subject.t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case at := <-c.synced:
			synced = true
			onSynced(at)
		case <-timer.C:
			return d.Round(time.Millisecond), synced
		case <-c.done:
			c.subject.t.Fatalf("the process has ended: %v", c.err)
		}
	}
}

// storm resets connections again and again, while a watch gets through that is too
// short for a bookmark.
func (l *link) storm(t *testing.T, rng *rand.Rand) {
	t.Helper()
	for range 6 {
		pause(t, 200*time.Millisecond+below(rng, 300*time.Millisecond))
		l.reset()
	}
}

// worsen changes the quality of a link at random until stop is called, which makes it
// good.
func (l *link) worsen(t *testing.T, seed uint64) (stop func()) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	return repeatedly(func(ctx context.Context) {
		l.set(quality{})
		switch rng.IntN(8) {
		case 0: // Good.
		case 1:
			l.set(quality{latency: 20*time.Millisecond + below(rng, 400*time.Millisecond)})
		case 2:
			l.set(quality{latency: 10 * time.Millisecond, bandwidth: 5_000 + rng.IntN(100_000)})
		case 3, 4:
			l.reset()
		case 5, 6:
			l.stall()
		case 7:
			l.cut()
			idle(ctx, below(rng, 4*time.Second))
			l.restore(t)
		}
		idle(ctx, 500*time.Millisecond+below(rng, 4*time.Second))
	}, func() { l.set(quality{}) })
}

// repeatedly calls step until stop is called, and then, if step has returned, end.
func repeatedly(step func(context.Context), end func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			step(ctx)
		}
		end()
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// keepChanging creates, changes, deletes and recreates ConfigMaps, some in a second,
// until stop is called.
func (s *subject) keepChanging(seed uint64) (stop func()) {
	s.t.Helper()
	writers := &churn{client: dynamicFor(s.t, plane.API), prefix: "object", namespaces: []string{s.namespace}, kinds: []string{"configmaps"}, names: 30}
	writers.mu.done = map[string]int{}
	ctx, cancel := context.WithCancel(s.t.Context())
	wait := writers.run(ctx, s.t, seed, 1, 200*time.Millisecond)
	stop = sync.OnceFunc(func() {
		cancel()
		wait()
	})
	s.t.Cleanup(stop)
	return stop
}

// mark is what the server had at a moment.
type mark struct {
	objects map[string]state
	rv      string
}

// mark returns what the server has of each resource, from consistent reads.
func (s *subject) mark() map[string]mark {
	s.t.Helper()
	marks := map[string]mark{}
	for _, k := range s.kinds {
		list, err := k.list(s.t.Context(), s.writer, s.namespace, metav1.ListOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		accessor, err := meta.ListAccessor(list)
		if err != nil {
			s.t.Fatal(err)
		}
		objects, err := statesOfList(list)
		if err != nil {
			s.t.Fatal(err)
		}
		marks[k.resource.Resource] = mark{objects: objects, rv: accessor.GetResourceVersion()}
	}
	return marks
}

// wantNotBefore fails the test if a snapshot lacks something that the server had at a
// mark: an object is older than it was, or was deleted before, or is not there and
// exists still.
func (c *child) wantNotBefore(marks map[string]mark, s *snapshot) {
	t := c.subject.t
	t.Helper()
	now := c.subject.fresh()
	for resource, then := range marks {
		got := maps.Clone(s.Informers[resource].Objects)
		for key, object := range then.objects {
			held, there := got[key]
			delete(got, key)
			switch {
			case there && older(t, held.RV, object.RV):
				t.Errorf("%s: %s %s is at %s, and was at %s before the start", c.agent, resource, key, held.RV, object.RV)
			case !there && now[resource][key].UID == object.UID:
				t.Errorf("%s: %s %s is missing", c.agent, resource, key)
			}
		}
		for key, held := range got {
			if older(t, held.RV, then.rv) {
				t.Errorf("%s: %s %s was deleted before the start", c.agent, resource, key)
			}
		}
	}
}

func older(t *testing.T, a, b string) bool {
	t.Helper()
	order, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		t.Error(err)
	}
	return order < 0
}
