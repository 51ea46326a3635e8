package apitest

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"syscall"

	"k8s.io/client-go/util/cert"
)

// network is where the server can be reached. Its address stays the same when
// the server goes down and comes up again.
type network interface {
	listen() (net.Listener, error)
	address() string
	// dial is nil for the network that clients use by default.
	dial() func(ctx context.Context, network, address string) (net.Conn, error)
}

// tcp is a port of the loopback interface, chosen at the first listen.
type tcp struct{ addr string }

func (t *tcp) listen() (net.Listener, error) {
	l, err := net.Listen("tcp", t.addr)
	if err != nil {
		return nil, err
	}
	t.addr = l.Addr().String()
	return l, nil
}

func (t *tcp) address() string { return t.addr }

func (t *tcp) dial() func(context.Context, string, string) (net.Conn, error) { return nil }

// pipes is a network in memory, whose goroutines block in a way that
// testing/synctest can see.
type pipes struct {
	mu struct {
		sync.Mutex
		listener *pipeListener // nil while nobody listens
	}
}

func (p *pipes) listen() (net.Listener, error) {
	l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.listener = l
	return l, nil
}

func (p *pipes) address() string { return "apitest.invalid:80" }

func (p *pipes) dial() func(context.Context, string, string) (net.Conn, error) { return p.connect }

func (p *pipes) connect(ctx context.Context, _, _ string) (net.Conn, error) {
	refused := &net.OpError{Op: "dial", Net: "pipe", Err: syscall.ECONNREFUSED}
	p.mu.Lock()
	l := p.mu.listener
	p.mu.Unlock()
	if l == nil {
		return nil, refused
	}
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.done:
		return nil, errors.Join(refused, client.Close())
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), client.Close())
	}
}

type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "apitest", Net: "pipe"} }

// selfSigned makes a certificate for the loopback address. Clients trust it
// through the returned PEM.
func selfSigned() (*tls.Config, []byte, error) {
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}, certPEM, nil
}
