package e2e

import (
	"errors"
	"testing"
	"time"

	"github.com/warmcache/warmcache/informer"
)

// startOffline leaves 50 objects in the file of a subject, cuts its link, changes
// some of them, and starts the next process, which has no way to learn that. It
// returns what the server had before the changes.
func startOffline(t *testing.T, s *subject) (c *child, l *link, before map[string]map[string]state) {
	t.Helper()
	l = newLink(t, s)
	s.create("", names("object", 50)...)
	c = s.start()
	c.waitSynced()
	c.waitPersisted()
	c.kill()
	before = s.fresh()

	l.cut()
	s.create("", "new")
	s.update("changed", "object-000")
	s.delete("object-001", "object-002")
	s.create("", "object-002")
	return s.start(), l, before
}

// waitServingFromDisk waits until the process has tried in vain to reach the
// server and can read what was stored, and fails the test if it takes that for
// more than it is.
func (c *child) waitServingFromDisk(stored map[string]map[string]state) {
	t := c.subject.t
	t.Helper()
	c.waitUntil("the server was found out of reach", func(now contents) error {
		switch {
		case now.Status.Err == "":
			return errors.New("no failed request")
		case len(now.Objects) == 0:
			return errors.New("nothing is loaded yet")
		}
		return nil
	})
	for resource, now := range c.look().Informers {
		if err := differs(resource+" read from disk", stored[resource], now.Objects); err != nil {
			t.Error(err)
		}
		if now.Status.Synced || now.Status.Confirmed {
			t.Errorf("%s: %+v, want neither synced nor confirmed", resource, now.Status)
		}
	}
	c.wantDelivered(counts{})
}

func (c *child) waitConfirmed() {
	c.subject.t.Helper()
	c.waitUntil("the state is confirmed", func(now contents) error {
		if !now.Status.Confirmed {
			return errors.New("not confirmed")
		}
		return nil
	})
}

func TestOffline_Confirmed_ServesReadsAndWaits(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newSubject(t, configMaps).residing(r)
		c, link, before := startOffline(t, s)
		c.waitServingFromDisk(before)
		if c.hasSynced() {
			t.Error("synced without a server")
		}

		link.restore(t)
		c.wantCurrent(c.waitSynced())
		c.waitConfirmed()
		c.wantLists(0)
		c.wantDeparted("object-001", "object-002")
		c.wantDelivered(counts{Adds: 50 + 2, InitialAdds: 50 + 2, Deletes: 2})
	})
}

func TestOffline_Resumed_WaitsForTheWatch(t *testing.T) {
	s := newSubject(t, configMaps)
	s.config.Resumed = true
	c, link, before := startOffline(t, s)
	c.waitServingFromDisk(before)
	if c.hasSynced() {
		t.Error("synced without a server")
	}

	link.restore(t)
	c.waitSynced()
	c.waitConfirmed()
	c.waitCurrent()
	c.wantLists(0)
}

func TestOffline_Stale_SyncsFromDisk(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newSubject(t, configMaps).residing(r)
		s.config.Stale = 300 * time.Millisecond
		c, link, before := startOffline(t, s)
		synced := c.waitSynced()
		if err := c.compare(before, synced); err != nil {
			t.Error(err)
		}
		if status := synced.Informers["configmaps"].Status; status.Confirmed || !status.Synced {
			t.Errorf("%+v, want synced but not confirmed", status)
		}
		c.wantDelivered(counts{Adds: 50, InitialAdds: 50})

		link.restore(t)
		c.waitConfirmed()
		c.waitCurrent()
		c.wantLists(0)
		// What has changed comes as changes. A recreated object is two of them on a
		// watch.
		c.wantDelivered(counts{Adds: 50 + 2, InitialAdds: 50, Updates: 1, Deletes: 2})
	})
}

// A restarted API server resumes nothing from before its start, so that the link
// coming back is not the same.
func TestOffline_APIServerDownAtStart_ListsOnce(t *testing.T) {
	s := newSubject(t, configMaps)
	s.create("", names("object", 50)...)
	c := s.start()
	c.waitSynced()
	c.waitPersisted()
	c.kill()
	before := s.fresh()
	s.delete("object-000")
	s.create("", "new")
	s.update("changed", "object-001")

	plane.API.Stop()
	c = s.start()
	c.waitServingFromDisk(before)
	if err := plane.API.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.wantCurrent(c.waitSynced())
	c.waitConfirmed()
	c.wantLists(1)
	c.wantDeparted("object-000")
	c.wantDelivered(counts{Adds: 50 + 1, InitialAdds: 50 + 1, Deletes: 1})
}

func TestOffline_LinkCutWhileRunning_GoesOnWithoutList(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newSubject(t, configMaps).residing(r)
		link := newLink(t, s)
		s.create("", names("object", 50)...)
		c := s.start()
		c.waitSynced()

		link.cut()
		s.create("", "new")
		s.update("changed", "object-000")
		s.delete("object-001", "object-002")
		s.create("", "object-002")
		c.waitUntil("the server was found out of reach", func(now contents) error {
			if now.Status.Err == "" {
				return errors.New("no failed request")
			}
			return nil
		})
		link.restore(t)
		c.waitCurrent()
		c.wantLists(1)
		c.wantDelivered(counts{Adds: 50 + 2, InitialAdds: 50, Updates: 1, Deletes: 2})
	})
}

func TestOffline_APIServerKilledWhileRunning_ListsOnceAndReconciles(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newSubject(t, configMaps).residing(r)
		s.create("", names("object", 50)...)
		c := s.start()
		c.waitSynced()
		s.changeSomethingElse()

		plane.API.Kill()
		if err := plane.API.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.create("", "new")
		s.update("changed", "object-000")
		s.delete("object-001", "object-002")
		s.create("", "object-002")
		c.waitCurrent()
		c.wantLists(2)
		got, _ := c.views["configmaps"].delivered()
		t.Logf("%s: %s; delivered %+v", c.agent, c.requests("configmaps"), got)
		// A list cannot tell that object-002 was away, unlike a watch.
		if got.Updates == 1 {
			c.wantDelivered(counts{Adds: 50 + 2, InitialAdds: 50, Updates: 1, Deletes: 2})
		} else {
			c.wantDelivered(counts{Adds: 50 + 1, InitialAdds: 50, Updates: 2, Deletes: 1})
		}
	})
}
