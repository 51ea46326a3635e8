package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// childLimit is how long a child may take. It is meant for servers that stop
// answering.
const childLimit = 10 * time.Minute

// processRunner is runProcess, except in tests that tamper with its result.
type processRunner func(ctx context.Context, spec childSpec, stderr io.Writer) (*childReport, error)

// runProcess runs a child until it has reported, and kills it: as far as the
// child can tell, at any moment.
func runProcess(ctx context.Context, spec childSpec, stderr io.Writer) (*childReport, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, childLimit, fmt.Errorf("no result within %s", childLimit))
	defer cancel()
	cmd, stdout, err := startProcess(ctx, spec, stderr)
	if err != nil {
		return nil, err
	}
	var report childReport
	decodeErr := json.NewDecoder(stdout).Decode(&report)
	// Kill sends SIGKILL. An error means that the process has ended itself.
	_ = cmd.Process.Kill()
	waitErr := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case decodeErr != nil:
		return nil, fmt.Errorf("the process ended early: %w", errors.Join(waitErr, decodeErr))
	case report.Error != "":
		return nil, errors.New(report.Error)
	}
	return &report, nil
}

// startProcess starts this program once more, as a child. It is killed when ctx
// ends, and ends itself if this process does.
func startProcess(ctx context.Context, spec childSpec, stderr io.Writer) (*exec.Cmd, io.Reader, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Stderr = stderr // log lines; everything else is in the report
	// The child ends when this pipe does; nothing is written to it.
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	spec.Started = time.Now()
	encoded, err := json.Marshal(spec)
	if err != nil {
		return nil, nil, err
	}
	cmd.Env = append(os.Environ(), childEnv+"="+string(encoded))
	return cmd, stdout, cmd.Start()
}
