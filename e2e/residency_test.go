package e2e

import (
	"testing"

	"github.com/warmcache/warmcache/indexer"
	"github.com/warmcache/warmcache/informer"
)

// inEachResidency runs a test with informers in memory and with informers on disk.
func inEachResidency(t *testing.T, test func(t *testing.T, r informer.Residency)) {
	for _, r := range []informer.Residency{informer.Memory, informer.Disk} {
		t.Run(r.String(), func(t *testing.T) { test(t, r) })
	}
}

// residing says where the informers of the next processes have their objects.
func (s *subject) residing(r informer.Residency) *subject {
	s.config.Residency = r
	return s
}

// leastBudget is the memory budget for a residency: on disk, less than the objects
// of most tests take is not to be had.
func leastBudget(r informer.Residency) int64 {
	if r == informer.Disk {
		return indexer.MinMemoryBudget
	}
	return 0
}

// wantResidency fails the test unless all informers that have a place in the file
// have their objects where they were told to.
func (c *child) wantResidency(s *snapshot) {
	c.subject.t.Helper()
	for name, contents := range s.Informers {
		want := informer.Memory
		if contents.Status.Persistent {
			want = c.subject.config.Residency
		}
		if got := contents.Status; got.Residency != want || got.ReadErr != "" || got.ReadErrors > 0 {
			c.subject.t.Errorf("%s: %s: status %+v, want objects in residency %v, and no failed read", c.agent, name, got, want)
		}
	}
}
