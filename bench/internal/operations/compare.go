package operations

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"

	"github.com/warmcache/warmcache/bench/internal/report"
)

const (
	// repetitions of a benchmark, of which the fastest counts: what else the machine
	// does makes it slower, nothing makes it faster.
	repetitions = 15
	// benchtime of each, in the form of go test -benchtime. Many short ones, in turn,
	// meet the same disturbances.
	benchtime = "200ms"
)

// Compare runs an operation and what it is compared with, in turn. It sets the flag
// test.benchtime.
func Compare(ctx context.Context, o Operation) (report.Benchmark, error) {
	if err := setBenchtime(cmp.Or(o.benchtime, benchtime)); err != nil {
		return report.Benchmark{}, err
	}
	result := report.Benchmark{Operation: o.Name, Subject: o.Subject, Against: o.Against, Limit: o.Limit}
	for range repetitions {
		if ctx.Err() != nil {
			return result, context.Cause(ctx)
		}
		measured, err := measure(o.Run)
		if err != nil {
			return result, fmt.Errorf("%s, %s: %w", o.Name, o.Subject, err)
		}
		result.Nanos = fastest(result.Nanos, nanos(measured))
		result.Allocs = float64(measured.AllocsPerOp())
		if o.Baseline == nil {
			continue
		}
		baseline, err := measure(o.Baseline)
		if err != nil {
			return result, fmt.Errorf("%s, %s: %w", o.Name, o.Against, err)
		}
		result.AgainstNanos = fastest(result.AgainstNanos, float64(o.Times)*nanos(baseline))
	}
	return result, nil
}

// setBenchtime reaches testing.Benchmark, which has no parameter for it.
func setBenchtime(s string) error {
	testing.Init()
	return flag.Set("test.benchtime", s)
}

// fastest takes 0 for none so far.
func fastest(soFar, next float64) float64 {
	if soFar == 0 {
		return next
	}
	return min(soFar, next)
}

func nanos(r testing.BenchmarkResult) float64 { return float64(r.T.Nanoseconds()) / float64(r.N) }

// errFailed stands for what a benchmark has logged.
var errFailed = errors.New("the benchmark has failed; go test -bench . ./internal/operations says why")

// measure runs a benchmark outside of go test, where one that fails has no result.
func measure(run func(*testing.B)) (testing.BenchmarkResult, error) {
	r := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		run(b)
	})
	if r.N == 0 {
		return r, errFailed
	}
	return r, nil
}
