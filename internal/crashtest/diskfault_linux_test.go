package crashtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fault is a disk that fails in some way.
type fault struct {
	// calls are the faults in the words of strace, separated by spaces. A %d is a
	// random number of calls that succeed before.
	calls string
	// lasting says that no commit succeeds until the disk is healed.
	lasting bool
}

var (
	// faults hit the commits of a file that does not grow.
	faults = []fault{
		{"pwrite64:error=ENOSPC", true},
		{"pwrite64:error=EIO", true},
		{"fdatasync:error=EIO", true},
		// The data are written, and then the pages that make them count are not,
		// or not for sure: as far as the writer stays on its thread.
		{"fdatasync:error=EIO:when=2+2", false},
		{"fdatasync:error=ENOSPC:when=2", false},
		{"fdatasync:error=EIO:when=2+2 fsync:error=EIO", false},
		{"pwrite64:error=EIO:when=%d", false},
		{"pwrite64:error=ENOSPC:when=%d+7", false},
	}
	// growthFaults are what a list into an empty file meets besides.
	growthFaults = []fault{
		{"ftruncate:error=ENOSPC", true},
		{"ftruncate:error=EIO", true},
		// The next attempt finds a file that has grown, and syncs it with the data.
		{"fsync:error=EIO", false},
	}
)

// String is the fault without what is random.
func (f fault) String() string { return strings.ReplaceAll(f.calls, "%d", "N") }

func (f fault) in(random *rand.Rand) []string {
	calls := f.calls
	if strings.Contains(calls, "%d") {
		calls = fmt.Sprintf(calls, 1+random.IntN(14))
	}
	return strings.Fields(calls)
}

// TestDiskFault_InitialList lets the disk fail before anything was listed. The
// informers must not notice; what becomes of the process is one of three.
func TestDiskFault_InitialList(t *testing.T) {
	seed := faultSeed(t)
	for i, f := range append(growthFaults, faults...) {
		t.Run(f.String(), func(t *testing.T) {
			d := newFaulty(t, seed+uint64(i))
			d.life.Hold = true
			d.start()
			d.process.await("opening the file", func() bool { return d.process.mu.opened })
			in := d.inject(f)
			d.process.command(commandBegin)
			d.sync()
			d.suffer(f, in)
			d.outcome(f, in, i%3)
			d.life.Hold = false
			d.recover()
		})
	}
}

// TestDiskFault_ChurnAndClose lets the disk of one file fail again and again,
// while informers run or while they stop.
func TestDiskFault_ChurnAndClose(t *testing.T) {
	lives := faultyLives()
	d := newFaulty(t, faultSeed(t))
	d.start()
	d.sync()
	d.stop(false)
	// Which stage a fault hits is not quite in our hands.
	for n := 0; n < lives || lives >= enoughLives && n < 4*lives && d.missing() != ""; n++ {
		f := faults[n%len(faults)]
		if d.random.IntN(4) == 0 {
			d.failWhileClosing(f)
		} else {
			d.failWhileChanging(f)
		}
		if t.Failed() {
			t.Fatalf("failed in life %d, with %v:\n%+v\n%s", d.lives, f, d.life, d.process.tail())
		}
	}
	d.recover()
	t.Logf("%d lives: %v", d.lives, d.tally)
	if what := d.missing(); what != "" && lives >= enoughLives {
		t.Errorf("it never came to: %s", what)
	}
}

// TestDiskFault_DamagedWhileOpen spoils the file of a running process, on a disk
// that does not let it be moved aside or replaced. The informers go on from
// memory; when the disk is well, all they have gets into a new file, from which the
// next process resumes. A process that ends before that leaves the next one to
// list.
func TestDiskFault_DamagedWhileOpen(t *testing.T) {
	seed := faultSeed(t)
	for i, f := range []fault{
		{renames + ":error=EIO", true},
		{"pwrite64:error=ENOSPC", true},
		{"fdatasync:error=EIO", true},
		{"fsync:error=EIO:when=1", false},
	} {
		for name, heal := range map[string]bool{"heals": true, "killed": false} {
			t.Run(f.String()+" "+name, func(t *testing.T) {
				d := newFaulty(t, seed+uint64(i))
				d.start()
				d.sync()
				d.durable()
				// In this order, or the file may be replaced before anything fails.
				in := inject(t, d.process.cmd.Process.Pid, "", f.calls)
				spoil(t, d.file.path, 2*4096)
				d.suffer(f, in)
				if heal {
					in.heal()
					d.durable()
					d.removeMovedAside()
					d.kill(false)
					d.resume()
				} else {
					d.process.kill()
					d.start()
					d.process.await("synchronisation", d.process.syncedLocked)
					d.removeMovedAside()
				}
				d.compare()
				d.durable()
				d.stop(false)
			})
		}
	}
}

// spoil overwrites a file, from an offset, with zeros.
func spoil(t *testing.T, path string, from int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		_, err = f.WriteAt(make([]byte, min(info.Size()-from, 1<<22)), from)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// removeMovedAside removes damaged files, of which there must be one.
func (d *faulty) removeMovedAside() {
	d.t.Helper()
	moved, err := filepath.Glob(d.file.path + ".quarantined-*")
	if err != nil || len(moved) != 1 {
		d.t.Errorf("moved aside: %v, %v; want one file", moved, err)
	}
	for _, name := range moved {
		if err := os.Remove(name); err != nil {
			d.t.Error(err)
		}
	}
}

func faultSeed(t *testing.T) uint64 {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with: make iofault FAULTS=%d SEED=%d", faultyLives(), seed)
	return seed
}

// faultyLives is how often TestDiskFault_ChurnAndClose lets the disk fail.
func faultyLives() int {
	switch {
	case *faultsFlag > 0:
		return *faultsFlag
	case testing.Short():
		return 10
	}
	return enoughLives
}

// faulty lives on a disk that fails.
type faulty struct {
	*killer
	t *testing.T
}

func newFaulty(t *testing.T, seed uint64) *faulty {
	d := &faulty{newKiller(t, seed), t}
	d.life.Policy, d.life.Flush, d.life.ListBelow = "confirmed", time.Millisecond, -1
	return d
}

// start starts a child on what the last one has left.
func (d *faulty) start() {
	d.lives++
	d.life.Seed = d.random.Uint64()
	d.process = startProcess(d.t, d.ledger, d.life, d.current.Store, d.environment()...)
}

// sync waits until the child has synced.
func (d *faulty) sync() {
	d.t.Helper()
	p := d.process
	if !p.await("synchronisation", p.syncedLocked) {
		d.t.Fatalf("the child ended by itself:\n%s", p.tail())
	}
	if moved := p.mu.quarantined; moved != "" {
		d.t.Errorf("the file was moved aside: %s", moved)
	}
}

func (d *faulty) inject(f fault) *injection {
	return inject(d.t, d.process.cmd.Process.Pid, d.file.path, f.in(d.random)...)
}

// failWhileChanging is a life whose disk fails while objects change.
func (d *faulty) failWhileChanging(f fault) {
	d.resume()
	in := d.inject(f)
	in.awaitHit(func() { d.world.change(d.random) })
	d.suffer(f, in)
	d.outcome(f, in, d.random.IntN(3))
}

// failWhileClosing is a life whose disk fails when the child is told to stop.
func (d *faulty) failWhileClosing(f fault) {
	d.resume()
	in := d.inject(f)
	for range d.random.IntN(10) {
		d.world.change(d.random)
	}
	d.stop(true)
	d.count(in)
	d.tally["closed on a failing disk"]++
	p := d.process
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.lasting && !strings.Contains(p.mu.unsaved, "lost") {
		d.t.Errorf("nothing could be written, and Close says %q", p.mu.unsaved)
	}
}

// resume starts a child that must not list anything.
func (d *faulty) resume() {
	d.world.whileDown(d.random, false)
	d.start()
	d.sync()
	if relisted := d.process.relisted(); len(relisted) > 0 {
		d.t.Errorf("listed %v; nothing was lost that would be a reason", relisted)
	}
}

// recover is a last life, on a disk that is well.
func (d *faulty) recover() {
	d.world.whileDown(d.random, false)
	d.start()
	d.sync()
	d.compare()
	d.durable()
	d.stop(false)
}

// suffer checks a child whose disk fails: it goes on, and says so.
func (d *faulty) suffer(f fault, in *injection) {
	d.t.Helper()
	d.compare()
	in.awaitHit(func() { d.world.change(d.random) })
	if f.lasting {
		d.awaitDisks("an error of the disk", func(s spec, disk diskStatus) bool {
			return disk.failure != "" && disk.pending > 0
		})
	}
	for range d.random.IntN(20) {
		d.world.change(d.random)
	}
	d.compare()
	d.count(in)
}

func (d *faulty) count(in *injection) {
	for stage, n := range in.hits() {
		d.tally[stage] += n
	}
}

// outcome ends a life: the disk heals and everything becomes durable, or the
// process ends before it does.
func (d *faulty) outcome(f fault, in *injection, n int) {
	d.t.Helper()
	switch n {
	case 0:
		in.heal()
		d.durable()
		d.tally["healed"]++
		if d.random.IntN(2) == 0 {
			d.stop(false)
		} else {
			d.kill(false)
		}
	case 1:
		d.kill(f.lasting)
		d.tally["killed"]++
	case 2:
		d.stop(true)
		d.tally["stopped"]++
	}
}

// durable checks that all that was written to the server so far gets into the
// file.
func (d *faulty) durable() {
	d.t.Helper()
	d.compare()
	d.awaitDisks("everything in the file", func(s spec, disk diskStatus) bool {
		return disk.failure == "" && disk.pending == 0 && disk.rv >= d.ledger.version(s.name, "b/sentinel").rv
	})
}

// awaitDisks waits until all informers say something about the disk.
func (d *faulty) awaitDisks(what string, condition func(spec, diskStatus) bool) {
	d.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		disks, holds := d.process.disks(), true
		for _, s := range specs {
			holds = holds && condition(s, disks[s.name])
		}
		if holds {
			return
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("waited too long for %s: %+v", what, disks)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// kill kills the child and checks the file, which is still at the versions that
// the child last said it had if nothing could be written since.
func (d *faulty) kill(failing bool) {
	d.t.Helper()
	disks := d.process.disks()
	d.process.kill()
	d.kills++
	d.file.check(false, false)
	for _, s := range specs {
		if got, want := d.file.rvs[s.name], disks[s.name].rv; failing && got != want {
			d.t.Errorf("%s: the file has version %d, the status said %d", s.name, got, want)
		}
	}
}

// stop lets the child end and checks the file.
func (d *faulty) stop(failing bool) {
	d.t.Helper()
	p := d.process
	p.mu.Lock()
	p.mu.mayFail = failing
	p.mu.Unlock()
	p.command(commandStop)
	p.finish()
	d.file.check(!failing, !failing)
	if !failing {
		d.file.leftovers()
	}
}

// enoughLives are so many that everything should have happened.
const enoughLives = 28

// missing says what has not happened yet of that which the test is there for.
func (d *faulty) missing() string {
	for _, what := range []string{
		stageData, stageDataSync, stageMeta, stageMetaSync, stageSettle, "healed", "killed", "stopped", "closed on a failing disk",
	} {
		if d.tally[what] == 0 {
			return what
		}
	}
	return ""
}
