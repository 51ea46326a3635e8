package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/warmcache/warmcache/bench/internal/cluster"
	"github.com/warmcache/warmcache/bench/internal/report"
)

// bench is a run of the program.
type bench struct {
	options options
	log     *progress
	// dir is where files are made, and is removed at the end.
	dir    string
	result *report.Report
}

func newBench(o options, stderr io.Writer) *bench {
	return &bench{
		options: o,
		log:     &progress{out: stderr, start: time.Now()},
		result:  &report.Report{Machine: report.ThisMachine()},
	}
}

// run measures and writes the report, which an error about a missed aim leaves as it
// is.
func (b *bench) run(ctx context.Context, stdout io.Writer) (err error) {
	if b.dir, err = os.MkdirTemp(b.options.dir, "bench-"); err != nil {
		return err
	}
	defer func() {
		if removed := os.RemoveAll(b.dir); err == nil {
			err = removed
		}
	}()
	if b.options.profiles != "" {
		if err := os.MkdirAll(b.options.profiles, 0o700); err != nil {
			return err
		}
	}
	if err := b.measure(ctx); err != nil {
		return err
	}
	b.result.Aims = aims(b.result)
	write := b.result.WriteText
	if b.options.json {
		write = b.result.WriteJSON
	}
	if err := write(stdout); err != nil {
		return err
	}
	if missed := b.result.Missed(); b.options.check && len(missed) > 0 {
		return fmt.Errorf("%d of %d aims are missed", len(missed), len(b.result.Aims))
	}
	return nil
}

// measure runs the suites, those of this process before the servers fill it.
func (b *bench) measure(ctx context.Context) error {
	for _, suite := range []struct {
		name string
		run  func(context.Context) error
	}{
		{suiteOperations, b.operations},
		{suiteCache, b.caches},
		{suitePods, func(ctx context.Context) error {
			return b.suite(ctx, cluster.Real, b.options.pods, realPhases)
		}},
		{suiteSmallPods, func(ctx context.Context) error {
			return b.suite(ctx, cluster.Small, b.options.smallPods, smallPhases)
		}},
	} {
		if !slices.Contains(b.options.suites, suite.name) {
			continue
		}
		if err := suite.run(ctx); err != nil {
			return fmt.Errorf("suite %s: %w", suite.name, err)
		}
	}
	return nil
}
