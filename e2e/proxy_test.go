package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/warmcache/warmcache/e2e/controlplane"
	"github.com/warmcache/warmcache/informer"
)

// proxy is what stands before API servers and ends TLS, as ingress controllers,
// service meshes and corporate proxies do. The zero value passes everything on.
type proxy struct {
	// http1 is for one that knows HTTP/1.1 only.
	http1 bool
	// cutsAfter, if not 0, is how long an answer may take, whether or not it has
	// something to say.
	cutsAfter time.Duration
	// body, if not nil, is what becomes of the body of the answer to a watch.
	body func(io.ReadCloser) io.ReadCloser
	// seed is for the choice of an API server for each request.
	seed uint64
}

// stand makes the processes of a subject talk to API servers through the proxy.
func (p proxy) stand(t *testing.T, s *subject, apis ...*controlplane.APIServer) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: trusting(t, s.config.CA), ForceAttemptHTTP2: true}
	pass := &httputil.ReverseProxy{
		Rewrite:        p.chooser(t, apis),
		Transport:      transport,
		ModifyResponse: p.change,
		ErrorLog:       log.New(io.Discard, "", 0),
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.cutsAfter > 0 {
			ctx, cancel := context.WithTimeout(r.Context(), p.cutsAfter)
			defer cancel()
			r = r.WithContext(ctx)
		}
		pass.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = !p.http1
	server.Config.ErrorLog = pass.ErrorLog
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	s.apis = apis
	s.config.Host = server.URL
	s.config.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

func trusting(t *testing.T, ca []byte) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		t.Fatal("the certificate of the API server cannot be read")
	}
	return &tls.Config{RootCAs: pool}
}

// chooser returns what sends each request to one of several API servers at random.
func (p proxy) chooser(t *testing.T, apis []*controlplane.APIServer) func(*httputil.ProxyRequest) {
	t.Helper()
	var targets []*url.URL
	for _, api := range apis {
		target, err := url.Parse(api.Config().Host)
		if err != nil {
			t.Fatal(err)
		}
		targets = append(targets, target)
	}
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(p.seed, 0))
	return func(r *httputil.ProxyRequest) {
		mu.Lock()
		defer mu.Unlock()
		r.SetURL(targets[rng.IntN(len(targets))])
	}
}

func (p proxy) change(response *http.Response) error {
	if p.body != nil && response.Request.URL.Query().Get("watch") == "true" {
		response.Body = p.body(response.Body)
	}
	return nil
}

// buffered gives nothing away before it has all.
type buffered struct {
	io.ReadCloser
	all *bytes.Reader
}

func buffering(body io.ReadCloser) io.ReadCloser { return &buffered{ReadCloser: body} }

func (b *buffered) Read(p []byte) (int, error) {
	if b.all == nil {
		all, err := io.ReadAll(b.ReadCloser)
		if err != nil {
			return 0, err
		}
		b.all = bytes.NewReader(all)
	}
	return b.all.Read(p)
}

// withoutBookmarks passes on all events of a watch but bookmarks.
type withoutBookmarks struct {
	io.Closer
	events *json.Decoder
	rest   bytes.Buffer
}

func strippingBookmarks(body io.ReadCloser) io.ReadCloser {
	return &withoutBookmarks{Closer: body, events: json.NewDecoder(body)}
}

func (b *withoutBookmarks) Read(p []byte) (int, error) {
	for b.rest.Len() == 0 {
		var event json.RawMessage
		if err := b.events.Decode(&event); err != nil {
			return 0, err
		}
		var kind struct{ Type watch.EventType }
		if err := json.Unmarshal(event, &kind); err != nil {
			return 0, err
		}
		if kind.Type != watch.Bookmark {
			b.rest.Write(event)
		}
	}
	return b.rest.Read(p)
}

// storeThroughProxy runs a process until it has stored objects object-000 to -049,
// stops it, and changes some.
func storeThroughProxy(t *testing.T, s *subject) {
	t.Helper()
	s.create("", names("object", 50)...)
	c := s.start()
	c.wantCurrent(c.waitSynced())
	c.waitPersisted()
	c.kill()
	s.create("", "new")
	s.update("changed", "object-000")
	s.delete("object-001", "object-002")
	s.create("", "object-002")
}

func TestProxy_HTTP1Only_Resumes(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newSubject(t, configMaps, pods).residing(r)
		proxy{http1: true}.stand(t, s, plane.API)
		storeThroughProxy(t, s)

		c := s.start()
		c.wantCurrent(c.waitSynced())
		c.wantLists(0)
		c.wantDeparted("object-001", "object-002")
		s.update("again", "object-003")
		c.waitCurrent()
		c.terminate()
	})
}

// Nothing of an answer comes before its end, not even that there is one. The server
// ends the watches of a start soon enough; a streamed list it does not.
func TestProxy_Buffers_SyncsAndResumes(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newSubject(t, configMaps).residing(r)
		proxy{body: buffering}.stand(t, s, plane.API)
		storeThroughProxy(t, s)

		c := s.start()
		c.wantCurrent(c.waitSynced())
		c.wantLists(0)
		c.wantDeparted("object-001", "object-002")
		c.terminate()
	})
}

func TestProxy_StripsBookmarks_Syncs(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newSubject(t, configMaps).residing(r)
		proxy{body: strippingBookmarks}.stand(t, s, plane.API)
		storeThroughProxy(t, s)

		c := s.start()
		c.wantCurrent(c.waitSynced())
		c.wantDeparted("object-001", "object-002")
		t.Log(c.requests("configmaps"))
		s.update("again", "object-003")
		c.waitCurrent()
		c.terminate()
	})
}

// Load balancers end what they take for idle.
func TestProxy_CutsEveryRequest_WatchesAgainWithoutLists(t *testing.T) {
	for _, http1 := range []bool{false, true} {
		t.Run(map[bool]string{false: "http2", true: "http1"}[http1], func(t *testing.T) {
			s := newSubject(t, configMaps)
			proxy{http1: http1, cutsAfter: 1500 * time.Millisecond}.stand(t, s, plane.API)
			storeThroughProxy(t, s)

			c := s.start()
			c.wantCurrent(c.waitSynced())
			before := c.requests("configmaps")
			c.eventually("many watches have been cut", func() error {
				if now := c.requests("configmaps"); now.Watches < before.Watches+8 {
					return errNotYet
				}
				return nil
			})
			s.update("again", "object-003")
			c.waitCurrent()
			c.wantLists(0)
			c.terminate()
		})
	}
}
