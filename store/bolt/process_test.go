package bolt_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
	"github.com/warmcache/warmcache/store/storetest"
)

// childVariable tells a copy of the test binary what to do with the file that
// its first argument names, instead of running tests.
const childVariable = "WARMCACHE_BOLT_TEST_CHILD"

var children = map[string]func(path string) error{
	"session":   childSession,
	"churn":     childChurn,
	"file-size": childFileSize,
	"memory":    childMemory,
}

func TestMain(m *testing.M) {
	if os.Getenv(leavesGoroutines) != "" {
		os.Exit(m.Run())
	}
	child := children[os.Getenv(childVariable)]
	if child == nil {
		goleak.VerifyTestMain(m)
		return
	}
	if err := child(os.Args[1]); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

// child is a running copy of the test binary.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Scanner
}

func startChild(t *testing.T, what, path string) *child {
	t.Helper()
	return startCommand(t, what, exec.Command(os.Args[0], path))
}

// startCommand starts a command that runs the test binary.
func startCommand(t *testing.T, what string, cmd *exec.Cmd) *child {
	t.Helper()
	c := &child{t: t, cmd: cmd}
	c.cmd.Env = append(os.Environ(), childVariable+"="+what)
	c.cmd.Stderr = os.Stderr
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdin, c.stdout = stdin, bufio.NewScanner(stdout)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.kill() })
	return c
}

// line returns the next line that the child prints, or "" at its end.
func (c *child) line() string {
	c.stdout.Scan()
	return c.stdout.Text()
}

// tell writes a line that the child reads.
func (c *child) tell(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.stdin, format+"\n", args...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *child) expect(want string) {
	c.t.Helper()
	if got := c.line(); got != want {
		c.t.Fatalf("child: got %q, want %q", got, want)
	}
}

// kill sends SIGKILL and waits for the end.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have ended
	_ = c.cmd.Wait()         // its error is the signal
}

// finish lets the child end by itself.
func (c *child) finish() {
	c.t.Helper()
	err := c.stdin.Close()
	for c.stdout.Scan() {
		c.t.Log("child:", c.stdout.Text())
	}
	if err := errors.Join(err, c.cmd.Wait()); err != nil {
		c.t.Errorf("child: %v", err)
	}
}

// churnKeys is how many objects childChurn writes.
const churnKeys = 40

// childChurn applies generations for ever, as storetest's suite does, and prints
// what is durable. Commits come on their own all the time.
func childChurn(path string) error {
	db, err := bolt.Open(path, bolt.Options{FlushInterval: time.Millisecond, MaxDirty: 100})
	if err != nil {
		return err
	}
	if db.Quarantined() != "" {
		return errors.New("quarantined a file that was only killed")
	}
	c, err := db.Collection(storetest.Pods(), "test")
	if err != nil {
		return err
	}
	n, err := churnGeneration(c)
	if err != nil {
		return err
	}
	fmt.Println("open")
	for n++; ; n++ {
		if err := c.Apply(churnBatch(n)); err != nil {
			return err
		}
		if n%3 == 0 {
			if err := c.Flush(context.Background()); err != nil {
				return err
			}
			fmt.Println(n)
		}
	}
}

// churnBatch is generation n: every object says so, in records of all sizes. The
// objects at the end come and go.
func churnBatch(n int) store.Batch {
	random := rand.New(rand.NewPCG(uint64(n), 0))
	generation := strconv.Itoa(n)
	b := store.Batch{
		Header: &store.Header{RV: generation, Complete: true},
		Clear:  n%50 == 0,
	}
	for i := range churnKeys {
		op := store.Op{Key: fmt.Sprintf("ns/%02d", i), Depart: "uid-" + generation}
		change := store.IndexChange{Name: "generation", Remove: []string{strconv.Itoa(n - 1)}}
		if i < churnKeys/2 || random.IntN(2) == 0 {
			op.Depart = ""
			op.Value = storetest.Record(generation + strings.Repeat(" ", random.IntN(6000)))
			change.Add = []string{generation}
		}
		op.Index = []store.IndexChange{change}
		b.Ops = append(b.Ops, op)
	}
	for i := range churnKeys {
		b.Departed = append(b.Departed, store.DepartedOp{Key: fmt.Sprintf("ns/%02d", i), UID: "uid-" + strconv.Itoa(n-3), Remove: true})
	}
	return b
}

// churnGeneration returns the generation that is stored, 0 if none is, and an
// error if it is not whole.
func churnGeneration(c store.Collection) (int, error) {
	var contents storetest.Contents
	err := c.View(func(tx store.Tx) (err error) {
		contents, err = storetest.DumpTx(tx, "generation")
		return err
	})
	if err != nil || contents.Header == nil {
		return 0, err
	}
	rv := contents.Header.RV
	for _, o := range contents.Objects {
		record, err := store.Unseal([]byte(o.Value))
		if err != nil || strings.TrimRight(string(record), " ") != rv {
			return 0, fmt.Errorf("generation %s has an object of %.10q, %w", rv, record, err)
		}
	}
	index := contents.Indices["generation"]
	if len(index) != 1 || index[0].Value != rv || len(index[0].Keys) != len(contents.Objects) {
		return 0, fmt.Errorf("generation %s with %d objects has the index %v", rv, len(contents.Objects), index)
	}
	return strconv.Atoi(rv)
}

// TestKill_AtAnyInstant kills a process that writes, over and over. The file
// must be whole each time, and have everything whose Flush had returned.
func TestKill_AtAnyInstant(t *testing.T) {
	const kills = 60
	random := newRand(t)
	path := filepath.Join(t.TempDir(), "cache.db")
	acknowledged, generation, commits := 0, 0, 0
	for range kills {
		c := startChild(t, "churn", path)
		kill := func() {
			time.AfterFunc(time.Duration(random.IntN(10_000))*time.Microsecond, func() { _ = c.cmd.Process.Kill() })
		}
		// Some are killed while they start, the others some time after a
		// number of commits.
		after := random.IntN(6)
		for n := 0; ; n++ {
			if n == after {
				kill()
			}
			line := c.line()
			if line == "" {
				break
			}
			if generation, err := strconv.Atoi(line); err == nil {
				acknowledged, commits = generation, commits+1
			} else if line != "open" {
				t.Fatalf("child: %s", line)
			}
		}
		c.kill()
		generation = checkKilled(t, path, acknowledged, generation)
	}
	t.Logf("%d kills, %d generations, %d acknowledged commits", kills, generation, commits)
	if commits < kills/2 {
		t.Errorf("only %d commits in %d runs: the test tests nothing", commits, kills)
	}
}

// checkKilled verifies the file of a killed process and returns its generation.
func checkKilled(t *testing.T, path string, acknowledged, previous int) int {
	t.Helper()
	bolttest.CheckFile(t, path)
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	generation, err := churnGeneration(collection(t, db))
	if err != nil || generation < acknowledged || generation < previous {
		t.Fatalf("generation %d (%v), but %d was acknowledged and %d was there", generation, err, acknowledged, previous)
	}
	if db.Quarantined() != "" {
		t.Fatalf("quarantined after a kill: %s", db.Quarantined())
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return generation
}

// childFileSize runs into a limit of the size of files, which a full disk
// resembles, and out of it again.
func childFileSize(path string) error {
	signal.Ignore(syscall.SIGXFSZ)
	var unlimited unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &unlimited); err != nil {
		return err
	}
	limit := func(bytes uint64) error {
		return unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unlimited.Max})
	}
	if err := limit(0); err != nil {
		return err
	}
	if _, err := bolt.Open(path, bolt.Options{}); err == nil || strings.Contains(err.Error(), "\n") {
		return fmt.Errorf("no space for an empty file: want one line, got %w", err)
	}
	if left, err := filepath.Glob(path + "*"); err != nil || len(left) > 1 {
		return fmt.Errorf("left behind: %q, %w", left, err)
	}
	if err := limit(100_000); err != nil {
		return err
	}
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		return err
	}
	c, err := db.Collection(storetest.Pods(), "test")
	if err != nil {
		return err
	}
	for i := range 200 {
		if err := c.Apply(store.Batch{Ops: []store.Op{storetest.Put(fmt.Sprint(i), strings.Repeat("x", 4000))}}); err != nil {
			return err
		}
	}
	if err := c.Flush(context.Background()); err == nil || c.Durability().Err == nil {
		return errors.New("the limit was not hit")
	}
	count := 0
	err = c.View(func(tx store.Tx) error { return tx.Scan("", func(_, _ []byte) bool { count++; return true }) })
	if err != nil || count != 200 {
		return fmt.Errorf("reads from memory: %d objects, %w", count, err)
	}
	if err := limit(unlimited.Cur); err != nil {
		return err
	}
	return errors.Join(c.Flush(context.Background()), c.Durability().Err, db.Close())
}

func TestDB_FullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	startChild(t, "file-size", path).finish()
	db := bolttest.Open(t, path, bolt.Options{})
	if got := storetest.Dump(t, collection(t, db)).Scanned.Count; got != 200 || db.Quarantined() != "" {
		t.Errorf("%d objects on disk, want 200; quarantined %q", got, db.Quarantined())
	}
}

// childMemory opens a file with little address space.
func childMemory(path string) error {
	limit := unix.Rlimit{Cur: 8 << 30, Max: 8 << 30}
	if err := unix.Setrlimit(unix.RLIMIT_AS, &limit); err != nil {
		return err
	}
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		return err
	}
	c, err := db.Collection(storetest.Pods(), "test")
	if err != nil {
		return err
	}
	err = c.Apply(store.Batch{Ops: []store.Op{storetest.Put("a", strings.Repeat("x", 1<<20))}})
	return errors.Join(err, c.Flush(context.Background()), db.Close())
}

func TestOpen_LittleAddressSpace(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector needs more address space itself")
	}
	path := filepath.Join(t.TempDir(), "cache.db")
	startChild(t, "memory", path).finish()
	bolttest.CheckFile(t, path)
}
