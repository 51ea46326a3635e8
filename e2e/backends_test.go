package e2e

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/warmcache/warmcache/e2e/controlplane"
	"github.com/warmcache/warmcache/informer"
)

// errNotYet is for conditions that have nothing more to say.
var errNotYet = errors.New("not yet")

// lag is how far the second API server is behind with what it watches. A process
// reaches one of them several times within this time.
const lag = 500 * time.Millisecond

// addLagging starts a second API server, to which everything about ConfigMaps comes
// late: its watch cache is behind that of the first one.
func addLagging(t *testing.T) *controlplane.APIServer {
	t.Helper()
	etcd := linkTo(t, "127.0.0.1:"+strconv.Itoa(plane.Etcd.Port()))
	api := addAPIServer(t, "--etcd-servers-overrides=/configmaps#http://"+etcd.address)
	etcd.set(quality{latency: lag})
	return api
}

// spread breaks the connections of a link now and then until stop is called.
// Otherwise HTTP/2 sends all requests of a process to the same server.
func (l *link) spread(seed uint64) (stop func()) {
	rng := rand.New(rand.NewPCG(seed, 1))
	return repeatedly(func(ctx context.Context) {
		idle(ctx, 500*time.Millisecond+below(rng, 2*time.Second))
		l.reset()
	}, func() {})
}

func newSeed(t *testing.T) uint64 {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat the decisions, if not the timing, with -run '^%s$' -soak.seed %d", strings.ReplaceAll(t.Name(), "/", "$/^"), seed)
	return seed
}

// Two API servers behind one address, one of which is behind the other. A probe may
// land on one and the watch on the other.
func TestBackends_EachRequestOnAnotherServer_NeverEarly(t *testing.T) {
	seed := newSeed(t)
	lagging := addLagging(t)
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newSubject(t, configMaps).residing(r)
		proxy{seed: seed}.stand(t, s, plane.API, lagging)
		restartBehind(t, s)
	})
}

func TestBackends_EachConnectionToAnotherServer_NeverEarly(t *testing.T) {
	seed := newSeed(t)
	lagging := addLagging(t)
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newSubject(t, configMaps).residing(r)
		l := newLink(t, s)
		s.apis = []*controlplane.APIServer{plane.API, lagging}
		l.balance(seed, s.apis...)
		defer l.spread(seed)()
		restartBehind(t, s)
	})
}

// restartBehind starts processes right after changes and tests that none has synced
// without them. Nothing changes between the start and HasSynced.
func restartBehind(t *testing.T, s *subject) {
	t.Helper()
	s.create("", names("object", 50)...)
	c := s.start()
	c.wantCurrent(c.waitSynced())
	c.waitPersisted()
	c.kill()
	for round := range 6 {
		value := strconv.Itoa(round)
		s.create("", "new-"+value)
		s.delete("object-00" + value)
		s.update(value, "object-010", "object-011")
		if round%2 == 1 {
			// The last change is one that the process does not see.
			s.changeSomethingElse()
		}
		c = s.start()
		c.wantCurrent(c.waitSynced())
		c.wantLists(0)
		c.waitPersisted()
		c.kill()
	}
}

// A watch cache begins with the state at the start of its server: of what it was
// before, it knows nothing.
func TestBackends_OneRestarted_ListsOnceAtMost(t *testing.T) {
	seed := newSeed(t)
	lagging := addLagging(t)
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newSubject(t, configMaps).residing(r)
		proxy{seed: seed}.stand(t, s, plane.API, lagging)
		s.store()
		s.change()
		s.changeSomethingElse()
		if err := lagging.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := s.start()
		c.wantCurrent(c.waitSynced())
		c.wantListsUpTo(1)
		c.wantDeparted("object-001", "object-002")

		lagging.Kill()
		s.update("again", "object-003")
		s.delete("object-004")
		c.waitCurrent()
		if err := lagging.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.update("again", "object-005")
		c.waitCurrent()
		c.wantListsUpTo(2)
		c.terminate()
	})
}

// One request of four is answered with 502.
func TestBackends_OneDown_ResumesAtTheOther(t *testing.T) {
	seed := newSeed(t)
	down := addAPIServer(t)
	down.Stop()
	s := newSubject(t, configMaps)
	s.store()
	s.change()
	proxy{seed: seed}.stand(t, s, plane.API, plane.API, plane.API, down)
	s.apis = s.apis[:1] // the others are the same, or get no request
	c := s.start()
	c.wantCurrent(c.waitSynced())
	s.update("again", "object-003")
	c.waitCurrent()
	c.wantLists(0)
	c.terminate()
}

// wantListsUpTo is wantLists for n lists at most.
func (c *child) wantListsUpTo(n int) {
	t := c.subject.t
	t.Helper()
	log := c.subject.auditEvents()
	for name := range c.views {
		if r := c.requestsIn(log, name); r.Lists > n {
			t.Errorf("%s: %s: %s, want %d lists at most", c.agent, name, r, n)
		}
	}
}

// All API servers give the same name to the same schema, so that it does not matter
// which of them is asked.
func TestBackends_SchemaChangedWhileDown_IsListedAndThenResumed(t *testing.T) {
	seed := newSeed(t)
	w := newWidgets(t, sizeOnly)
	proxy{seed: seed}.stand(t, w.subject, plane.API, addAPIServer(t))
	before := w.waitForSchema("")
	w.add(size1, names("object", 20)...)
	c := w.start()
	c.wantCurrent(c.waitSynced())
	c.waitPersisted()
	c.kill()

	w.define(version{"v1", sizeAndColor})
	w.waitForColor("object-000", "red")
	w.waitForSchema(before)
	w.remove("object-001")
	c = w.start()
	c.wantCurrent(c.waitSynced())
	c.wantDeparted("object-001")
	// A server that has not been asked for the resource yet says that it is busy.
	c.wantListsUpTo(2)
	c.waitPersisted()
	c.kill()

	for range 4 {
		c = w.start()
		c.wantCurrent(c.waitSynced())
		c.wantLists(0)
		c.wantDeparted("object-001")
		c.terminate()
	}
}
