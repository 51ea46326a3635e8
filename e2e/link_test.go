package e2e

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// link is a network between a process and an API server that can be cut. The API
// server forgets nothing meanwhile, as it would if it were restarted.
type link struct {
	address, target string
	// running counts goroutines.
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		// listener is nil while the link is cut: connections are refused.
		listener net.Listener
		conns    map[net.Conn]bool
	}
}

// newLink makes the processes of a subject talk to their API server through a
// link.
func newLink(t *testing.T, s *subject) *link {
	t.Helper()
	l := &link{address: "127.0.0.1:0", target: strings.TrimPrefix(s.config.Host, "https://")}
	l.mu.conns = map[net.Conn]bool{}
	l.restore(t)
	t.Cleanup(func() {
		l.cut()
		l.running.Wait()
	})
	s.config.Host = "https://" + l.address
	return l
}

// cut breaks all connections and refuses new ones.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.listener == nil {
		return
	}
	l.mu.listener.Close()
	l.mu.listener = nil
	for conn := range l.mu.conns {
		conn.Close()
	}
}

// restore makes the link work again, at the same address.
func (l *link) restore(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", l.address)
	if err != nil {
		t.Fatal(err)
	}
	l.address = listener.Addr().String()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.listener = listener
	l.running.Go(func() { l.accept(listener) })
}

func (l *link) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		l.running.Go(func() { l.forward(conn) })
	}
}

// forward carries bytes in both directions until either side ends or the link is
// cut.
func (l *link) forward(client net.Conn) {
	defer l.forget(client)
	if !l.remember(client) {
		return
	}
	server, err := net.Dial("tcp", l.target)
	if err != nil {
		return
	}
	defer l.forget(server)
	if !l.remember(server) {
		return
	}
	l.running.Go(func() {
		defer client.Close()
		_, _ = io.Copy(client, server) // An error means that one of them is gone.
	})
	_, _ = io.Copy(server, client)
}

// remember returns false if the link is cut.
func (l *link) remember(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.conns[conn] = true
	return l.mu.listener != nil
}

func (l *link) forget(conn net.Conn) {
	conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.conns, conn)
}
