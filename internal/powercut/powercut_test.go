//go:build linux

package powercut

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Names of scripts.
const (
	workCreate = "create"
	workKilled = "killed"
	workChurn  = "churn"
	workGrow   = "grow"
	workDamage = "damage"
	workReport = "report"
)

// campaign is a way to record workloads, and its part of all states.
type campaign struct {
	name, work string
	// kill, if not empty, is a fault with a number: the process is killed while
	// it opens the file for the first time, and the next one does the workload.
	kill string
	// inject, if not empty, is a fault with the number of the first call that
	// fails, and after how many more the next one does.
	inject string
	// runs is how many children with a seed of their own are recorded, share the
	// part of the states in percent.
	runs, share int
}

var campaigns = []campaign{
	{name: "create", work: workCreate, runs: 3, share: 15},
	{name: "churn", work: workChurn, runs: 4, share: 25},
	{name: "grow", work: workGrow, runs: 1, share: 5},
	{name: "damage", work: workDamage, runs: 3, share: 15},
	{name: "damage found while open", work: workReport, runs: 2, share: 10},
	{name: "killed", work: workKilled, kill: "fsync,fdatasync,renameat:signal=KILL:when=%d", runs: 3, share: 5},
	{name: "failing sync", work: workChurn, inject: "fdatasync:error=EIO:when=%d+%d", runs: 4, share: 15},
	{name: "failing syncs and writes", work: workChurn, inject: "fsync,fdatasync,pwrite64,ftruncate:error=EIO:when=%d+5%d", runs: 3, share: 10},
}

// TestPowerCut records what the engine does to the disk, rebuilds what the disk
// may hold if the power fails at some moment, and opens that.
func TestPowerCut(t *testing.T) {
	needStrace(t)
	total, seed := *statesFlag, *seedFlag
	if total == 0 {
		total = 600
		if testing.Short() {
			total = 150
		}
	}
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat the decisions with: go test ./internal/powercut -run TestPowerCut -states %d -seed %d", total, seed)
	for i, c := range campaigns {
		t.Run(c.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			counts := map[string]int{}
			for run := range c.runs {
				n := max(1, total*c.share/100/c.runs)
				// Even and odd seeds differ in when commits come.
				runStates(t, record(t, c, random.Uint64()&^1|uint64(run%2)), n, random, counts)
			}
			t.Log(summary(counts))
		})
	}
}

// summary lists how many states there were of each kind.
func summary(counts map[string]int) string {
	var b strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "\n%6d %s", counts[kind], kind)
	}
	return b.String()
}

// job is a state to be opened.
type job struct {
	state    state
	images   map[string]image
	expected expected
}

// runStates opens n states of a recording.
func runStates(t *testing.T, r *recording, n int, random *rand.Rand, counts map[string]int) {
	t.Helper()
	jobs, dir := make(chan job), scratch(t)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for j := range jobs {
				j.run(t, r, dir)
			}
		})
	}
	d, applied := &disk{}, 0
	for _, s := range plan(r, n, random) {
		for ; applied < s.cut; applied++ {
			d.apply(applied, r.ops[applied])
		}
		jobs <- job{s, d.images(s), r.expected(s.cut)}
		counts["states"]++
		counts["data: "+string(s.data)]++
		counts["names: "+string(s.names)]++
	}
	close(jobs)
	workers.Wait()
	counts["runs"]++
	counts["operations recorded"] += len(r.ops)
	keep(t, r)
}

// run opens one state.
func (j job) run(t *testing.T, r *recording, parent string) {
	dir, err := os.MkdirTemp(parent, "state-")
	if err != nil {
		t.Error(err)
		return
	}
	materialise(t, dir, j.images, r.inodes)
	if err := checkState(r, j.expected, dir); err != nil {
		t.Errorf("%s: %v", r.describe(j.state), err)
		keepState(t, j, r)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

// keep copies the trace of a failed test to where -keep says.
func keep(t *testing.T, r *recording) {
	t.Helper()
	if !t.Failed() || *keepFlag == "" {
		return
	}
	name := filepath.Join(*keepFlag, fmt.Sprintf("%s-%d.trace", r.workload.Name, r.workload.Seed))
	if err := os.Rename(r.traceFile, name); err != nil {
		t.Error(err)
	}
}

// keepState writes a state that fails to where -keep says.
func keepState(t *testing.T, j job, r *recording) {
	t.Helper()
	if *keepFlag == "" {
		return
	}
	dir, err := os.MkdirTemp(*keepFlag, fmt.Sprintf("%s-%d-cut-%d-", r.workload.Name, r.workload.Seed, j.state.cut))
	if err != nil {
		t.Error(err)
		return
	}
	materialise(t, dir, j.images, r.inodes)
	t.Logf("kept in %s", dir)
}
