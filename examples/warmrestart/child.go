package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"time"

	"k8s.io/klog/v2"

	"github.com/warmcache/warmcache/internal/meter"
)

const (
	// childEnv holds the childSpec of a process that runs an informer.
	childEnv = "WARMRESTART_CHILD"
	// heapInterval is how often the heap is looked at.
	heapInterval = 5 * time.Millisecond
)

// childSpec is what a child is to do.
type childSpec struct {
	// Host or Kubeconfig say where the server is.
	Host       string `json:"host,omitempty"`
	Kubeconfig string `json:"kubeconfig,omitempty"`
	Namespace  string `json:"namespace"`
	// File is where our informer persists; empty means client-go's informer.
	File string `json:"file,omitempty"`
	// Resumed selects the start policy.
	Resumed bool `json:"resumed,omitempty"`
	// Verbosity is klog's.
	Verbosity int `json:"verbosity,omitempty"`
	// Started is when the parent started the process.
	Started time.Time `json:"started"`
}

// childReport is the only thing a child says, once it has nothing left to do:
// its handler and its cache agree, everything is proven to be current, and
// durable.
type childReport struct {
	measured
	// Outcome is outcomeResumed, or why the collection was listed.
	Outcome string `json:"outcome,omitempty"`
	// PersistedRV is the version that the next process would resume from.
	PersistedRV string `json:"persistedRV,omitempty"`
	// Known is what the handler was told, Cached what the indexer holds.
	Known  state `json:"known"`
	Cached state `json:"cached"`
	// Deleted is what the handler was told the end of, in order.
	Deleted []instance `json:"deleted"`
	// Error says why there is nothing else in the report.
	Error string `json:"error,omitempty"`
}

// asChild reports whether this process is to run an informer.
func asChild() bool { return os.Getenv(childEnv) != "" }

// childMain runs an informer, reports, and goes on until stdin ends: the parent
// kills it, or has died itself.
func childMain(stdin io.Reader, stdout io.Writer) int {
	// Ctrl-C reaches all processes of a terminal. The parent deals with it.
	signal.Ignore(os.Interrupt)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	}()
	err := runChild(ctx, func(r *childReport) error { return json.NewEncoder(stdout).Encode(r) })
	if err != nil && ctx.Err() == nil {
		_ = json.NewEncoder(stdout).Encode(&childReport{Error: oneLine(err)})
		return exitFailed
	}
	return exitOK
}

// runChild calls send at most once, and does not return before ctx ends unless
// something fails.
func runChild(ctx context.Context, send func(*childReport) error) error {
	peakHeap := meter.WatchHeap(heapInterval)
	var spec childSpec
	if err := json.Unmarshal([]byte(os.Getenv(childEnv)), &spec); err != nil {
		return fmt.Errorf("%s: %w", childEnv, err)
	}
	setVerbosity(spec.Verbosity)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, stop, err := newSubject(ctx, &spec)
	if err != nil {
		return err
	}
	defer func() {
		cancel()
		stop()
	}()
	if err := s.sync(ctx); err != nil {
		return err
	}
	seconds := time.Since(spec.Started).Seconds()
	if !spec.Resumed {
		// What comes later has been missed: in sync means up to date, except
		// under the policy that says otherwise.
		s.recorder.freeze()
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	peak := peakHeap() // before the report adds to it
	result := s.report()
	result.Seconds, result.PeakHeapBytes = seconds, peak
	if err := send(result); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// setVerbosity makes the informers of this process log more.
func setVerbosity(level int) {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(flags)
	_ = flags.Set("v", strconv.Itoa(level)) // cannot fail for a number
}
