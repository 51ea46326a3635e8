package controlplane

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

const (
	auditPolicyFile = "audit-policy.yaml"
	auditLogFile    = "audit.log"
)

// auditPolicy writes down who asked for what, when it is received and when it is
// answered. The server's own requests and those of this package are left out:
// no test is about them.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: None
  users: ["system:apiserver"]
- level: None
  nonResourceURLs: ["/readyz*", "/metrics*"]
- level: Metadata
`

// AuditEvent is one request that the API server received.
type AuditEvent struct {
	// ID is unique. Received is when the request arrived, by the server's clock.
	ID       string
	Received time.Time
	// User is the authenticated user. UserAgent is what a rest.Config has set,
	// which is how a test tells its clients apart.
	User, UserAgent string
	// Verb is get, list, watch, create, ...; a list through WatchList is a watch.
	Verb string
	// URI is the request URI with its query.
	URI string
	// Group, Version, Resource, Subresource, Namespace and Name say what the
	// request was for; all are empty if it was for no resource.
	Group, Version, Resource, Subresource, Namespace, Name string
	// Code is the HTTP status, 0 while there is no answer yet. A watch has its
	// code as soon as it has begun.
	Code int
	// Ended says that the answer is complete.
	Ended bool
}

// Query returns the parameters of the request; nil if they cannot be parsed.
func (e AuditEvent) Query() url.Values {
	uri, err := url.ParseRequestURI(e.URI)
	if err != nil {
		return nil
	}
	return uri.Query()
}

// ListsCollection says whether the request reads a collection: a list, unless it
// is limited to one object, or a watch that begins with everything there is.
func (e AuditEvent) ListsCollection() bool {
	switch e.Verb {
	case "list":
		return e.Query().Get("limit") != "1"
	case "watch":
		return e.Query().Get("sendInitialEvents") == "true"
	}
	return false
}

// auditRecord is a line of the audit log: one stage of one request.
type auditRecord struct {
	AuditID                  string    `json:"auditID"`
	Stage                    string    `json:"stage"`
	RequestURI               string    `json:"requestURI"`
	Verb                     string    `json:"verb"`
	UserAgent                string    `json:"userAgent"`
	RequestReceivedTimestamp time.Time `json:"requestReceivedTimestamp"`
	User                     struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		APIGroup    string `json:"apiGroup"`
		APIVersion  string `json:"apiVersion"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

func (r auditRecord) event() AuditEvent {
	return AuditEvent{
		ID: r.AuditID, Received: r.RequestReceivedTimestamp,
		User: r.User.Username, UserAgent: r.UserAgent, Verb: r.Verb, URI: r.RequestURI,
		Group: r.ObjectRef.APIGroup, Version: r.ObjectRef.APIVersion,
		Resource: r.ObjectRef.Resource, Subresource: r.ObjectRef.Subresource,
		Namespace: r.ObjectRef.Namespace, Name: r.ObjectRef.Name,
		Code: r.ResponseStatus.Code, Ended: r.Stage == "ResponseComplete" || r.Stage == "Panic",
	}
}

// AuditEvents returns every request so far, over all starts of this server, in
// the order in which they were received; so what came after a moment is what
// follows the events there were then. Requests of the server itself, to /readyz
// and to /metrics are not among them.
func (a *APIServer) AuditEvents() ([]AuditEvent, error) {
	log, err := os.ReadFile(filepath.Join(a.dir, auditLogFile))
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	return parseAuditLog(log)
}

// parseAuditLog merges the stages of each request. Bytes after the last newline
// are a line that is still being written.
func parseAuditLog(log []byte) ([]AuditEvent, error) {
	var events []AuditEvent
	position := map[string]int{}
	for line := range bytes.Lines(log) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var record auditRecord
		if err := json.Unmarshal(line, &record); err != nil {
			return nil, fmt.Errorf("parsing the audit log at %q: %w", line, err)
		}
		if i, seen := position[record.AuditID]; seen {
			events[i] = record.event()
			continue
		}
		position[record.AuditID] = len(events)
		events = append(events, record.event())
	}
	return events, nil
}
