package controlplane

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports come from below the range that Linux and macOS give to outgoing
// connections. A port inside it could be taken by any client while its server
// is stopped, and the server must come back on the same one.
const (
	firstPort = 20000
	lastPort  = 32000
)

// freePort returns a port of 127.0.0.1 that nobody listened on a moment ago.
// The caller must be ready to lose the race for it.
func freePort() (int, error) {
	var err error
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		var listener net.Listener
		if listener, err = net.Listen("tcp", hostPort(port)); err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("no free port between %d and %d: %w", firstPort, lastPort, err)
}

func hostPort(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
