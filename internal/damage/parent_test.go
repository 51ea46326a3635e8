package damage

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// casesPerChild bounds what a child collects: a file that is found damaged while
// it is open stays mapped, with the address space that was reserved for it.
const casesPerChild = 200

// memoryLimit is how much memory a child may have resident, in KiB: a damaged
// number must not decide it. The samples and their maps take 300 MiB.
const memoryLimit = 1 << 20

// campaign runs cases in children, several at a time.
type campaign struct {
	testing.TB
	name string
	dir  string
	seed uint64

	mu struct {
		sync.Mutex
		cases, quarantined, noticed, late, restored int
		// crashes are children that ended by themselves, struck the files that
		// were moved aside after that.
		crashes, struck int
		lives           map[int]int
		gaps            map[string]int
		// memory is the most that a child had resident, in KiB.
		memory int64
	}
}

// run runs the cases from 0 to count, or the one of the flag.
func run(t *testing.T, name string, count int) *campaign {
	c := &campaign{TB: t, name: name, seed: *seedFlag, dir: *samplesFlag}
	if c.seed == 0 {
		c.seed = uint64(time.Now().UnixNano())
	}
	c.mu.lives, c.mu.gaps = map[int]int{}, map[string]int{}
	c.prepare(t)
	begin := time.Now()
	numbers := make(chan int)
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() { c.work(numbers) })
	}
	for n := range count {
		if *caseFlag < 0 || n == *caseFlag {
			numbers <- n
		}
	}
	if *caseFlag >= count {
		numbers <- *caseFlag
	}
	close(numbers)
	workers.Wait()
	c.report(time.Since(begin))
	return c
}

// prepare makes the samples, and keeps them if the test fails.
func (c *campaign) prepare(t *testing.T) {
	if c.dir != "" {
		return
	}
	var err error
	if c.dir, err = os.MkdirTemp("", "warmcache-damage-"); err != nil { //nolint:usetesting // kept when the test fails
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		if err := os.RemoveAll(c.dir); err != nil {
			t.Error(err)
		}
	})
	if err := saveSamples(c.dir); err != nil {
		t.Fatal(err)
	}
}

func (c *campaign) report(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &c.mu
	c.Logf("%s: %d cases in %.1fs (%.0f/s): %d quarantined by the first Open, %d noticed, %d of them late, lives %v; "+
		"%d files begun anew by a running process; %d crashes of children, %d files condemned for it; at most %d MiB resident",
		c.name, m.cases, took.Seconds(), float64(m.cases)/took.Seconds(), m.quarantined, m.noticed, m.late, m.lives,
		m.restored, m.crashes, m.struck, m.memory>>10)
	if len(m.gaps) > 0 {
		c.Logf("known gaps: %v", m.gaps)
	}
	c.Logf("repeat with: make damage CASES=%d SEED=%d", cases(), c.seed)
	if c.Failed() {
		c.Logf("a case, exactly, with the samples of this run: go test ./internal/damage -run '^%s$' -seed %d -samples %s -case N",
			c.Name(), c.seed, c.dir)
	}
}

// work takes cases until there are no more.
func (c *campaign) work(numbers <-chan int) {
	var child *child
	for n := range numbers {
		if child == nil {
			child = c.start()
		}
		if !c.attempt(child, task{Campaign: c.name, Seed: c.seed, Number: n}) {
			c.again(task{Campaign: c.name, Seed: c.seed, Number: n, Again: true})
			child = nil
		} else if child.cases++; child.cases == casesPerChild {
			c.end(child)
			child = nil
		}
	}
	if child != nil {
		c.end(child)
	}
}

// again gives a case that has crashed a child to more of them. The file must be
// moved aside after three crashes in all.
func (c *campaign) again(t task) {
	for range 3 {
		child := c.start()
		if c.attempt(child, t) {
			c.end(child)
			return
		}
	}
	c.Errorf("case %d crashes one process after the other", t.Number)
}

// attempt has a child do a case, and reports whether the child has survived it.
func (c *campaign) attempt(child *child, t task) (survived bool) {
	r, err := child.do(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.mu.crashes++
		c.Logf("case %d: the child has ended: %v\n%s", t.Number, err, child.tail())
		if strings.Contains(child.stderr.String(), "unexpected fault address") {
			c.Errorf("case %d: a fault in the mapping was not recovered", t.Number)
		}
		if child.hung {
			c.Errorf("case %d hangs", t.Number)
		}
		return false
	}
	c.mu.cases++
	c.mu.lives[r.Lives]++
	c.mu.memory = max(c.mu.memory, r.Peak)
	if r.Peak > memoryLimit {
		c.Errorf("case %d takes %d MiB: %s", t.Number, r.Peak>>10, r.What)
	}
	count(&c.mu.quarantined, r.Quarantined)
	count(&c.mu.noticed, r.Noticed)
	count(&c.mu.late, r.Late)
	count(&c.mu.restored, r.Restored)
	for _, gap := range r.Gaps {
		c.mu.gaps[gap]++
	}
	if t.Again {
		count(&c.mu.struck, r.Quarantined)
		if !r.Quarantined {
			c.Errorf("case %d crashed a process, and was not quarantined after it", t.Number)
		}
	}
	for _, problem := range r.Problems {
		c.Errorf("case %d: %s: %s", t.Number, r.What, problem)
	}
	if *caseFlag >= 0 {
		c.Logf("case %d: %+v", t.Number, r)
	}
	return true
}

func count(n *int, yes bool) {
	if yes {
		*n++
	}
}

// child is a running child.
type child struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	tasks   *json.Encoder
	results *json.Decoder
	stderr  bytes.Buffer
	cases   int
	// hung is set when the child was killed because it took too long.
	hung bool
}

func (c *campaign) start() *child {
	child := &child{cmd: exec.Command(os.Args[0], c.dir)}
	child.cmd.Env = append(os.Environ(), childVariable+"=1", "GOTRACEBACK=all")
	child.cmd.Stderr = &child.stderr
	child.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // it may hang, and eat memory
	stdin, err1 := child.cmd.StdinPipe()
	stdout, err2 := child.cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		c.Fatal(err1, err2)
	}
	child.stdin, child.tasks, child.results = stdin, json.NewEncoder(stdin), json.NewDecoder(stdout)
	if err := child.cmd.Start(); err != nil {
		c.Fatal(err)
	}
	return child
}

// do gives the child a task and waits for its result. After an error the child
// has ended.
func (child *child) do(t task) (r result, err error) {
	timer := time.AfterFunc(patience, func() {
		child.hung = true
		_ = child.cmd.Process.Signal(syscall.SIGQUIT) // prints where it hangs
	})
	if err = child.tasks.Encode(t); err == nil {
		err = child.results.Decode(&r)
	}
	timer.Stop()
	if err != nil {
		if waitErr := child.cmd.Wait(); waitErr != nil {
			err = waitErr
		}
	}
	return r, err
}

// end lets the child end.
func (c *campaign) end(child *child) {
	_ = child.stdin.Close() // Wait tells
	if err := child.cmd.Wait(); err != nil {
		c.Errorf("a child failed: %v\n%s", err, child.tail())
	}
}

// tail is the beginning of what the child has said when it ended, which names
// the cause.
func (child *child) tail() string {
	const most = 6000
	s := child.stderr.String()
	return strings.TrimSpace(s[:min(len(s), most)])
}
