package apitest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// Options configure a Server. The zero value is a server that behaves like
// kube-apiserver in its default configuration, over plain HTTP.
type Options struct {
	// TLS serves HTTPS with HTTP/2 and a certificate of its own, which
	// RESTConfig trusts.
	TLS bool
	// InMemory serves on a network of pipes instead of a loopback port, for
	// tests in a testing/synctest bubble. Only clients made from RESTConfig
	// reach it. It excludes TLS.
	InMemory bool
	// Window is how many changes each resource remembers for watches and exact
	// lists; 10,000 by default. (A real server keeps 100 to 102,400, aiming at
	// 75 seconds.)
	Window int
	// NoWatchList refuses sendInitialEvents with 422, like a server without the
	// WatchList feature.
	NoWatchList bool
	// BookmarkInterval is the time between bookmarks of a watch; one minute by
	// default.
	BookmarkInterval time.Duration
	// BookmarkLead is how long before its deadline a watch gets a bookmark; two
	// seconds by default. A real server is up to one second early or late.
	BookmarkLead time.Duration
	// FreshTimeout is how long a request for a version in the future waits
	// before it fails with "Too large resource version"; three seconds by
	// default.
	FreshTimeout time.Duration
	// CustomResources are served besides the resources of client-go's clientset.
	CustomResources []CustomResource
	// Aggregated are resources whose servers are others than kube-apiserver.
	Aggregated map[schema.GroupVersionResource]Aggregated
	// Clock drives timeouts, bookmarks, delays and creation timestamps; real
	// time by default.
	Clock clock.WithTicker
}

func (o Options) withDefaults() Options {
	if o.Window <= 0 {
		o.Window = 10_000
	}
	if o.BookmarkInterval <= 0 {
		o.BookmarkInterval = time.Minute
	}
	if o.BookmarkLead <= 0 {
		o.BookmarkLead = 2 * time.Second
	}
	if o.FreshTimeout <= 0 {
		o.FreshTimeout = 3 * time.Second
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}

// Server is an API server in this process. All methods are safe for concurrent
// use.
type Server struct {
	opts    Options
	storage *storage
	log     *requestLog
	faults  *faultSet
	network network
	tls     *tls.Config
	caPEM   []byte

	mu struct {
		sync.Mutex
		http    *http.Server // nil while down
		serving sync.WaitGroup
	}
	// handlers lets Down and Close wait for the last request.
	handlers *gate
}

// New starts a server. The caller must Close it.
func New(opts Options) (*Server, error) {
	if opts.InMemory && opts.TLS {
		return nil, errors.New("apitest: InMemory and TLS exclude each other")
	}
	opts = opts.withDefaults()
	s := &Server{
		opts:    opts,
		storage: newStorage(opts.Window),
		log:     newRequestLog(opts.Clock),
		faults:  newFaultSet(),
		network: &tcp{addr: "127.0.0.1:0"},

		handlers: newGate(),
	}
	if opts.InMemory {
		s.network = &pipes{}
	}
	for _, c := range opts.CustomResources {
		s.Serve(c)
	}
	for gvr, a := range opts.Aggregated {
		if !s.storage.aggregate(gvr, a) {
			return nil, fmt.Errorf("apitest: %s is not served", gvr)
		}
	}
	if err := s.createSystemNamespaces(); err != nil {
		return nil, err
	}
	if opts.TLS {
		var err error
		if s.tls, s.caPEM, err = selfSigned(); err != nil {
			return nil, fmt.Errorf("apitest: make a certificate: %w", err)
		}
	}
	if err := s.Up(); err != nil {
		return nil, err
	}
	return s, nil
}

// createSystemNamespaces makes what exists in every cluster. Clients tell clusters
// apart by the UID of kube-system. (No namespace has to exist for objects to be
// created in it.)
func (s *Server) createSystemNamespaces() error {
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic} {
		ns := &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}},
			Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		}
		if err := s.Create(ns); err != nil {
			return fmt.Errorf("apitest: create namespace %s: %w", name, err)
		}
	}
	return nil
}

// Serve adds a custom resource. Its collection starts empty at the current
// resourceVersion; calling it again for the same resource empties it.
func (s *Server) Serve(c CustomResource) { s.storage.add(c.resource()) }

// URL is the address of the server, the same for its whole life.
func (s *Server) URL() string {
	if s.tls != nil {
		return "https://" + s.network.address()
	}
	return "http://" + s.network.address()
}

// RESTConfig returns a new configuration for clients of this server, without
// client-side rate limits. Set ContentType and AcceptContentTypes for protobuf.
func (s *Server) RESTConfig() *rest.Config {
	return &rest.Config{
		Host:            s.URL(),
		QPS:             -1,
		Dial:            s.network.dial(),
		TLSClientConfig: rest.TLSClientConfig{CAData: s.caPEM},
	}
}

// Up makes the server reachable again after Down, at the same address and with
// the same objects. It does nothing if the server is up.
func (s *Server) Up() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.http != nil {
		return nil
	}
	listener, err := s.network.listen()
	if err != nil {
		return fmt.Errorf("apitest: listen: %w", err)
	}
	server := &http.Server{Handler: s, TLSConfig: s.tls}
	s.mu.http = server
	s.handlers.open()
	s.mu.serving.Go(func() {
		// Both return ErrServerClosed, after Down.
		if s.tls != nil {
			_ = server.ServeTLS(listener, "", "")
		} else {
			_ = server.Serve(listener)
		}
	})
	return nil
}

// Down refuses new connections and cuts the open ones, then waits until no
// request is being answered. Objects and history stay. It does nothing if the
// server is down.
func (s *Server) Down() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.http == nil {
		return nil
	}
	err := s.mu.http.Close()
	s.mu.http = nil
	s.mu.serving.Wait()
	s.handlers.close()
	return err
}

// Close ends the server. Further calls do nothing.
func (s *Server) Close() error { return s.Down() }

// sleep waits for d, or until the request is gone or something happens on wake,
// which may be nil.
func (s *Server) sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	if d <= 0 {
		return
	}
	timer := s.opts.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-wake:
	case <-ctx.Done():
	}
}
