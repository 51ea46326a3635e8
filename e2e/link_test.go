package e2e

import (
	"io"
	"net"
	"sync"
	"testing"
)

// link is a network between a process and an API server that can be cut. The API
// server forgets nothing meanwhile, as it would if it were restarted.
type link struct {
	listener net.Listener
	target   string
	// running counts goroutines.
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		cut   bool
		conns map[net.Conn]bool
	}
}

// newLink makes the processes of a subject talk to their API server through a
// link.
func newLink(t *testing.T, s *subject) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, target: s.config.Host[len("https://"):]}
	l.mu.conns = map[net.Conn]bool{}
	l.running.Go(l.accept)
	t.Cleanup(func() {
		listener.Close()
		l.cut()
		l.running.Wait()
	})
	s.config.Host = "https://" + listener.Addr().String()
	return l
}

func (l *link) accept() {
	for {
		conn, err := l.listener.Accept()
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
	return !l.mu.cut
}

func (l *link) forget(conn net.Conn) {
	conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.conns, conn)
}

// cut breaks all connections, and new ones as soon as they are made.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.cut = true
	for conn := range l.mu.conns {
		conn.Close()
	}
}

func (l *link) restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.cut = false
}
