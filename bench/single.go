package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/warmcache/warmcache/bench/internal/operations"
	"github.com/warmcache/warmcache/bench/internal/policy"
	"github.com/warmcache/warmcache/bench/internal/report"
)

// operations compares single reads.
func (b *bench) operations(ctx context.Context) error {
	dir := filepath.Join(b.dir, suiteOperations)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	b.log.step("writing a file with %d pods", operations.DefaultSizes.Many)
	f, err := operations.New(dir, operations.DefaultSizes)
	if err != nil {
		return err
	}
	err = b.compare(ctx, f)
	return errors.Join(err, f.Close(), os.RemoveAll(dir))
}

func (b *bench) compare(ctx context.Context, f *operations.Fixture) error {
	for _, o := range f.Operations() {
		b.log.step("%s, %s", o.Name, o.Subject)
		result, err := operations.Compare(ctx, o)
		if err != nil {
			return err
		}
		b.result.Benchmarks = append(b.result.Benchmarks, result)
	}
	return nil
}

// What the caches are compared with. The default budget has room for some 2,500 pods
// of 5 KB, which is how many decoded.
const (
	cachedObjects = 100_000
	cacheReads    = 1_000_000
	cacheSeed     = 1
)

var cacheCapacities = []int{2_500, 25_000}

// caches compares policies.
func (b *bench) caches(ctx context.Context) error {
	for _, w := range policy.Workloads(cachedObjects, cacheReads, cacheSeed) {
		for _, capacity := range cacheCapacities {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			b.log.step("caches of %d of %d objects: %s", capacity, cachedObjects, w.Name)
			result := report.HitRate{Reads: w.Name, Capacity: capacity, Objects: cachedObjects}
			for _, p := range policy.Policies {
				result.Rates = append(result.Rates, report.Rate{Policy: p.Name, Rate: p.Rate(w.Reads, capacity)})
			}
			b.result.HitRates = append(b.result.HitRates, result)
		}
	}
	return nil
}
