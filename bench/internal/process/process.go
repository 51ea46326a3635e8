package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/warmcache/warmcache/bench/internal/subject"
)

// Options say how to run a subject.
type Options struct {
	// Paged makes it list in pages, or whole where client-go does, instead of
	// having the list streamed.
	Paged bool
	// Profile is the beginning of the names of profiles of the heap, one for each
	// phase; empty for none.
	Profile string
	// Log gets what the process has to say besides its reports.
	Log io.Writer
}

// Process is a child. Its methods are for one goroutine.
type Process struct {
	ctx     context.Context
	cmd     *exec.Cmd
	stdin   io.Closer
	send    *json.Encoder
	receive *json.Decoder
}

// Start starts this program once more, as a child that is killed when ctx ends.
// The caller must Stop it.
func Start(ctx context.Context, spec subject.Spec, o Options) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Stderr = o.Log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(order{Spec: spec, Started: time.Now(), Profile: o.Profile})
	if err != nil {
		return nil, err
	}
	cmd.Env = append(os.Environ(), childEnv+"="+string(encoded))
	if o.Paged {
		cmd.Env = append(cmd.Env, "KUBE_FEATURE_WatchListClient=false")
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &Process{ctx: ctx, cmd: cmd, stdin: stdin, send: json.NewEncoder(stdin), receive: json.NewDecoder(stdout)}, nil
}

// Sync starts the informer. The report is from the start of the process until it
// has synced.
func (p *Process) Sync(phase string) (Report, error) {
	return p.do(command{Op: opSync, Phase: phase})
}

// Mark begins a measurement that Await ends.
func (p *Process) Mark() error {
	_, err := p.do(command{Op: opMark})
	return err
}

// Await waits until the handler has been told of this many updates since the last
// report. The time begins at since.
func (p *Process) Await(phase string, updates int, since time.Time) (Report, error) {
	return p.do(command{Op: opAwait, Phase: phase, Updates: updates, Since: since})
}

// Query asks the index of nodes for each of them.
func (p *Process) Query(phase string, nodes []string) (Report, error) {
	return p.do(command{Op: opQuery, Phase: phase, Nodes: nodes})
}

func (p *Process) do(c command) (Report, error) {
	var r Report
	// A process that has ended reads nothing, but may have said why.
	err := p.send.Encode(c)
	if received := p.receive.Decode(&r); received != nil {
		err = errors.Join(err, received)
	}
	switch {
	case p.ctx.Err() != nil:
		return r, context.Cause(p.ctx)
	case r.Error != "":
		return r, errors.New(r.Error)
	case err != nil:
		return r, fmt.Errorf("the process has ended early: %w", err)
	}
	return r, nil
}

// Stop lets the process end gracefully, and waits until it has.
func (p *Process) Stop() error {
	_ = p.stdin.Close()
	// What failed while it ended, if anything, is the last report.
	var last Report
	if err := p.receive.Decode(&last); err != nil && !errors.Is(err, io.EOF) {
		last.Error = err.Error()
	}
	err := p.cmd.Wait()
	if last.Error != "" {
		err = errors.Join(errors.New(last.Error), err)
	}
	return err
}
