//go:build linux

package powercut

import (
	"errors"
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
	// killed has a process killed while it opens the file for the first time, and
	// another do the workload.
	killed bool
	// inject, if not empty, is a fault with a verb for the number of the first
	// call that fails.
	inject string
	// runs is how many children with a seed of their own are recorded, share the
	// part of the states in percent.
	runs, share int
}

var campaigns = []campaign{
	{name: "create", work: workCreate, runs: 3, share: 7},
	{name: "churn", work: workChurn, runs: 4, share: 25},
	{name: "grow", work: workGrow, runs: 1, share: 5},
	{name: "damage", work: workDamage, runs: 3, share: 15},
	{name: "damage found while open", work: workReport, runs: 2, share: 10},
	{name: "killed", work: workKilled, killed: true, runs: 4, share: 8},
	// A commit syncs twice. After an even number of calls, it is the second sync
	// of some commit that fails, again and again; after an odd one the first.
	{name: "failing sync of a meta page", work: workChurn, inject: "fdatasync:error=EIO:when=%d+4", runs: 3, share: 15},
	{name: "failing sync of data", work: workChurn, inject: "fdatasync:error=EIO:when=%d+5", runs: 2, share: 5},
	{name: "failing syncs and writes", work: workChurn, inject: "fsync,fdatasync,pwrite64,ftruncate:error=EIO:when=%d+53", runs: 3, share: 10},
}

const (
	// enoughStates of all recordings are enough for some of every kind at each.
	enoughStates = 600
	// exhaustive is from how many states on every boundary of every recording is
	// visited, if its share is smaller than that too.
	exhaustive = 5000
)

// TestPowerCut records what the engine does to the disk, rebuilds what the disk
// may hold if the power fails at some moment, and opens that.
func TestPowerCut(t *testing.T) {
	needStrace(t)
	total, seed := *statesFlag, *seedFlag
	if total == 0 {
		total = enoughStates
		if testing.Short() {
			total = 150
		}
	}
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with: make powercut STATES=%d SEED=%d", total, seed)
	for i, c := range campaigns {
		t.Run(c.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			counts, boundaries, visited := map[string]int{}, 0, 0
			runs := c.runs
			if total < enoughStates {
				runs = (runs + 1) / 2
			}
			for run := range runs {
				// Even and odd seeds differ in when commits come.
				r := record(t, c, run, random.Uint64()&^1|uint64(run%2))
				cuts := r.cuts()
				states := cuts.plan(c.states(total, runs, len(cuts.boundaries)), random)
				boundaries += len(cuts.boundaries)
				visited += cuts.visited(states)
				report(t, r, openStates(t, r, states, counts))
			}
			t.Logf("%d of %d boundaries visited:%s", visited, boundaries, summary(counts))
		})
	}
}

// states is how many states of a recording with so many boundaries are opened. It
// is rounded up, so that all recordings together have no fewer than were asked for.
func (c campaign) states(total, runs, boundaries int) int {
	n := (total*c.share + 100*runs - 1) / (100 * runs)
	if total >= exhaustive {
		n = max(n, boundaries)
	}
	return n
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

// failure is a state in which something is wrong.
type failure struct {
	job
	err error
}

// openStates opens states of a recording, ordered by cut, and returns those in
// which something is wrong.
func openStates(t *testing.T, r *recording, states []state, counts map[string]int) []failure {
	t.Helper()
	jobs, failures, dir := make(chan job), make(chan failure), scratch(t)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for j := range jobs {
				if err := j.open(r, dir); err != nil {
					failures <- failure{j, err}
				}
			}
		})
	}
	go func() {
		d, applied := &disk{}, 0
		for _, s := range states {
			for ; applied < s.cut; applied++ {
				d.apply(applied, r.ops[applied])
			}
			jobs <- job{s, d.images(s), r.expected(s.cut)}
			counts["states"]++
			counts["of the data "+string(s.data)]++
			counts["of the names "+string(s.names)]++
		}
		close(jobs)
		workers.Wait()
		close(failures)
	}()
	var all []failure
	for f := range failures {
		all = append(all, f)
	}
	counts["workloads recorded"]++
	counts["operations recorded"] += len(r.ops)
	return all
}

// open writes a state to a directory of its own and opens it.
func (j job) open(r *recording, parent string) error {
	dir, err := os.MkdirTemp(parent, "state-")
	if err != nil {
		return err
	}
	if err := materialise(dir, j.images, r.inodes); err != nil {
		return err
	}
	return errors.Join(checkState(r, j.expected, dir), os.RemoveAll(dir))
}

// maxReported is how many failures of one recording are told in full.
const maxReported = 5

// report fails the test for each failure, and keeps what -keep says.
func report(t *testing.T, r *recording, failures []failure) {
	t.Helper()
	for i, f := range failures {
		if i == maxReported {
			t.Errorf("%s, seed %d: %d more", r.workload.Name, r.workload.Seed, len(failures)-i)
			break
		}
		t.Errorf("%s: %v", r.describe(f.state), f.err)
		if *keepFlag == "" {
			continue
		}
		dir := filepath.Join(*keepFlag, fmt.Sprintf("%s-%d", r.workload.Name, r.workload.Seed), fmt.Sprint("state-", i+1))
		err := os.MkdirAll(dir, 0o700)
		if err == nil {
			err = materialise(dir, f.images, r.inodes)
		}
		if err == nil && i == 0 {
			err = r.copyTrace(filepath.Join(filepath.Dir(dir), "trace"))
		}
		if err != nil {
			t.Error(err)
		}
		t.Logf("kept in %s", dir)
	}
}
