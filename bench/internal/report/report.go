// Package report holds what was measured, compares it with client-go and with the
// aims, and writes it as tables or JSON.
package report

import (
	"runtime"

	"github.com/warmcache/warmcache/bench/internal/process"
)

// Baseline is the subject that all others are compared with.
const Baseline = "client-go"

// Report is the result of a run of the benchmarks, and its JSON form.
type Report struct {
	Machine Machine `json:"machine"`
	// Suites of processes, in the order in which they ran.
	Suites []*Suite `json:"suites,omitempty"`
	// Benchmarks of single operations.
	Benchmarks []Benchmark `json:"benchmarks,omitempty"`
	// HitRates of caches.
	HitRates []HitRate `json:"hitRates,omitempty"`
	Aims     []Aim     `json:"aims"`
}

// Machine is where it was measured.
type Machine struct {
	System string `json:"system"`
	CPUs   int    `json:"cpus"`
	Go     string `json:"go"`
}

// ThisMachine describes the one that the process runs on.
func ThisMachine() Machine {
	return Machine{System: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()}
}

// Suite is the phases that each subject went through, with pods of one shape.
type Suite struct {
	Shape string `json:"shape"`
	Pods  int    `json:"pods"`
	Runs  []Run  `json:"runs"`
}

// Run is a phase of a subject.
type Run struct {
	Phase   string `json:"phase"`
	Subject string `json:"subject"`
	process.Report
}

// Find returns the run of a subject in a phase, if there was one.
func (s *Suite) Find(phase, subject string) (Run, bool) {
	for _, r := range s.Runs {
		if r.Phase == phase && r.Subject == subject {
			return r, true
		}
	}
	return Run{}, false
}

// phases are the names, in order of first appearance.
func (s *Suite) phases() (names []string) {
	seen := map[string]bool{}
	for _, r := range s.Runs {
		if !seen[r.Phase] {
			seen[r.Phase] = true
			names = append(names, r.Phase)
		}
	}
	return names
}

// Benchmark is what one operation costs.
type Benchmark struct {
	Operation string `json:"operation"`
	// Subject did it; Against did what it is compared with.
	Subject string  `json:"subject"`
	Against string  `json:"against,omitempty"`
	Nanos   float64 `json:"nanos"`
	// AgainstNanos is 0 if there is nothing to compare it with.
	AgainstNanos float64 `json:"againstNanos,omitempty"`
	// Limit of the ratio, which is an aim.
	Limit  float64 `json:"limit,omitempty"`
	Allocs float64 `json:"allocs"`
}

// Ratio is how many times longer it takes than what it is compared with.
func (b Benchmark) Ratio() float64 { return ratio(b.Nanos, b.AgainstNanos) }

// HitRate compares caches of the same capacity under the same reads.
type HitRate struct {
	Reads string `json:"reads"`
	// Capacity is the number of objects that fit, of Objects that are read.
	Capacity int    `json:"capacity"`
	Objects  int    `json:"objects"`
	Rates    []Rate `json:"rates"`
}

// Rate is the part of all reads that a policy has kept the object of.
type Rate struct {
	Policy string  `json:"policy"`
	Rate   float64 `json:"rate"`
}

// Aim is a figure that must not be above its limit.
type Aim struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Limit float64 `json:"limit"`
	// Unit is empty for a ratio.
	Unit string `json:"unit,omitempty"`
}

// Met reports whether the aim has been reached.
func (a Aim) Met() bool { return a.Value <= a.Limit }

// Missed returns the aims that have not been met.
func (r *Report) Missed() (missed []Aim) {
	for _, a := range r.Aims {
		if !a.Met() {
			missed = append(missed, a)
		}
	}
	return missed
}

// ratio is 0 where there is nothing to compare with.
func ratio(value, baseline float64) float64 {
	if baseline == 0 {
		return 0
	}
	return value / baseline
}
