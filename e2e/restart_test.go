package e2e

import (
	"testing"

	"github.com/warmcache/warmcache/informer"
)

func TestRestart_Cold_ListsOnce(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newSubject(t, configMaps).residing(r)
		s.create("", names("object", 50)...)

		c := s.start()
		c.wantCurrent(c.waitSynced())
		c.wantLists(1)
		c.wantDelivered(counts{Adds: 50, InitialAdds: 50})
		c.wantDeparted()

		s.create("", "new")
		s.update("changed", "object-000")
		s.delete("object-001")
		c.waitCurrent()
		c.wantDelivered(counts{Adds: 51, InitialAdds: 50, Updates: 1, Deletes: 1})
		c.wantLists(1)
	})
}

func TestRestart_AfterKill_ResumesWithWhatHasChanged(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newSubject(t, configMaps).residing(r)
		s.create("", names("object", 50)...)
		c := s.start()
		c.waitSynced()
		c.waitPersisted()
		c.kill()

		s.create("", "new")
		s.update("changed", "object-000", "object-001")
		s.delete("object-002", "object-003", "object-004")
		s.create("", "object-004")

		c = s.start()
		c.wantCurrent(c.waitSynced())
		c.wantLists(0)
		c.wantDeparted("object-002", "object-003", "object-004")
		// 48 objects that were there before or recreated, one new; three departed.
		c.wantDelivered(counts{Adds: 49 + 3, InitialAdds: 49 + 3, Deletes: 3})
		c.kill()

		// Nobody knows whether what the handlers did about the deletes was finished.
		c = s.start()
		c.wantCurrent(c.waitSynced())
		c.wantLists(0)
		c.wantDeparted("object-002", "object-003", "object-004")
		c.wantDelivered(counts{Adds: 49 + 3, InitialAdds: 49 + 3, Deletes: 3})
	})
}

// Other writers, such as the API server's own lease, move the server's version
// on every few seconds; the next attempt is then as good as the first.
func TestRestart_NothingChanged_NeedsNoWatchForTheProof(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newSubject(t, configMaps).residing(r)
		s.create("", names("object", 50)...)
		c := s.start()
		c.waitSynced()
		for range 10 {
			c.waitPersisted()
			persisted := c.look().Informers["configmaps"].Status.PersistedRV
			c.kill()

			c = s.start()
			synced := c.waitSynced()
			c.wantCurrent(synced)
			c.wantLists(0)
			c.wantDelivered(counts{Adds: 50, InitialAdds: 50})
			if synced.Informers["configmaps"].Status.ServerRV != persisted {
				continue
			}
			if r := c.requests("configmaps"); r.Probes != 1 || r.Rounds != 0 {
				t.Errorf("%s, want one probe and no round", r)
			}
			return
		}
		t.Error("the server has never been at the persisted version")
	})
}

// A handler that only feeds a workqueue has returned long before the work is done:
// what was deleted lately is told again, also after a graceful stop, and until it
// has been kept for long enough.
func TestRestart_AfterGracefulStop_ResumesAndRepeatsRecentDeletes(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newSubject(t, configMaps).residing(r)
		s.create("", names("object", 50)...)
		c := s.start()
		c.waitSynced()
		// Not waiting until it is on disk: the stop has to bring it there.
		s.delete("object-000")
		s.update("changed", "object-001")
		c.waitCurrent()
		c.terminate()

		c = s.start()
		c.wantCurrent(c.waitSynced())
		c.wantLists(0)
		c.wantDeparted("object-000")
		c.wantDelivered(counts{Adds: 49 + 1, InitialAdds: 49 + 1, Deletes: 1})
		c.terminate()

		s.delete("object-002")
		c = s.start()
		c.wantCurrent(c.waitSynced())
		c.wantLists(0)
		c.wantDeparted("object-000", "object-002")
		c.wantDelivered(counts{Adds: 48 + 2, InitialAdds: 48 + 2, Deletes: 2})
	})
}

func TestRestart_SmallCollection_IsListedByDefault(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newSubject(t, configMaps).residing(r)
		s.config.ListBelow = 0
		s.create("", names("object", 10)...)
		c := s.start()
		c.waitSynced()
		c.terminate()

		s.update("changed", "object-000")
		s.delete("object-001")
		c = s.start()
		c.wantCurrent(c.waitSynced())
		c.wantLists(1)
		if r := c.requests("configmaps"); r.Probes+r.Rounds != 0 {
			t.Errorf("%s, want neither probe nor round", r)
		}
		c.wantDeparted("object-001")
		c.wantDelivered(counts{Adds: 9 + 1, InitialAdds: 9 + 1, Deletes: 1})
	})
}

// Objects of several types in one file, all of which resume.
func TestRestart_SeveralTypes_AllResume(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newSubject(t, configMaps, pods, leases, nodes).residing(r)
		s.create("", names("object", 20)...)
		c := s.start()
		c.wantCurrent(c.waitSynced())
		c.wantLists(1)
		c.waitPersisted()
		c.kill()

		s.create("", "new")
		s.update("changed", "object-000")
		s.delete("object-001", "object-002")
		s.create("", "object-002")

		c = s.start()
		c.wantCurrent(c.waitSynced())
		c.wantLists(0)
		c.wantDeparted("object-001", "object-002")
	})
}
