package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// readyTimeout bounds a start, on a machine that is busy with other tests.
	readyTimeout = 2 * time.Minute
	// stopTimeout is how long a server may take to end by itself.
	stopTimeout = 15 * time.Second
	// portAttempts is how often a first start that lost its port tries others.
	portAttempts = 5
)

// errPortTaken means that the server could not listen on its port.
var errPortTaken = errors.New("port is in use")

// Server is one server process, which can be stopped and started again with the
// same port and the same data.
type Server struct {
	name   string
	binary string
	dir    string
	// args are the command line for a port, before the extra arguments.
	args func(port int) []string
	// ready returns nil when the server on port is ours and serves.
	ready func(ctx context.Context, port int) error

	mu struct {
		sync.Mutex
		port  int
		extra []string
		proc  *process
	}
}

// startFirst chooses a port and starts the server, again with another port if
// somebody else took the chosen one in between.
func (s *Server) startFirst(ctx context.Context) error {
	var err error
	for range portAttempts {
		var port int
		if port, err = freePort(); err != nil {
			return err
		}
		s.mu.Lock()
		s.mu.port = port
		s.mu.Unlock()
		if err = s.Start(ctx); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

// Start starts the server and waits until it is ready. It returns an error,
// with the end of the server's log, if the server is already running, ends, or
// is not ready within two minutes or when ctx ends; then it is not running.
func (s *Server) Start(ctx context.Context) error {
	proc, err := s.launch()
	if err != nil {
		return err
	}
	if err := s.waitReady(ctx, proc); err != nil {
		proc.signal(syscall.SIGKILL)
		<-proc.done
		return err
	}
	return nil
}

func (s *Server) launch() (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.proc != nil && s.mu.proc.running() {
		return nil, fmt.Errorf("%s is already running", s.name)
	}
	log, err := os.OpenFile(s.LogPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", s.name, err)
	}
	defer log.Close() // The process has its own descriptor.
	proc, err := startProcess(s.binary, slices.Concat(s.args(s.mu.port), s.mu.extra), log)
	if err != nil {
		return nil, err
	}
	s.mu.proc = proc
	return proc, nil
}

// waitReady waits until proc serves. Readiness alone does not show that: on a
// lost port somebody else's server may answer while ours is about to end.
// Hence ready checks who answers, and proc must still be there afterwards.
func (s *Server) waitReady(ctx context.Context, proc *process) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := s.ready(ctx, s.Port())
		if err == nil && proc.running() {
			return nil
		}
		select {
		case <-proc.done:
			return s.exitError(proc)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready (%w): %w; the end of its log:\n%s", s.name, err, ctx.Err(), s.logTail(proc))
		case <-ticker.C:
		}
	}
}

func (s *Server) exitError(proc *process) error {
	tail := s.logTail(proc)
	if strings.Contains(tail, "address already in use") {
		return fmt.Errorf("%s: %w: %d", s.name, errPortTaken, s.Port())
	}
	return fmt.Errorf("%s ended before it was ready (%w); the end of its log:\n%s", s.name, proc.err, tail)
}

// logTail returns the last lines that proc has printed.
func (s *Server) logTail(proc *process) string {
	log, err := os.ReadFile(s.LogPath())
	if err != nil {
		return err.Error()
	}
	return lastLines(string(log[proc.logStart:]), 20)
}

// Stop asks the server to end and kills it if it has not ended after 15
// seconds. It does nothing if the server is not running.
func (s *Server) Stop() {
	proc := s.process()
	if proc == nil {
		return
	}
	proc.signal(syscall.SIGTERM)
	select {
	case <-proc.done:
	case <-time.After(stopTimeout):
		s.Kill()
	}
}

// Kill ends the server with SIGKILL, as a crash would, and waits until it is
// gone. It does nothing if the server is not running.
func (s *Server) Kill() {
	proc := s.process()
	if proc == nil {
		return
	}
	proc.signal(syscall.SIGKILL)
	<-proc.done
}

// Restart stops the server and starts it again.
func (s *Server) Restart(ctx context.Context) error {
	s.Stop()
	return s.Start(ctx)
}

// SetArgs replaces the extra command line arguments from the next start on.
func (s *Server) SetArgs(extra ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.extra = slices.Clone(extra)
}

// Port returns the port on 127.0.0.1, the same for the whole life of the server.
func (s *Server) Port() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.port
}

// PID returns the id of the running process, or 0.
func (s *Server) PID() int {
	if proc := s.process(); proc != nil && proc.running() {
		return proc.cmd.Process.Pid
	}
	return 0
}

// LogPath returns the file that holds what the server printed, over all starts.
func (s *Server) LogPath() string {
	return filepath.Join(s.dir, s.name+".log")
}

func (s *Server) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.proc
}
