package apitest

import (
	"net/url"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Request is one entry of the request log.
type Request struct {
	// Start is when the request came in.
	Start time.Time
	// Verb is list, watch, get, create, update, patch, delete or
	// deletecollection, or the HTTP method in lower case for other paths.
	Verb string
	// Group, Version, Resource, Namespace and Name are what the path names.
	Group, Version, Resource, Namespace, Name string
	// Path and Query are as the client sent them.
	Path  string
	Query url.Values
	// UserAgent tells clients apart.
	UserAgent string
	// Status is the HTTP status, 0 while there is none or if the connection was
	// cut before it.
	Status int
	// Items is the number of objects that a list returned, or that a watch with
	// sendInitialEvents sent as initial events.
	Items int
	// Events is the number of events that a watch has sent, bookmarks and
	// initial events included.
	Events int
	// Bookmarks is how many of them were bookmarks.
	Bookmarks int
	// Bytes is the size of the response body sent so far, without HTTP framing.
	Bytes int64
	// Done says that the response is complete or cut.
	Done bool
}

// Counts sum up a request log.
type Counts struct {
	// Lists and Watches count requests; a WatchList is a watch that asks for
	// initial events, and counts as both WatchList and Watch.
	Lists, Watches, WatchLists, Gets int
	// FullLists counts lists and WatchLists that returned more than one object.
	FullLists int
	// Writes counts everything that may change an object.
	Writes int
	// Items is the number of objects returned by lists and WatchLists.
	Items int
	// Bytes is the size of all response bodies.
	Bytes int64
}

// requestLog keeps every request until it is reset.
type requestLog struct {
	clock clock.PassiveClock
	mu    struct {
		sync.Mutex
		entries []*logEntry
	}
}

// logEntry is one request being logged. Its fields are guarded by log.mu.
type logEntry struct {
	log *requestLog
	Request
}

func newRequestLog(c clock.PassiveClock) *requestLog { return &requestLog{clock: c} }

func (l *requestLog) begin(r *request) *logEntry {
	e := &logEntry{log: l, Request: Request{
		Start:     l.clock.Now(),
		Verb:      r.verb,
		Group:     r.gvr.Group,
		Version:   r.gvr.Version,
		Resource:  r.gvr.Resource,
		Namespace: r.namespace,
		Name:      r.name,
		Path:      r.URL.Path,
		Query:     r.URL.Query(),
		UserAgent: r.UserAgent(),
	}}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.entries = append(l.mu.entries, e)
	return e
}

// change updates the entry under the log's lock.
func (e *logEntry) change(fn func(r *Request)) {
	e.log.mu.Lock()
	defer e.log.mu.Unlock()
	fn(&e.Request)
}

// view returns a copy for use outside the lock.
func (e *logEntry) view() Request {
	e.log.mu.Lock()
	defer e.log.mu.Unlock()
	return e.Request
}

func (e *logEntry) end() { e.change(func(r *Request) { r.Done = true }) }

// Requests returns the requests since the start or the last reset, in the order
// in which they came in, running ones included.
func (s *Server) Requests() []Request {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	all := make([]Request, len(s.log.mu.entries))
	for i, e := range s.log.mu.entries {
		all[i] = e.Request
	}
	return all
}

// ResetRequests empties the request log. Running requests are not in it any
// more.
func (s *Server) ResetRequests() {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.log.mu.entries = nil
}

// Counts sums up Requests.
func (s *Server) Counts() Counts { return CountRequests(s.Requests()) }

// CountRequests sums up requests that the caller has selected.
func CountRequests(requests []Request) Counts {
	var c Counts
	for _, r := range requests {
		c.add(r)
	}
	return c
}

func (c *Counts) add(r Request) {
	switch r.Verb {
	case "list":
		c.Lists++
	case "watch":
		c.Watches++
		if r.Query.Get("sendInitialEvents") == "true" {
			c.WatchLists++
		}
	case "get":
		c.Gets++
	case "create", "update", "patch", "delete", "deletecollection":
		c.Writes++
	}
	if r.Items > 1 {
		c.FullLists++
	}
	c.Items += r.Items
	c.Bytes += r.Bytes
}
