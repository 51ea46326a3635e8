package crashtest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// process is a running child.
type process struct {
	t      testing.TB
	ledger *ledger
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr logBuffer
	// startRV is the server's version when the process was started, or 0 if its
	// policy does not promise to have reached it when it has synced.
	startRV uint64
	// ended is closed when everything that the child has written was read.
	ended chan struct{}
	// news has a token when mu has changed.
	news chan struct{}

	mu struct {
		sync.Mutex
		// events counts calls of handlers.
		events int
		opened bool
		// listed are the specs that the server was asked to list, in any form;
		// watches counts requests for other watches.
		listed  map[string]bool
		watches int
		// quarantined is where the child moved the file.
		quarantined string
		// lists is the number of lists by spec, once it has synced.
		lists map[string]string
		dump  contents
		// dumps counts those that are complete.
		dumps int
		// disks is what the informers have said about the disk, and asked how
		// often all of them have.
		disks map[string]diskStatus
		asked int
		// unsaved is why closing the file failed. mayFail says that it may.
		unsaved string
		mayFail bool
		stopped bool
		failure string
	}
}

// diskStatus is what an informer says about the disk.
type diskStatus struct {
	pending int64
	rv      uint64
	failure string
}

// contents are those of all indexers, by spec.
type contents struct {
	objects    map[string]map[string]version
	transforms map[string]map[string]int
	// indexed has "value key" of each index entry.
	indexed map[string]map[string]bool
}

func newContents() contents {
	c := contents{objects: map[string]map[string]version{}, transforms: map[string]map[string]int{}, indexed: map[string]map[string]bool{}}
	for _, s := range specs {
		c.objects[s.name], c.transforms[s.name], c.indexed[s.name] = map[string]version{}, map[string]int{}, map[string]bool{}
	}
	return c
}

// childCommand runs a copy of the test binary.
func childCommand(what, argument string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], argument)
	cmd.Env = append(os.Environ(), childVariable+"="+what)
	return cmd
}

// startProcess starts a child, after showing it to before. The environment is
// added to the parent's.
func startProcess(t testing.TB, l *ledger, life life, before func(*process), environment ...string) *process {
	t.Helper()
	argument, err := json.Marshal(life)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, ledger: l, ended: make(chan struct{}), news: make(chan struct{}, 1)}
	if life.Policy == "confirmed" {
		p.startRV = l.world.revision()
	}
	p.mu.lists, p.mu.listed, p.mu.dump = map[string]string{}, map[string]bool{}, newContents()
	p.mu.disks = map[string]diskStatus{}
	p.cmd = childCommand("informers", string(argument))
	p.cmd.Env = append(p.cmd.Env, environment...)
	p.cmd.Stderr = &p.stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	l.begin()
	before(p)
	p.stdin = stdin
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	go p.read(stdout)
	return p
}

// read takes in what the child says until it ends. What a kill cut off is no
// line.
func (p *process) read(stdout io.Reader) {
	defer close(p.ended)
	for r := bufio.NewReader(stdout); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		if err := p.take(strings.Split(strings.TrimSuffix(line, "\n"), "\t")); err != nil {
			p.t.Errorf("child says %q: %v", line, err)
		}
		p.poke()
	}
}

// poke makes await look again.
func (p *process) poke() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// requested notes that the server was asked to list some of the specs, or for a
// watch.
func (p *process) requested(lists []string) {
	p.mu.Lock()
	for _, name := range lists {
		p.mu.listed[name] = true
	}
	if len(lists) == 0 {
		p.mu.watches++
	}
	p.mu.Unlock()
	p.poke()
}

// words are what the child may say, with the number of fields.
var words = map[string]int{
	wordOpen: 1, wordAdd: 3, wordUpdate: 3, wordDelete: 3, wordSynced: 2, wordObject: 3, wordIndexed: 3,
	wordDumped: 0, wordDisk: 4, wordDisks: 0, wordUnsaved: 1, wordStopped: 0, wordFailed: 1,
}

func (p *process) take(line []string) error {
	word, fields := line[0], line[1:]
	if count, known := words[word]; !known || len(fields) != count {
		return errors.New("not understood")
	}
	var v version
	if word == wordAdd || word == wordUpdate || word == wordObject {
		var err error
		if v, err = parseVersion(fields[2]); err != nil {
			return err
		}
	}
	// The ledger has a lock of its own, and is up to date before mu says so.
	switch word {
	case wordAdd:
		p.ledger.added(fields[0], fields[1] == "true", v)
	case wordUpdate:
		p.ledger.updated(fields[0], fields[1], v)
	case wordDelete:
		p.ledger.deleted(fields[0], fields[1], fields[2])
	case wordSynced:
		if p.startRV != 0 {
			p.ledger.synced(fields[0], p.startRV)
		}
	}
	p.note(word, fields, v)
	return nil
}

func (p *process) note(word string, fields []string, v version) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch word {
	case wordOpen:
		p.mu.opened, p.mu.quarantined = true, fields[0]
	case wordAdd, wordUpdate, wordDelete:
		p.mu.events++
	case wordSynced:
		p.mu.lists[fields[0]] = fields[1]
	case wordObject:
		p.mu.dump.objects[fields[0]][v.key] = v
		p.mu.dump.transforms[fields[0]][fields[1]]++
	case wordIndexed:
		p.mu.dump.indexed[fields[0]][fields[1]+" "+fields[2]] = true
	case wordDumped:
		p.mu.dumps++
	case wordDisk:
		p.mu.disks[fields[0]] = parseDiskStatus(fields[1:])
	case wordDisks:
		p.mu.asked++
	case wordUnsaved:
		p.mu.unsaved = fields[0]
	case wordStopped:
		p.mu.stopped = true
	case wordFailed:
		p.mu.failure = fields[0]
	}
}

// parseDiskStatus reads numbers; what is none is 0, which tests do not expect.
func parseDiskStatus(fields []string) (s diskStatus) {
	s.pending, _ = strconv.ParseInt(fields[0], 10, 64)
	s.rv, _ = strconv.ParseUint(fields[1], 10, 64)
	s.failure = fields[2]
	return s
}

// await waits until the condition holds, with mu held, or the child has ended;
// it returns whether it holds.
func (p *process) await(what string, condition func() bool) bool {
	p.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		ended := false
		select {
		case <-p.ended:
			ended = true
		default:
		}
		p.mu.Lock()
		holds := condition()
		p.mu.Unlock()
		if holds || ended {
			return holds
		}
		select {
		case <-p.news:
		case <-p.ended:
		case <-deadline.C:
			p.t.Fatalf("waited too long for %s of the child, which says\n%s", what, p.tail())
		}
	}
}

// command tells the child something. A child that has ended does not hear it.
func (p *process) command(command string) {
	_, _ = fmt.Fprintln(p.stdin, command)
}

// syncedLocked says whether all handlers have been given the initial state.
func (p *process) syncedLocked() bool { return len(p.mu.lists) == len(specs) }

// contents asks for what is in the indexers.
func (p *process) contents() contents {
	p.t.Helper()
	p.mu.Lock()
	p.mu.dump = newContents()
	want := p.mu.dumps + 1
	p.mu.Unlock()
	p.command(commandDump)
	if !p.await("a dump", func() bool { return p.mu.dumps == want }) {
		p.t.Fatalf("the child ended by itself:\n%s", p.tail())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.dump
}

// disks asks what the informers say about the disk, by spec.
func (p *process) disks() map[string]diskStatus {
	p.t.Helper()
	p.mu.Lock()
	want := p.mu.asked + 1
	p.mu.Unlock()
	p.command(commandDisk)
	if !p.await("the state of the disk", func() bool { return p.mu.asked == want }) {
		p.t.Fatalf("the child ended by itself:\n%s", p.tail())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.mu.disks)
}

// kill sends SIGKILL and waits for the end. It may be called again.
func (p *process) kill() {
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
	_ = p.cmd.Wait() // its error is the signal
	_ = p.stdin.Close()
	p.checkFailure()
}

// finish waits for the end of a child that was told to stop.
func (p *process) finish() {
	p.t.Helper()
	p.await("the end", func() bool { return false })
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("stopping: %v\n%s", err, p.tail())
	}
	_ = p.stdin.Close()
	p.checkFailure()
}

// checkFailure reports what went wrong in the child itself.
func (p *process) checkFailure() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.unsaved != "" && !p.mu.mayFail {
		p.t.Errorf("closing the file: %s", p.mu.unsaved)
	}
	if p.mu.failure != "" || strings.Contains(p.stderr.String(), "panic") {
		p.t.Errorf("child failed: %s\n%s", p.mu.failure, p.tail())
	}
}

// tail is the end of what the child has logged.
func (p *process) tail() string {
	const most = 4000
	log := p.stderr.String()
	return log[max(0, len(log)-most):]
}

// logBuffer can be read while it is written.
type logBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// relisted returns the specs whose informers made a list before they had synced.
func (p *process) relisted() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, lists := range p.mu.lists {
		if lists != "0" {
			names = append(names, name)
		}
	}
	return names
}
