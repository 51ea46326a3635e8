//go:build linux

package powercut

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/warmcache/warmcache/store"
)

// recording is what a workload did to the disk, and what it should have done.
type recording struct {
	workload workload
	history  *history
	ops      []op
	inodes   []uint64
	// traceFile is where the trace is.
	traceFile string
	// damaging says of each operation whether it belongs to the damaging of the
	// file, in which nobody can say what the file is.
	damaging []bool
	// evidence are the damaged files, in order.
	evidence []evidence
}

// evidence is a file that is damaged, or taken for it, and must not get lost.
type evidence struct {
	// op is the number of the mark at whose time it was complete.
	op  int
	sum sum
	// intact is set for a file that the engine was told to be damaged. After a
	// power cut it may not know any more, and use it.
	intact bool
}

// record runs a workload in a child and returns what it did.
func record(t *testing.T, c campaign, run int, seed uint64) *recording {
	t.Helper()
	r := &recording{workload: workload{Name: c.work, Seed: seed}}
	if c.killed {
		r.killFirst(t, killedAt[run%len(killedAt)])
	} else {
		r.begin(t)
	}
	injection := ""
	if c.inject != "" {
		injection = fmt.Sprintf(c.inject, 1+seed/2%7, 3+seed/2%5)
	}
	if _, err := trace(r.workload, r.traceFile, injection); err != nil {
		t.Fatal(err)
	}
	r.read(t)
	return r
}

// begin makes an empty directory and an empty trace.
func (r *recording) begin(t *testing.T) {
	t.Helper()
	var err error
	if r.workload.Root, err = filepath.EvalSymlinks(scratch(t)); err != nil {
		t.Fatal(err)
	}
	r.traceFile = filepath.Join(t.TempDir(), "trace")
}

// killedAt are system calls of Open, before which killFirst kills.
var killedAt = []string{"fsync", "renameat", "fdatasync", "mkdirat"}

// killFirst has a child killed in its first step, before the last call of the
// given name that it makes. How many that are depends on the path.
func (r *recording) killFirst(t *testing.T, name string) {
	t.Helper()
	first := r.workload
	first.Only = 1
	for n := 12; n > 0; n-- {
		r.begin(t)
		first.Root = r.workload.Root
		killed, err := trace(first, r.traceFile, fmt.Sprintf("%s:signal=KILL:when=%d", name, n))
		if err != nil {
			t.Fatal(err)
		}
		if killed {
			return
		}
	}
	t.Fatalf("Open does not call %s", name)
}

// read reads the trace.
func (r *recording) read(t *testing.T) {
	t.Helper()
	tr := newTracer(r.workload.Root)
	if err := tr.readTrace(r.traceFile); err != nil {
		t.Fatal(err)
	}
	r.ops, r.inodes = tr.ops, tr.inodes
	var err error
	if r.history, err = newHistory(r.workload); err != nil {
		t.Fatal(err)
	}
	r.findDamage(t)
	r.compareWithReality(t)
}

// scratch returns a directory for the test, in memory if there is plenty: what is
// synced to it need not outlast anything.
func scratch(t *testing.T) string {
	t.Helper()
	const shared, plenty = "/dev/shm", 1 << 30
	var fs unix.Statfs_t
	if err := unix.Statfs(shared, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < plenty {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(shared, "powercut-") //nolint:usetesting // it chooses another file system
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// findDamage finds the damaged files.
func (r *recording) findDamage(t *testing.T) {
	t.Helper()
	d, inside := &disk{}, false
	for i, o := range r.ops {
		d.apply(i, o)
		if o.kind == opMark {
			s := r.history.steps[o.mark.step]
			if s.kind == stepDamage {
				inside = !o.mark.end
			}
			if s.kind == stepDamage && o.mark.end || s.kind == stepReport && !o.mark.end {
				r.evidence = append(r.evidence, evidence{op: i, sum: d.cacheNow(t), intact: s.kind == stepReport})
			}
		}
		r.damaging = append(r.damaging, inside)
	}
}

// cacheNow identifies the content of the cache file.
func (d *disk) cacheNow(t *testing.T) sum {
	t.Helper()
	dir := scratch(t)
	if err := materialise(dir, d.images(state{data: dataEverything, names: namesEverything}), nil); err != nil {
		t.Fatal(err)
	}
	s, err := sumOf(filepath.Join(dir, cacheName))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// compareWithReality fails if the files that the child has left are not what
// the model of the disk says.
func (r *recording) compareWithReality(t *testing.T) {
	t.Helper()
	d := &disk{}
	for i, o := range r.ops {
		d.apply(i, o)
	}
	dir := scratch(t)
	if err := materialise(dir, d.images(state{data: dataEverything, names: namesEverything}), nil); err != nil {
		t.Fatal(err)
	}
	for _, pair := range [][2]string{{dir, r.workload.Root}, {r.workload.Root, dir}} {
		err := filepath.WalkDir(pair[0], func(path string, entry os.DirEntry, err error) error {
			relative, _ := filepath.Rel(pair[0], path)
			if err != nil || entry.IsDir() || relative == marksName {
				return err
			}
			a, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			b, err := os.ReadFile(filepath.Join(pair[1], relative))
			if err == nil && !bytes.Equal(a, b) {
				err = fmt.Errorf("%s differs", relative)
			}
			return err
		})
		if err != nil {
			t.Fatalf("the model of the disk is wrong: %v", err)
		}
	}
}

// copyTrace keeps the trace.
func (r *recording) copyTrace(name string) error {
	content, err := os.ReadFile(r.traceFile)
	if err != nil {
		return err
	}
	return os.WriteFile(name, content, 0o600)
}

// usable says whether it is known what must be there after a cut.
func (r *recording) usable(cut int) bool { return cut == 0 || !r.damaging[cut-1] }

// boundary says whether a cut is next to a sync or a change of a directory.
func (r *recording) boundary(cut int) bool {
	is := func(i int) bool {
		return i >= 0 && i < len(r.ops) &&
			(r.ops[i].isNameOp() || r.ops[i].kind == opSync || r.ops[i].kind == opFail)
	}
	return is(cut-1) || is(cut)
}

// describe tells where a state is.
func (r *recording) describe(s state) string {
	at := "the end"
	if s.cut < len(r.ops) {
		at = r.ops[s.cut].String()
	}
	return fmt.Sprintf("%s, seed %d, %s (before: %s)", r.workload.Name, r.workload.Seed, s, at)
}

// expected is what must hold after a cut.
type expected struct {
	windows map[store.Identity]window
	// evidence are all files that were damaged or taken for it, in order.
	evidence []evidence
}

func (r *recording) expected(cut int) (e expected) {
	e.windows = r.history.windows(r.ops[:cut])
	for _, ev := range r.evidence {
		if ev.op < cut {
			e.evidence = append(e.evidence, ev)
		}
	}
	return e
}
