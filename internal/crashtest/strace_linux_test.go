package crashtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// requireVariable makes tests fail instead of skip where they lack what it says.
// Any value but requireStrace is taken for requireAll.
const (
	requireVariable = "WARMCACHE_REQUIRE_FAULTS"
	requireStrace   = "strace"
	requireAll      = "all"
)

// lacking skips a test for want of something that a value of requireVariable
// requires, unless it has this value, or one that requires more.
func lacking(t *testing.T, value, what string, err error) {
	t.Helper()
	if required := os.Getenv(requireVariable); required != "" && (required != requireStrace || value == requireStrace) {
		t.Fatalf("%s, but %s=%s requires it: %v", what, requireVariable, required, err)
	}
	t.Skipf("%s, without which this cannot be tested (%s=%s requires it): %v", what, requireVariable, value, err)
}

// init lets strace attach to children where only root may trace what is not a
// child of its own.
func init() {
	if os.Getenv(childVariable) != "" {
		_ = unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0) // unknown where it is not needed
	}
}

// The stages of a commit, in their order, which faults hit.
const (
	stageGrow     = "grow"
	stageGrowSync = "sync of the growth"
	stageData     = "data write"
	stageDataSync = "data sync"
	stageMeta     = "meta write"
	stageMetaSync = "meta sync"
	// stageSettle comes before the next commit after one that failed.
	stageSettle = "sync of the settled meta pages"
	// stageAside is that of a damaged file, which is moved aside.
	stageAside = "move aside"

	metaPages = 2 * 4096
	renames   = "rename,renameat,renameat2"
)

// injection is an strace that makes system calls of a process on one file fail.
type injection struct {
	t   *testing.T
	cmd *exec.Cmd
	log string
	// heal takes it away. It may be called again.
	heal func()
}

// inject makes system calls of a process fail, those on path unless that is empty,
// until it is healed or the process ends. Each fault is in the words of strace,
// such as pwrite64:error=EIO:when=3; it counts per thread.
func inject(t *testing.T, pid int, path string, faults ...string) *injection {
	t.Helper()
	in := &injection{t: t, log: filepath.Join(t.TempDir(), "strace")}
	const calls = "pwrite64,fdatasync,fsync,ftruncate," + renames
	arguments := straceArguments(in.log, calls, path, faults)
	in.cmd = exec.Command("strace", append(arguments, "-p", strconv.Itoa(pid))...)
	stderr, err := in.cmd.StderrPipe()
	if err == nil {
		err = in.cmd.Start()
	}
	if err != nil {
		lacking(t, requireStrace, "strace cannot be run", err)
	}
	in.heal = sync.OnceFunc(func() {
		_ = in.cmd.Process.Signal(os.Interrupt) // it may have ended with the process
		_, _ = io.Copy(io.Discard, stderr)
		_ = in.cmd.Wait() // its error is the signal
	})
	t.Cleanup(in.heal)
	in.awaitAttached(bufio.NewReader(stderr))
	return in
}

// straceArguments are those for faults in calls on path, or on any if it is empty.
func straceArguments(log, calls, path string, faults []string) []string {
	arguments := []string{"-f", "-s", "0", "-o", log, "-e", "signal=none", "-e", "trace=" + calls}
	for _, fault := range faults {
		arguments = append(arguments, "-e", "inject="+fault)
	}
	if path != "" {
		arguments = append(arguments, "-P", path)
	}
	return arguments
}

// awaitAttached waits until the process is traced, whole.
func (in *injection) awaitAttached(stderr *bufio.Reader) {
	in.t.Helper()
	var said strings.Builder
	for {
		line, err := stderr.ReadString('\n')
		said.WriteString(line)
		if strings.Contains(line, " attached") {
			return
		}
		if err != nil {
			lacking(in.t, requireStrace, "strace cannot attach to a process", errors.New(said.String()))
		}
	}
}

// hits counts the faults so far by the stage that they hit.
func (in *injection) hits() map[string]int {
	in.t.Helper()
	log, err := os.ReadFile(in.log)
	if err != nil {
		in.t.Fatal(err)
	}
	return stagesHit(string(log))
}

var (
	writeOffset = regexp.MustCompile(`pwrite64\(.*, (\d+)(\)| <unfinished)`)
	callOf      = regexp.MustCompile(`(pwrite64|fdatasync|fsync|ftruncate|rename|renameat|renameat2)[ (]`)
)

// stagesHit finds out which stages the faults in a log of strace have hit. There
// is one writer, so that what comes before a sync is what it syncs.
func stagesHit(log string) map[string]int {
	hits := map[string]int{}
	meta := false
	for line := range strings.Lines(log) {
		if match := writeOffset.FindStringSubmatch(line); match != nil {
			offset, err := strconv.ParseInt(match[1], 10, 64)
			meta = err == nil && offset < metaPages
		}
		if strings.Contains(line, "ftruncate(") {
			meta = false
		}
		call := callOf.FindStringSubmatch(line)
		if call == nil || !strings.Contains(line, "(INJECTED)") {
			continue
		}
		hits[stageOf(call[1], meta)]++
	}
	return hits
}

func stageOf(call string, meta bool) string {
	stages := map[string][2]string{
		"pwrite64":  {stageData, stageMeta},
		"fdatasync": {stageDataSync, stageMetaSync},
		"fsync":     {stageGrowSync, stageSettle},
		"ftruncate": {stageGrow, stageGrow},
	}[call]
	if strings.HasPrefix(call, "rename") {
		return stageAside
	}
	if meta {
		return stages[1]
	}
	return stages[0]
}

// awaitHit does something again and again until a fault has hit.
func (in *injection) awaitHit(do func()) {
	in.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	ticker := time.NewTicker(3 * time.Millisecond)
	defer ticker.Stop()
	for len(in.hits()) == 0 {
		do()
		select {
		case <-ticker.C:
		case <-deadline.C:
			in.t.Fatalf("no fault has hit: %v", in.cmd.Args)
		}
	}
}

// openStraced opens a file in a child whose system calls fail, those on target
// unless that is empty. It returns where the child moved what it found, or the
// error of Open.
func openStraced(t *testing.T, fault, target, path string) (quarantined string, err error) {
	t.Helper()
	calls, _, _ := strings.Cut(fault, ":")
	arguments := straceArguments(filepath.Join(t.TempDir(), "strace"), calls, target, []string{fault})
	child := childCommand("open-once", path)
	cmd := exec.Command("strace", append(arguments, child.Args...)...)
	cmd.Env = child.Env
	var stderr logBuffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		lacking(t, requireStrace, "strace cannot be run", fmt.Errorf("%w: %s", err, stderr.String()))
	}
	word, quoted, _ := strings.Cut(strings.TrimSpace(string(out)), "\t")
	said, err := strconv.Unquote(quoted)
	switch {
	case err != nil:
		t.Fatalf("the child says %q: %v", out, err)
	case word == wordFailed:
		return "", errors.New(said)
	}
	return said, nil
}
