// Package meter measures, inside a client of the API server, what an informer
// costs: bytes on the wire, lists of the collection, and heap.
//
// It counts in the client because a real API server does not tell.
package meter

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"path"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// Traffic counts what clients receive. The zero value is not usable; see Attach.
// All methods are safe for concurrent use.
type Traffic struct {
	// resource is the last element of the collection's path, such as "pods".
	resource string

	received, lists, probes atomic.Int64
}

// Attach makes clients built from config from now on report to the returned
// Traffic. Requests count as lists or probes if they name resource. It must be
// called once per config.
func Attach(config *rest.Config, resource string) *Traffic {
	t := &Traffic{resource: resource}
	dial := config.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: conn, received: &t.received}, nil
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &classifier{next: next, traffic: t} })
	return t
}

// BytesReceived is what came over all connections so far: bodies, headers,
// framing, TLS, compressed if the server compresses.
func (t *Traffic) BytesReceived() int64 { return t.received.Load() }

// Lists is how often the whole collection was asked for: as a list, however many
// pages it came in, or as a watch that begins with the initial state.
func (t *Traffic) Lists() int64 { return t.lists.Load() }

// Probes is how often a single object was asked for, to learn the server's
// resourceVersion.
func (t *Traffic) Probes() int64 { return t.probes.Load() }

type countedConn struct {
	net.Conn
	received *atomic.Int64
}

// Read implements net.Conn.
func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}

// classifier looks at requests on their way out.
type classifier struct {
	next    http.RoundTripper
	traffic *Traffic
}

// RoundTrip implements http.RoundTripper.
func (c *classifier) RoundTrip(r *http.Request) (*http.Response, error) {
	c.traffic.count(r.Method, r.URL)
	return c.next.RoundTrip(r)
}

// WrappedRoundTripper lets client-go find the transport below.
func (c *classifier) WrappedRoundTripper() http.RoundTripper { return c.next }

func (t *Traffic) count(method string, u *url.URL) {
	if method != http.MethodGet || path.Base(u.Path) != t.resource {
		return
	}
	query := u.Query()
	first := query.Get("continue") == ""
	switch {
	case query.Get("watch") == "true" || query.Get("watch") == "1":
		if query.Get("sendInitialEvents") == "true" {
			t.lists.Add(1)
		}
	case query.Get("limit") == "1" && first:
		t.probes.Add(1)
	case first || query.Get("limit") == "1":
		// Following the continue token of a probe lists the collection, too.
		t.lists.Add(1)
	}
}
