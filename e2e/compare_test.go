package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/warmcache/warmcache/e2e/controlplane"
)

// waitCurrent waits until indexers and handlers know what the server has.
func (c *child) waitCurrent() {
	c.subject.t.Helper()
	want := c.subject.fresh()
	c.eventually("the informers are current", func() error { return c.compare(want, c.look()) })
}

// wantCurrent fails the test unless indexers and handlers knew what the server
// has at the moment of a snapshot.
func (c *child) wantCurrent(s *snapshot) {
	c.subject.t.Helper()
	if err := c.compare(c.subject.fresh(), s); err != nil {
		c.subject.t.Error(err)
	}
}

// compare compares what the server has with the indexers, with what the handlers
// of this process have been told, and with what the handlers of all processes
// together have been told.
func (c *child) compare(want map[string]map[string]state, s *snapshot) error {
	var problems []error
	for resource, objects := range want {
		got := s.Informers[resource]
		versions, byUID, indexed := map[string]string{}, map[string]string{}, map[string]int{}
		for key, object := range objects {
			versions[key] = object.RV
			byUID[object.UID] = key + " at " + object.RV
			indexed[namespaceOf(key)]++
		}
		problems = append(problems,
			differs("indexer of "+resource, objects, got.Objects),
			differs("namespace index of "+resource, indexed, got.Indexed),
			differs("handlers of "+resource, versions, c.views[resource].known()),
			differs("handlers of all processes of "+resource, byUID, c.subject.knowledge[resource].known()))
	}
	return errors.Join(problems...)
}

func namespaceOf(key string) string {
	namespace, _, namespaced := strings.Cut(key, "/")
	if !namespaced {
		return ""
	}
	return namespace
}

func differs[V any](what string, want, got map[string]V) error {
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("%s (-server +%s):\n%s", what, what, diff)
	}
	return nil
}

// requests returns what the informer of a resource, or of the subscription of that
// name, has asked.
func (c *child) requests(name string) requests {
	c.subject.t.Helper()
	return c.requestsIn(c.subject.auditEvents(), name)
}

// requestsIn is requests for who has read the audit log, which is long, already.
func (c *child) requestsIn(log []controlplane.AuditEvent, name string) requests {
	agent, resource, version := c.agent, name, ""
	for _, s := range c.subject.config.Subscriptions {
		if s.Name == name {
			agent, resource, version = s.agent(c.agent), s.Resource.Resource, s.Resource.Version
		}
	}
	return requestsIn(log, func(e controlplane.AuditEvent) bool {
		return e.UserAgent == agent && e.Resource == resource && (version == "" || e.Version == version)
	})
}

// wantLists fails the test unless each informer of the process has read its
// collection n times so far.
func (c *child) wantLists(n int) {
	t := c.subject.t
	t.Helper()
	log := c.subject.auditEvents()
	for name := range c.views {
		if r := c.requestsIn(log, name); r.Lists != n {
			t.Errorf("%s: read the collection of %s %d times, want %d; %s", c.agent, name, r.Lists, n, r)
		}
	}
}

// wantDelivered fails the test unless each handler of the process has been given
// these numbers of events.
func (c *child) wantDelivered(want counts) {
	t := c.subject.t
	t.Helper()
	for resource, view := range c.views {
		if got, _ := view.delivered(); got != want {
			t.Errorf("%s: the handlers of %s were given %+v, want %+v", c.agent, resource, got, want)
		}
	}
}

// splitReplay splits what a handler was told into the keys of the departed
// objects that came first, each introduced and then deleted, and the rest.
func splitReplay(events []event) (departed []string, rest []event) {
	for len(events) >= 2 {
		introduced, gone := events[0], events[1]
		if introduced.Type != added || !introduced.Initial || gone.Type != deleted || introduced.UID != gone.UID {
			break
		}
		departed = append(departed, gone.Key)
		events = events[2:]
	}
	slices.Sort(departed)
	return departed, events
}

// wantDeparted fails the test unless each handler was told first that these
// objects are gone, and of no other delete so far.
func (c *child) wantDeparted(names ...string) {
	t := c.subject.t
	t.Helper()
	for resource, view := range c.views {
		departed, rest := splitReplay(view.events())
		var want []string
		for _, name := range names {
			want = append(want, c.subject.key(resource, name))
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, departed); diff != "" {
			t.Errorf("%s: departed objects of %s before the replay (-want +got):\n%s", c.agent, resource, diff)
		}
		for _, e := range rest {
			if e.Type == deleted {
				t.Errorf("%s: %s of %s was deleted after the replay had begun", c.agent, e.Key, resource)
			}
		}
	}
}
