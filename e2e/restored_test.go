package e2e

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/warmcache/warmcache/e2e/controlplane"
	"github.com/warmcache/warmcache/informer"
)

// A restore takes as long as two restarts, so that each test here looks at several
// subjects at once: informers in memory and on disk, that run or do not meanwhile.

// timeline is a subject whose latest changes are of after a backup.
type timeline struct {
	*subject
	// c is the process that has seen them.
	c *child
	// stored is the version that it has brought to disk.
	stored int64
}

// newTimelines returns a subject with 50 objects for each residency, and the process
// that has synced with it.
func newTimelines(t *testing.T) []*timeline {
	t.Helper()
	var all []*timeline
	for _, r := range []informer.Residency{informer.Memory, informer.Disk} {
		s := newSubject(t, configMaps).residing(r)
		s.create("", names("object", 50)...)
		all = append(all, &timeline{subject: s, c: s.start()})
	}
	for _, l := range all {
		l.c.waitSynced()
	}
	return all
}

// goOn changes objects, in a way that a restore will take back, and waits until the
// process has it all on disk. The newest one is that for which last is called.
func (l *timeline) goOn(last func(s *subject)) {
	l.t.Helper()
	l.update("lost", "object-000")
	l.delete("object-001")
	l.create("", "lost")
	l.delete("object-002")
	l.create("", "object-002")
	last(l.subject)
	l.c.waitCurrent()
	l.c.waitPersisted()
	l.stored = parseVersion(l.t, l.c.look().Informers["configmaps"].Status.PersistedRV)
}

// What the newest change of a timeline may be.
var (
	creates   = func(s *subject) { s.t.Helper(); s.create("", "newest") }
	updates   = func(s *subject) { s.t.Helper(); s.update("newest", "object-010") }
	recreates = func(s *subject) { s.t.Helper(); s.delete("object-010"); s.create("", "object-010") }
)

func parseVersion(t *testing.T, rv string) int64 {
	t.Helper()
	version, err := strconv.ParseInt(rv, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

func backUp(t *testing.T) controlplane.Backup {
	t.Helper()
	backup, err := plane.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return backup
}

func restore(t *testing.T, b controlplane.Backup, o controlplane.RestoreOptions) {
	t.Helper()
	if err := plane.Restore(t.Context(), b, o); err != nil {
		t.Fatal(err)
	}
}

// advanceTo moves the server's version on, as changes of other resources would, and
// returns what it is then.
func advanceTo(t *testing.T, version int64) int64 {
	t.Helper()
	now, err := plane.AdvanceTo(t.Context(), version)
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// serverVersion returns the version that the server is at.
func (s *subject) serverVersion() int64 {
	s.t.Helper()
	list, err := s.writer.CoreV1().ConfigMaps(s.namespace).List(s.t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		s.t.Fatal(err)
	}
	return parseVersion(s.t, list.ResourceVersion)
}

// startAfterwards starts a process after a restore and tests that it lists once, and
// tells its handlers that what is not there any more, or was replaced, is gone. Nothing
// is told of the deletes that were taken back.
func (l *timeline) startAfterwards(departed ...string) {
	l.t.Helper()
	l.c = l.start()
	synced := l.c.waitSynced()
	l.c.wantCurrent(synced)
	l.c.wantLists(1)
	l.c.wantDeparted(append([]string{"object-002", "lost"}, departed...)...)
}

func TestRestored_LowerVersion_FollowsTheServer(t *testing.T) {
	stopped, running := newTimelines(t), newTimelines(t)
	backup := backUp(t)
	// So that the writes of servers that start do not bring it past that.
	advanceTo(t, stopped[0].serverVersion()+2000)
	for _, l := range append(stopped, running...) {
		l.goOn(creates)
	}
	for _, l := range stopped {
		l.c.kill()
	}
	restore(t, backup, controlplane.RestoreOptions{})

	for _, l := range append(stopped, running...) {
		if now := l.serverVersion(); now >= l.stored {
			t.Fatalf("the server is at %d, want it below %d", now, l.stored)
		}
		l.update("restored", "object-003")
	}
	for _, l := range stopped {
		l.startAfterwards("newest")
		l.c.wantListReason("restored")
	}
	for _, l := range running {
		l.c.waitCurrent()
		l.c.wantLists(2)
		// Before the restore 000 was updated, 001 and 002 deleted, 002 recreated,
		// "lost" and "newest" added. All that is taken back; that 002 is another object
		// again is an update, as in client-go.
		l.c.wantDelivered(counts{Adds: 50 + 3 + 1, InitialAdds: 50, Updates: 1 + 3, Deletes: 2 + 2})
	}
}

func (c *child) wantListReason(want string) {
	c.subject.t.Helper()
	for resource, now := range c.look().Informers {
		if got := now.Status.ListReason; !strings.Contains(got, want) {
			c.subject.t.Errorf("%s: listed %s because %q, want %q in it", c.agent, resource, got, want)
		}
	}
}

// A watch from the stored version is accepted and looks caught up; that the newest of
// the stored objects is not what the server has tells that its history is another one.
func TestRestored_PassedVersion_NewestObjectTells(t *testing.T) {
	newest := map[string]struct {
		change   func(*subject)
		departed []string
	}{
		"created":   {creates, []string{"newest"}},
		"updated":   {updates, nil},
		"recreated": {recreates, []string{"object-010"}},
	}
	stopped, running := map[string][]*timeline{}, newTimelines(t)
	for name := range newest {
		stopped[name] = newTimelines(t)
	}
	var links []*link
	for _, l := range running {
		l.c.terminate()
		links = append(links, newLink(t, l.subject))
		l.c = l.start()
		l.c.waitSynced()
	}
	backup := backUp(t)
	// So that the writes of servers that start do not bring it past that.
	advanceTo(t, running[0].serverVersion()+2000)
	var last int64
	for name, n := range newest {
		for _, l := range stopped[name] {
			l.goOn(n.change)
			l.c.kill()
			last = max(last, l.stored)
		}
	}
	for i, l := range running {
		l.goOn(creates)
		links[i].cut()
		last = max(last, l.stored)
	}
	restore(t, backup, controlplane.RestoreOptions{})
	if now := running[0].serverVersion(); now >= last {
		t.Fatalf("the server is at %d, want it below %d until its caches have begun", now, last)
	}
	advanceTo(t, last+10)

	for name, n := range newest {
		for _, l := range stopped[name] {
			l.startAfterwards(n.departed...)
		}
	}
	for i, l := range running {
		links[i].restore(t)
		l.c.waitCurrent()
		l.c.wantLists(1)
	}
}

// A revision that is bumped, and marked as compacted, makes a restored server refuse
// the stored version, whatever has happened since.
func TestRestored_Bumped_VersionHasExpired(t *testing.T) {
	stopped, running := newTimelines(t), newTimelines(t)
	backup := backUp(t)
	for _, l := range append(stopped, running...) {
		l.goOn(creates)
	}
	for _, l := range stopped {
		l.c.kill()
	}
	restore(t, backup, controlplane.RestoreOptions{Bump: 1_000_000})

	for _, l := range stopped {
		l.startAfterwards("newest")
	}
	for _, l := range running {
		l.c.waitCurrent()
		l.c.wantLists(2)
		l.c.wantDelivered(counts{Adds: 50 + 3 + 1, InitialAdds: 50, Updates: 1 + 2, Deletes: 2 + 2})
	}
}

// Two histories may give an object the same version, under the same UID. A start cannot
// see that, if it is so of the newest object: what is stored is served until an event
// contradicts it, the audit finds it, or something else leads to a list, which compares
// content.
func TestRestored_EqualVersions_SeenByContradictionsAuditsAndLists(t *testing.T) {
	contradicted, audited, listed := newTimelines(t), newTimelines(t), newTimelines(t)
	all := slices.Concat(contradicted, audited, listed)
	backup := backUp(t)
	advanceTo(t, all[0].serverVersion()+2000)
	twins := map[*timeline]int64{}
	for _, l := range all {
		l.goOn(updates)
		twins[l] = parseVersion(t, l.fresh()["configmaps"][l.key("configmaps", "object-010")].RV)
		advanceTo(t, twins[l]+100)
		l.c.kill()
	}
	restoreTwins(t, backup, all, twins)
	for _, l := range all {
		advanceTo(t, l.stored+10)
	}

	for _, l := range contradicted {
		l.c = l.start()
		l.c.waitSynced()
		l.c.wantLists(0)
		if err := l.c.compare(l.fresh(), l.c.look()); err == nil {
			t.Error("nothing of the other history is left, so that this is no test")
		}
		l.create("", "lost") // which is there already, in the other history
		l.c.waitCurrent()
		l.c.wantLists(1)
		l.c.wantListReason("lost was added, but is there already")
	}
	for _, l := range audited {
		l.config.Audit = 3 * time.Second
		l.c = l.start()
		l.c.waitSynced()
		n := 0
		l.c.waitUntil("the audit has found the difference", func(now contents) error {
			if now.Status.ListReason == "" {
				// An audit compares at a version that the watch has reached.
				n++
				l.update(strconv.Itoa(n), "object-020")
				return errors.New("nothing was listed")
			}
			return nil
		})
		l.c.waitCurrent() // the audits' own lists count, too
		l.c.wantListReason("the audit has found that the cache differs from the server")
	}
	forgetHistory(t)
	for _, l := range listed {
		l.startAfterwards()
	}
}

// restoreTwins restores a backup and gives object-010 of each timeline the version that
// it had in the other history, with another content.
func restoreTwins(t *testing.T, backup controlplane.Backup, all []*timeline, twins map[*timeline]int64) {
	t.Helper()
	for range 3 {
		restore(t, backup, controlplane.RestoreOptions{})
		missed := 0
		for _, l := range all {
			advanceTo(t, twins[l]-1)
			l.update("twin", "object-010")
			got := parseVersion(t, l.fresh()["configmaps"][l.key("configmaps", "object-010")].RV)
			if got != twins[l] {
				missed++ // Somebody else has written at that moment.
			}
		}
		if missed == 0 {
			return
		}
	}
	t.Fatal("no twins")
}
