package e2e

import (
	"strings"
	"testing"

	"github.com/warmcache/warmcache/informer"
)

// The server's version is that of a write which the selector hides. A watch says
// nothing about it, and no bookmark does either before something else is written:
// the hidden event counts as sent, and a bookmark has to be newer than that.
func TestSelection_NewestWriteIsHidden_Resumes(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newSubject(t, configMaps).residing(r)
		s.config.LabelSelector = "watched=yes"
		s.create("watched=yes", names("object", 20)...)
		s.create("watched=no", names("hidden", 5)...)
		c := s.start()
		c.wantCurrent(c.waitSynced())
		c.wantDelivered(counts{Adds: 20, InitialAdds: 20})
		c.terminate()

		s.update("changed", "hidden-000")
		s.beat()
		c = s.start()
		c.wantCurrent(c.waitSynced())
		c.wantLists(0)
		c.wantDelivered(counts{Adds: 20, InitialAdds: 20})
		c.terminate()

		// To the informer, an object that no longer matches is deleted.
		s.update("changed", "object-000")
		s.label("object-001", "watched", "no")
		s.label("hidden-001", "watched", "yes")
		s.create("watched=no", "hidden-new")
		c = s.start()
		c.wantCurrent(c.waitSynced())
		c.wantLists(0)
		c.wantDeparted("object-001")
		c.wantDelivered(counts{Adds: 20 + 1, InitialAdds: 20 + 1, Deletes: 1})
	})
}

// The server accepts the watch at once, but has no proof to offer until something
// else is written.
func TestSelection_NewestWriteIsHidden_ResumedSyncsBeforeTheProof(t *testing.T) {
	s := newSubject(t, configMaps)
	s.config.LabelSelector = "watched=yes"
	s.config.Resumed = true
	s.create("watched=yes", names("object", 20)...)
	s.create("watched=no", "hidden")
	c := s.start()
	c.waitSynced()
	c.terminate()

	s.update("changed", "object-000")
	s.update("changed", "hidden")
	c = s.start()
	synced := c.waitSynced()
	if status := synced.Informers["configmaps"].Status; status.Confirmed {
		t.Errorf("%+v, want synced but not confirmed", status)
	}
	s.beat()
	c.waitConfirmed()
	c.waitCurrent()
	c.wantLists(0)
}

func TestSelection_ByField_Resumes(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newSubject(t, configMaps).residing(r)
		s.config.FieldSelector = "metadata.name!=hidden"
		s.create("", names("object", 20)...)
		s.create("", "hidden")
		c := s.start()
		c.wantCurrent(c.waitSynced())
		c.terminate()

		s.delete("object-000")
		s.update("changed", "hidden")
		s.beat()
		c = s.start()
		c.wantCurrent(c.waitSynced())
		c.wantLists(0)
		c.wantDeparted("object-000")
		c.wantDelivered(counts{Adds: 19 + 1, InitialAdds: 19 + 1, Deletes: 1})
	})
}

// Informers with other selectors in the same file are other collections.
func TestSelection_Changed_ListsItsOwnCollection(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newSubject(t, configMaps).residing(r)
		s.config.LabelSelector = "watched=yes"
		s.create("watched=yes", names("object", 20)...)
		s.create("watched=no", names("hidden", 5)...)
		c := s.start()
		c.waitSynced()
		c.terminate()

		s.config.LabelSelector = "watched=no"
		s.knowledge["configmaps"] = newKnowledge()
		c = s.start()
		c.wantCurrent(c.waitSynced())
		c.wantLists(1)
		c.terminate()

		s.config.LabelSelector = "watched=yes"
		s.knowledge["configmaps"] = newKnowledge()
		c = s.start()
		c.wantCurrent(c.waitSynced())
		c.wantLists(0)
	})
}

func TestSelection_AllNamespaces_Resumes(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newSubject(t, configMaps).residing(r)
		s.config.Namespace = ""
		s.create("", names("object", 20)...)
		c := s.start()
		c.wantCurrent(c.waitSynced())
		c.terminate()

		s.delete("object-000")
		c = s.start()
		c.wantCurrent(c.waitSynced())
		c.wantLists(0)
		c.wantDeparted("object-000")
	})
}

// There is no watch cache, hence no bookmark, for events. The first restart finds
// that out, the next one knows.
func TestSelection_TypeWithoutBookmarks_IsListedFromTheSecondRestartOn(t *testing.T) {
	t.Parallel()
	s := newSubject(t, events)
	s.create("", names("object", 20)...)
	c := s.start()
	c.wantCurrent(c.waitSynced())
	c.terminate()

	s.changeSomethingElse()
	c = s.start()
	synced := c.waitSynced()
	c.wantCurrent(synced)
	c.wantLists(1)
	if reason := synced.Informers["events"].Status.ListReason; !strings.Contains(reason, "no bookmark") {
		t.Errorf("listed because %q, want because no bookmark came", reason)
	}
	if r := c.requests("events"); r.Rounds != 4 {
		t.Errorf("%s, want 4 rounds", r)
	}
	c.terminate()

	s.changeSomethingElse()
	s.delete("object-000")
	c = s.start()
	c.wantCurrent(c.waitSynced())
	c.wantLists(1)
	if r := c.requests("events"); r.Rounds != 0 {
		t.Errorf("%s, want no round", r)
	}
	c.wantDeparted("object-000")
}
