package controlplane

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
)

// helperServer is a Server whose process is this test binary, listening on the
// address that addr makes of the port.
func helperServer(t *testing.T, addr func(port int) string) *Server {
	t.Helper()
	t.Setenv(helperEnv, "listen")
	s := &Server{
		name:   "helper",
		binary: os.Args[0],
		dir:    t.TempDir(),
		args:   func(port int) []string { return []string{addr(port)} },
		ready: func(ctx context.Context, port int) error {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", hostPort(port))
			if err != nil {
				return err
			}
			return conn.Close()
		},
	}
	t.Cleanup(s.Kill)
	return s
}

func TestServer_StartFirst_TakesAnotherPortWhenItsPortIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	var ports []int
	s := helperServer(t, func(port int) string {
		ports = append(ports, port)
		if len(ports) == 1 {
			return taken.Addr().String()
		}
		return hostPort(port)
	})
	if err := s.startFirst(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(ports) != 2 || s.Port() != ports[1] {
		t.Errorf("tried ports %v, is on %d; want the second of two", ports, s.Port())
	}
}

func TestServer_Start_SaysWhyTheServerEnded(t *testing.T) {
	s := helperServer(t, func(int) string { return "not-an-address" })
	err := s.startFirst(t.Context())
	if err == nil || !strings.Contains(err.Error(), "missing port in address") {
		t.Errorf("got %v, want what the server printed", err)
	}
	if pid := s.PID(); pid != 0 {
		t.Errorf("pid %d still runs", pid)
	}
}

func TestServer_Start_LeavesNoProcessWhenTheContextEnds(t *testing.T) {
	s := helperServer(t, hostPort)
	ctx, cancel := context.WithCancel(t.Context())
	pid := 0
	s.ready = func(context.Context, int) error {
		pid = s.PID()
		cancel()
		return errors.New("never ready")
	}
	if err := s.startFirst(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want it to wrap %v", err, context.Canceled)
	}
	if pid == 0 || !gone(pid) {
		t.Errorf("process %d was left running", pid)
	}
}

func TestServer_Start_RefusesASecondTime(t *testing.T) {
	s := helperServer(t, hostPort)
	if err := s.startFirst(t.Context()); err != nil {
		t.Fatal(err)
	}
	pid := s.PID()
	if err := s.Start(t.Context()); err == nil {
		t.Error("a second Start of a running server succeeded")
	}
	if s.PID() != pid {
		t.Errorf("pid is %d, was %d", s.PID(), pid)
	}
}

func TestServer_StopBeforeStartDoesNothing(t *testing.T) {
	s := helperServer(t, hostPort)
	s.Stop()
	s.Kill()
	if s.PID() != 0 {
		t.Errorf("pid %d of a server never started", s.PID())
	}
}
