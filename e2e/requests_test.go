package e2e

import (
	"fmt"
	"testing"

	"github.com/warmcache/warmcache/e2e/controlplane"
)

// requests are what one process has asked the API server about one resource, by
// the server's own account.
type requests struct {
	// Lists read the whole collection: in pages, or as a streamed list.
	Lists int
	// Probes are lists with limit=1.
	Probes int
	// Rounds are watches that the client asked to be ended after 3 seconds.
	Rounds int
	// Watches are all other watches.
	Watches int
}

func (r requests) String() string {
	return fmt.Sprintf("lists %d, probes %d, rounds %d, watches %d", r.Lists, r.Probes, r.Rounds, r.Watches)
}

func (r *requests) add(e controlplane.AuditEvent) {
	switch {
	case e.ListsCollection():
		r.Lists++
	case e.Verb == "list":
		r.Probes++
	case e.Verb == "watch" && e.Query().Get("timeoutSeconds") == "3":
		r.Rounds++
	case e.Verb == "watch":
		r.Watches++
	}
}

// requestsOf returns what a user agent has asked an API server about a resource.
func requestsOf(t *testing.T, api *controlplane.APIServer, agent, resource string) requests {
	t.Helper()
	return requestsFor(t, api, func(e controlplane.AuditEvent) bool { return e.UserAgent == agent && e.Resource == resource })
}

// requestsFor returns those requests to an API server that are relevant.
func requestsFor(t *testing.T, api *controlplane.APIServer, relevant func(controlplane.AuditEvent) bool) requests {
	t.Helper()
	return requestsIn(auditEvents(t, api), relevant)
}

func auditEvents(t *testing.T, api *controlplane.APIServer) []controlplane.AuditEvent {
	t.Helper()
	events, err := api.AuditEvents()
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func requestsIn(events []controlplane.AuditEvent, relevant func(controlplane.AuditEvent) bool) requests {
	var r requests
	for _, event := range events {
		if relevant(event) {
			r.add(event)
		}
	}
	return r
}

// collectionReads returns how often a user agent has read whole collections of a
// resource.
func collectionReads(t *testing.T, agent, resource string) int {
	t.Helper()
	return requestsOf(t, plane.API, agent, resource).Lists
}
