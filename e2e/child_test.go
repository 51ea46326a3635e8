package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/warmcache/warmcache/store/bolt/bolttest"
)

// child is one process, seen from outside.
type child struct {
	subject *subject
	// agent is the user agent of its requests.
	agent string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	log   bytes.Buffer
	// views have what the handlers of this process have been told, by resource.
	views map[string]*view

	synced    chan *snapshot
	snapshots chan *snapshot
	// done is closed when the process has ended and everything it said is read.
	// Then err is what was wrong with it, and stopped, if not nil, says that it
	// ended gracefully.
	done    chan struct{}
	stopped *stopped
	err     error
}

func (c *child) launch() error {
	config := c.subject.config
	config.UserAgent = c.agent
	encoded, err := json.Marshal(config)
	if err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	c.cmd = exec.Command(executable)
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(encoded))
	c.cmd.Stderr = &c.log
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.cmd.Start(); err != nil {
		return err
	}
	go c.listen(out)
	return nil
}

// listen takes in what the process says until it ends. A process that is killed
// may leave half a message behind.
func (c *child) listen(out io.Reader) {
	defer close(c.done)
	decoder := json.NewDecoder(out)
	for {
		var m message
		if err := decoder.Decode(&m); err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				c.err = err
			}
			break
		}
		c.hear(m)
	}
	c.err = errors.Join(c.err, c.cmd.Wait())
}

func (c *child) hear(m message) {
	switch {
	case m.Event != nil:
		c.views[m.Event.Resource].observe(*m.Event)
		c.subject.knowledge[m.Event.Resource].observe(*m.Event)
	case m.Synced != nil:
		c.synced <- m.Synced
	case m.Snapshot != nil:
		c.snapshots <- m.Snapshot
	case m.Stopped != nil:
		c.stopped = m.Stopped
	}
}

// waitSynced waits until all informers and their handlers have synced and returns
// what the process saw at that moment.
func (c *child) waitSynced() *snapshot {
	t := c.subject.t
	t.Helper()
	select {
	case s := <-c.synced:
		log := c.subject.auditEvents()
		for resource, contents := range s.Informers {
			t.Logf("%s: %s synced after %.2f s: %s; %s", c.agent, resource, s.SinceStart.Seconds(),
				c.requestsIn(log, resource), contents.Status.ListReason)
		}
		c.wantResidency(s)
		return s
	case <-c.done:
		t.Fatalf("the process has ended: %v", c.err)
	case <-patiently(t).Done():
		t.Fatalf("not synced; status: %+v", c.look())
	}
	return nil
}

// hasSynced reports whether the process has said so.
func (c *child) hasSynced() bool { return len(c.synced) > 0 }

// look returns what the process sees now.
func (c *child) look() *snapshot {
	t := c.subject.t
	t.Helper()
	if _, err := io.WriteString(c.stdin, "look\n"); err != nil {
		t.Fatalf("asking the process: %v", err)
	}
	select {
	case s := <-c.snapshots:
		return s
	case <-c.done:
		t.Fatalf("the process has ended: %v", c.err)
	case <-patiently(t).Done():
		t.Fatal("the process does not answer")
	}
	return nil
}

// waitUntil waits until the contents of each informer are as condition wants them.
func (c *child) waitUntil(what string, condition func(contents) error) {
	t := c.subject.t
	t.Helper()
	c.eventually(what, func() error {
		for resource, contents := range c.look().Informers {
			if err := condition(contents); err != nil {
				return fmt.Errorf("%s: %w; status: %+v", resource, err, contents.Status)
			}
		}
		return nil
	})
}

func (c *child) eventually(what string, check func() error) {
	t := c.subject.t
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("waiting until %s: %v: %v", what, err, last)
	}
}

// waitPersisted waits until everything the informers hold is on disk.
func (c *child) waitPersisted() {
	c.subject.t.Helper()
	c.waitUntil("everything is on disk", func(now contents) error {
		if now.Status.PersistedRV != now.Status.RV {
			return errors.New("not on disk")
		}
		return nil
	})
}

// kill ends the process as a crash would.
func (c *child) kill() {
	c.subject.t.Helper()
	c.end(func() error { return c.cmd.Process.Kill() })
}

// terminate asks the process to end, as a kubelet does.
func (c *child) terminate() {
	c.subject.t.Helper()
	c.end(func() error { return c.cmd.Process.Signal(syscall.SIGTERM) })
	switch {
	case c.stopped == nil || c.err != nil:
		c.subject.t.Errorf("%s: did not stop gracefully: %v", c.agent, c.err)
	case c.stopped.Leaked != "":
		c.subject.t.Errorf("%s: leaked goroutines: %s", c.agent, c.stopped.Leaked)
	}
}

// end ends the process and verifies what it leaves behind.
func (c *child) end(how func() error) {
	t := c.subject.t
	t.Helper()
	if err := how(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.done:
	case <-time.After(patience):
		t.Fatalf("%s: does not end", c.agent)
	}
	for resource, view := range c.views {
		_, problems := view.delivered()
		for _, problem := range problems {
			t.Errorf("%s: handler of %s: %s", c.agent, resource, problem)
		}
	}
	bolttest.CheckFile(t, c.subject.config.Path)
}

// cleanUp ends a process that the test has left running and shows what a process
// of a failed test has logged.
func (c *child) cleanUp() {
	select {
	case <-c.done:
	default:
		if !c.subject.t.Failed() {
			c.terminate()
		}
		_ = c.cmd.Process.Kill() // Fails if it has ended.
		<-c.done
	}
	if c.subject.t.Failed() {
		c.subject.t.Logf("log of %s:\n%s", c.agent, &c.log)
	}
}
