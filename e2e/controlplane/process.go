package controlplane

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// process is a server process. Neither server has children, so the pid is all
// there is to stop; the process group only keeps a terminal's Ctrl-C away from
// it, so that it outlives the test's own cleanup.
type process struct {
	cmd *exec.Cmd
	// logStart is where its output begins in the log, which it appends to.
	logStart int64
	// done is closed when the process has ended and err is set.
	done chan struct{}
	err  error
}

// startProcess starts a command whose output goes to log.
//
// The kernel sends the parent-death signal when the *thread* that started the
// child ends, and Go ends idle threads as it likes. Therefore the goroutine
// that starts the process keeps its thread until the process has ended.
func startProcess(path string, args []string, log *os.File) (*process, error) {
	p := &process{cmd: exec.Command(path, args...), done: make(chan struct{})}
	if info, err := log.Stat(); err == nil {
		p.logStart = info.Size()
	}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = sysProcAttr()
	started := make(chan error)
	go func() {
		defer close(p.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	return p, nil
}

// signal does nothing if the process has ended.
func (p *process) signal(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig)
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}
