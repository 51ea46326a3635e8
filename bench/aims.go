package main

import (
	"github.com/warmcache/warmcache/bench/internal/cluster"
	"github.com/warmcache/warmcache/bench/internal/process"
	"github.com/warmcache/warmcache/bench/internal/report"
	"github.com/warmcache/warmcache/bench/internal/subject"
)

// What disk residency is meant to achieve. With few objects what every process has,
// some megabytes, counts for more than they do, and no aim can be met.
const (
	// maxHeapRatio and maxPeakRatio are of client-go's heap and peak heap.
	maxHeapRatio = 1.0 / 20
	maxPeakRatio = 1.0 / 5
	// maxAnonMB is for a million small pods, whatever client-go has.
	maxAnonMB = 300
	// maxHotNanos is for a Get of what is cached.
	maxHotNanos = 300
)

// aims compares what was measured with what was wanted, as far as it was measured.
func aims(r *report.Report) (all []report.Aim) {
	for _, s := range r.Suites {
		if s.Shape == cluster.Real.Name {
			all = append(all, heapAims(s)...)
		} else {
			all = append(all, anonAims(s)...)
		}
	}
	return append(all, operationAims(r.Benchmarks)...)
}

// operationAims are ratios, but for what there is nothing to compare with.
func operationAims(benchmarks []report.Benchmark) (all []report.Aim) {
	for _, b := range benchmarks {
		name := b.Subject + ": " + b.Operation
		if b.AgainstNanos == 0 {
			all = append(all, report.Aim{Name: name, Value: b.Nanos, Limit: maxHotNanos, Unit: "ns"})
			continue
		}
		all = append(all, report.Aim{Name: name + ", against " + b.Against, Value: b.Ratio(), Limit: b.Limit})
	}
	return all
}

func heapAims(s *report.Suite) (all []report.Aim) {
	heap := func(r process.Report) int64 { return r.After.Heap }
	peak := func(r process.Report) int64 { return r.Peak.Heap }
	for _, aim := range []struct {
		what, phase string
		of          func(process.Report) int64
		limit       float64
	}{
		{"heap after ", phaseCold, heap, maxHeapRatio},
		{"heap after ", phaseSteady, heap, maxHeapRatio},
		{"heap after ", phaseResume, heap, maxHeapRatio},
		{"peak heap in ", phaseCold, peak, maxPeakRatio},
		{"peak heap in ", phasePaged, peak, maxPeakRatio},
		{"peak heap in ", phaseRelist, peak, maxPeakRatio},
		{"peak heap in ", phaseOutage, peak, maxPeakRatio},
	} {
		base, measured := s.Find(aim.phase, string(subject.ClientGo))
		disk, too := s.Find(aim.phase, string(subject.Disk))
		if measured && too {
			value := float64(aim.of(disk.Report)) / float64(aim.of(base.Report))
			all = append(all, report.Aim{Name: "disk: " + aim.what + aim.phase + ", of client-go's", Value: value, Limit: aim.limit})
		}
	}
	return all
}

func anonAims(s *report.Suite) (all []report.Aim) {
	for _, phase := range []string{phaseCold, phaseResume, phaseQueries, phaseReadsOnly, phaseRelist} {
		if disk, measured := s.Find(phase, string(subject.Disk)); measured {
			all = append(all, report.Aim{
				Name: "disk: RssAnon in " + phase + ", small pods", Value: float64(disk.Peak.Anon) / 1e6, Limit: maxAnonMB, Unit: "MB",
			})
		}
	}
	return all
}
