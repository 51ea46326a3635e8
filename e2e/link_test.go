package e2e

import (
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmcache/warmcache/e2e/controlplane"
)

// link is a network between processes and a server, or several of which each
// connection gets one. It can be as bad as networks are. The servers forget nothing
// meanwhile, as they would if they were restarted.
type link struct {
	address string
	// running counts goroutines.
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		// listener is nil while the link is cut: connections are refused.
		listener net.Listener
		open     map[*connection]bool
		targets  []string
		random   *rand.Rand
		quality  quality
	}
}

// quality is how well a link carries bytes, in each direction. The zero value is a
// link that is perfect.
type quality struct {
	// latency is how long they are under way.
	latency time.Duration
	// bandwidth is how many of them a connection carries in a second; 0 is without
	// limit.
	bandwidth int
}

// takes is how long it takes to send n bytes.
func (q quality) takes(n int) time.Duration {
	if q.bandwidth == 0 {
		return 0
	}
	return time.Duration(n) * time.Second / time.Duration(q.bandwidth)
}

// newLink makes the processes of a subject talk to their API server through a
// link.
func newLink(t *testing.T, s *subject) *link {
	t.Helper()
	l := linkTo(t, strings.TrimPrefix(s.config.Host, "https://"))
	s.config.Host = "https://" + l.address
	return l
}

// linkTo returns a link to the server at an address.
func linkTo(t *testing.T, target string) *link {
	t.Helper()
	l := &link{address: "127.0.0.1:0"}
	l.mu.open = map[*connection]bool{}
	l.mu.targets, l.mu.random = []string{target}, rand.New(rand.NewPCG(0, 0))
	l.restore(t)
	t.Cleanup(func() {
		l.cut()
		l.running.Wait()
	})
	return l
}

// balance gives each new connection one of several API servers at random, as a load
// balancer does.
func (l *link) balance(seed uint64, apis ...*controlplane.APIServer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.random = rand.New(rand.NewPCG(seed, 0))
	l.mu.targets = nil
	for _, api := range apis {
		l.mu.targets = append(l.mu.targets, strings.TrimPrefix(api.Config().Host, "https://"))
	}
}

// set changes the quality of the link for what is sent from now on.
func (l *link) set(q quality) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.quality = q
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
	for c := range l.mu.open {
		c.end()
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

// reset resets all connections. New ones can be made.
func (l *link) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.mu.open {
		c.reset()
	}
}

// stall makes all connections half-open: what is sent is lost, and nobody is told.
// New ones can be made, and work.
func (l *link) stall() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.mu.open {
		c.stalled.Store(true)
	}
}

// connections returns how many connections are open.
func (l *link) connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.open)
}

func (l *link) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		l.running.Go(func() { l.forward(client) })
	}
}

// forward carries bytes in both directions until either side ends or the link is
// cut. If the server is not there, the client's connection is closed.
func (l *link) forward(client net.Conn) {
	server, err := net.Dial("tcp", l.target())
	if err != nil {
		client.Close()
		return
	}
	c := &connection{client: client, server: server, ended: make(chan struct{})}
	defer c.end()
	if !l.remember(c) {
		return
	}
	defer l.forget(c)
	var both sync.WaitGroup
	both.Go(func() { l.carry(c, server, client) })
	both.Go(func() { l.carry(c, client, server) })
	both.Wait()
}

func (l *link) target() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.targets[l.mu.random.IntN(len(l.mu.targets))]
}

// remember returns false if the link is cut.
func (l *link) remember(c *connection) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.open[c] = true
	return l.mu.listener != nil
}

func (l *link) forget(c *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.open, c)
}

func (l *link) now() quality {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.quality
}

// connection is one connection of a client, and the one to the server that belongs
// to it.
type connection struct {
	client, server net.Conn
	stalled        atomic.Bool
	once           sync.Once
	ended          chan struct{}
}

func (c *connection) end() {
	c.once.Do(func() {
		close(c.ended)
		c.client.Close()
		c.server.Close()
	})
}

// reset ends the connection so that what is under way is lost, too.
func (c *connection) reset() {
	for _, conn := range []net.Conn{c.client, c.server} {
		_ = conn.(*net.TCPConn).SetLinger(0) // Fails if it has ended.
	}
	c.end()
}

// parcel is what was read at once, and when.
type parcel struct {
	bytes []byte
	sent  time.Time
}

// carry carries bytes in one direction until either side ends. They are sent in
// small parcels, so that a slow link is slow for everybody.
func (l *link) carry(c *connection, to io.Writer, from io.Reader) {
	defer c.end()
	// This is what the link holds at most.
	underway := make(chan parcel, 256)
	l.running.Go(func() { c.collect(from, underway) })
	var free time.Time
	for p := range underway {
		q := l.now()
		due := p.sent.Add(q.latency)
		if due.Before(free) {
			due = free
		}
		free = due.Add(q.takes(len(p.bytes)))
		if !c.waitUntil(free) {
			return
		}
		if c.stalled.Load() {
			continue
		}
		if _, err := to.Write(p.bytes); err != nil {
			return
		}
	}
}

// collect reads parcels until the connection ends.
func (c *connection) collect(from io.Reader, underway chan<- parcel) {
	defer close(underway)
	for {
		p := parcel{bytes: make([]byte, 4096)}
		n, err := from.Read(p.bytes)
		p.bytes, p.sent = p.bytes[:n], time.Now()
		select {
		case underway <- p:
		case <-c.ended:
			return
		}
		if err != nil {
			return
		}
	}
}

// waitUntil returns false if the connection ends before.
func (c *connection) waitUntil(at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.ended:
		return false
	}
}
