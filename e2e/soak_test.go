package e2e

import (
	"context"
	"errors"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warmcache/warmcache/informer"
)

var (
	soakFlag = flag.Duration("soak", 0, "how long TestSoak lasts; 0 means 2 minutes, 30 seconds with -short")
	seedFlag = flag.Uint64("soak.seed", 0, "seed of TestSoak's decisions; 0 means another one each time")
)

// soak is how long TestSoak lasts and what happens.
type soak struct {
	lasts time.Duration
	kills int
	seed  uint64
}

func newSoak() soak {
	s := soak{lasts: 2 * time.Minute, kills: 5, seed: *seedFlag}
	if testing.Short() {
		s.lasts, s.kills = 30*time.Second, 2
	}
	if *soakFlag > 0 {
		s.lasts = *soakFlag
	}
	if s.seed == 0 {
		s.seed = rand.Uint64()
	}
	return s
}

// soakSubscriptions are informers through every door, of namespaces a, b and c, of
// all, and with selectors.
func soakSubscriptions(a, b, c string) (all []subscription) {
	subscribe := func(door door, kind, namespace, labels, fields string) {
		s := selection{Door: door, Namespace: namespace, LabelSelector: labels, FieldSelector: fields}
		all = append(all, subscription{Name: s.agent(kind), Resource: materials[kind].resource, selection: s})
	}
	const every, running = "", "status.phase=Running"
	subscribe(typedDoor, "configmaps", a, "", "")
	subscribe(typedDoor, "configmaps", b, "team=a", "")
	subscribe(typedDoor, "configmaps", every, "team=b", "")
	subscribe(typedDoor, "pods", every, "", "")
	subscribe(typedDoor, "pods", every, "team=a", "")
	subscribe(typedDoor, "pods", a, "", running)
	subscribe(typedDoor, "services", every, "", "")
	subscribe(typedDoor, "serviceaccounts", b, "", "")
	subscribe(typedDoor, "nodes", every, "", "")
	subscribe(typedDoor, "deployments", every, "", "")
	subscribe(typedDoor, "cronjobs", a, "", "")
	subscribe(typedDoor, "roles", every, "team in (a,b)", "")
	subscribe(typedDoor, "networkpolicies", c, "", "")
	subscribe(typedDoor, "poddisruptionbudgets", b, "", "")
	subscribe(typedDoor, "leases", a, "", "")
	subscribe(typedDoor, "events", a, "", "")
	subscribe(dynamicDoor, "widgets", every, "", "")
	subscribe(dynamicDoor, "widgets", a, "team=a", "")
	subscribe(dynamicDoor, "deployments", b, "", "")
	subscribe(dynamicDoor, "configmaps", c, "", "")
	subscribe(dynamicDoor, "pods", b, "team!=b", running)
	subscribe(metadataDoor, "pods", b, "", "")
	subscribe(metadataDoor, "secrets", every, "team=a", "")
	subscribe(metadataDoor, "widgets", c, "", "")
	subscribe(metadataDoor, "services", a, "", "")
	subscribe(metadataDoor, "configmaps", every, "team=a", "metadata.namespace="+b)
	subscribe(schemeDoor, "widgets", every, "", "")
	subscribe(schemeDoor, "widgets", b, "team=b", "")
	return all
}

// Many informers in one file, all of whose objects keep changing, in a process that
// is killed again and again at any moment, also while it starts. It has its objects in
// memory or on disk, the last time on disk. In the end all caches are what the server
// has, and somebody who has taken notes of the events of all processes knows every
// object and none that is gone.
func TestSoak(t *testing.T) {
	soak := newSoak()
	t.Logf("repeat the decisions, if not the timing, with -run TestSoak -soak %s -soak.seed %d", soak.lasts, soak.seed)
	w := newWidgets(t, sizeAndColor)
	w.config.Subscriptions, w.knowledge = nil, map[string]*knowledge{}
	namespaces := []string{w.namespace, newNamespace(t, w.writer), newNamespace(t, w.writer)}
	w.subscribe(soakSubscriptions(namespaces[0], namespaces[1], namespaces[2])...)
	writers := &churn{client: w.client, prefix: w.namespace, namespaces: namespaces, kinds: slices.Sorted(maps.Keys(materials)), names: 12}
	writers.mu.done = map[string]int{}
	ctx, stop := context.WithCancel(t.Context())
	wait := writers.run(ctx, t, soak.seed, 4, 40*time.Millisecond)
	defer wait()
	defer stop()

	end := time.Now().Add(soak.lasts)
	soak.killAndRestart(w.subject, end)
	c := w.residing(informer.Disk).start()
	pause(t, time.Until(end))
	stop()
	wait()
	t.Logf("changes: %v", writers.mu.done)
	c.waitSynced()
	quiet := time.Now()
	c.waitCurrent()
	t.Logf("current %s after the last change", time.Since(quiet).Round(time.Millisecond))
	c.terminate()
	c.wantResumed()
}

// killAndRestart runs processes, and kills each at a random moment, most of them
// before the end.
func (s soak) killAndRestart(subject *subject, end time.Time) {
	t := subject.t
	t.Helper()
	rng := rand.New(rand.NewPCG(s.seed, 0))
	for kill := range s.kills {
		c := subject.residing([]informer.Residency{informer.Memory, informer.Disk}[rng.IntN(2)]).start()
		if kill == 0 {
			c.waitSynced()
			c.waitStored()
		}
		share := time.Until(end) / time.Duration(s.kills-kill+1)
		lifetime := s.lifetime(rng, share)
		pause(t, lifetime)
		synced := kill == 0 || c.hasSynced()
		c.kill()
		t.Logf("killed process %d, in residency %v, after %s; it had synced: %v", kill+1, subject.config.Residency, lifetime, synced)
		if kill > 0 {
			c.wantResumed()
		}
		pause(t, below(rng, 2*time.Second))
	}
}

// waitStored waits until there is something on disk to resume from, of every
// informer.
func (c *child) waitStored() {
	c.subject.t.Helper()
	c.waitUntil("everything has been on disk once", func(now contents) error {
		if now.Status.PersistedRV == "" {
			return errors.New("nothing on disk")
		}
		return nil
	})
}

// lifetime returns for how long a process may live: about the time that it is
// entitled to, or, every third, so short that it dies while it starts.
func (s soak) lifetime(rng *rand.Rand, share time.Duration) time.Duration {
	if rng.IntN(3) == 0 {
		return below(rng, 3*time.Second)
	}
	return max(share/2, 0) + below(rng, max(share/2, time.Second))
}

// below returns a random duration.
func below(rng *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(limit)))
}

func pause(t *testing.T, d time.Duration) {
	t.Helper()
	idle(t.Context(), d)
}

// idle waits until d has passed or ctx ends.
func idle(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// wantResumed fails the test if an informer other than one of events, for which
// there are no bookmarks, has made a list.
func (c *child) wantResumed() {
	t := c.subject.t
	t.Helper()
	log := c.subject.auditEvents()
	for name := range c.views {
		if r := c.requestsIn(log, name); r.Lists > 0 && !strings.HasPrefix(name, "events#") {
			t.Errorf("%s: %s: %s, want no list", c.agent, name, r)
		}
	}
}
