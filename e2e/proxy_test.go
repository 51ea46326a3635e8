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

	"k8s.io/apimachinery/pkg/runtime"
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
		r.Out.Header.Del("Accept-Encoding") // what is passed on can be read
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

// wantResumedBehind tests that a process which can resume does so behind a proxy, and
// that changes reach it then.
func wantResumedBehind(t *testing.T, p proxy, s *subject) *child {
	t.Helper()
	s.store()
	s.change()
	p.stand(t, s, plane.API)
	c := s.start()
	c.wantCurrent(c.waitSynced())
	c.wantLists(0)
	c.wantDeparted("object-001", "object-002")
	return c
}

// Each watch has a connection of its own.
func TestProxy_HTTP1Only_Resumes(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newSubject(t, configMaps, pods).residing(r)
		c := wantResumedBehind(t, proxy{http1: true}, s)
		s.update("again", "object-003")
		c.waitCurrent()
		c.wantLists(0)
		c.terminate()
	})
}

// Nothing of an answer comes before its end. The server ends the watches of a start
// soon enough.
func TestProxy_Buffers_Resumes(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		wantResumedBehind(t, proxy{body: buffering}, newSubject(t, configMaps).residing(r)).terminate()
	})
}

// A server that is known to tell everything since a version need not say how far it
// has come, as long as something changes.
func TestProxy_StripsBookmarks_Resumes(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newSubject(t, configMaps).residing(r)
		s.config.ContentType = runtime.ContentTypeJSON
		s.store()
		s.change()
		proxy{body: strippingBookmarks}.stand(t, s, plane.API)
		stop := s.keepChanging(newSeed(t))
		before := s.mark()
		c := s.start()
		c.wantNotBefore(before, c.waitSynced())
		stop()
		c.waitCurrent()
		c.wantLists(0)
		c.terminate()
	})
}

// The end of a streamed list does not get through, or not for minutes.
func TestProxy_HoldsBackTheEndOfAList_ListsInPages(t *testing.T) {
	for name, p := range map[string]proxy{"buffers": {body: buffering}, "strips bookmarks": {body: strippingBookmarks}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSubject(t, configMaps)
			s.config.ContentType = runtime.ContentTypeJSON
			s.create("", names("object", 50)...)
			p.stand(t, s, plane.API)
			c := s.start()
			c.wantCurrent(c.waitSynced())
			c.wantLists(2) // the streamed one, and that in pages
			c.terminate()
		})
	}
}

// Load balancers end what they take for idle.
func TestProxy_CutsEveryRequest_WatchesAgainWithoutLists(t *testing.T) {
	for name, http1 := range map[string]bool{"http1": true, "http2": false} {
		t.Run(name, func(t *testing.T) {
			s := newSubject(t, configMaps)
			c := wantResumedBehind(t, proxy{http1: http1, cutsAfter: 1500 * time.Millisecond}, s)
			c.eventually("many watches have been cut", func() error {
				if now := c.requests("configmaps"); now.Watches < 8 {
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
