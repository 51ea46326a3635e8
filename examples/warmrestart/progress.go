package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progress tells a person what goes on: on a terminal in one line that changes,
// elsewhere in a line per step. It is safe for concurrent use.
type progress struct {
	out      io.Writer
	terminal bool
	// interval is the shortest time between two drawings of the same step.
	interval time.Duration
	start    time.Time

	mu struct {
		sync.Mutex
		// drawn is when a line was last drawn.
		drawn time.Time
		// open says that the cursor stands behind an unfinished line.
		open bool
	}
}

// The shortest time between two drawings of the same step, on a terminal and
// elsewhere.
const (
	redraw    = 100 * time.Millisecond
	relineLog = 5 * time.Second
)

func newProgress(out io.Writer) *progress {
	p := &progress{out: out, start: time.Now(), interval: relineLog}
	if file, ok := out.(*os.File); ok {
		info, err := file.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	if p.terminal {
		p.interval = redraw
	}
	return p
}

// step says what begins now.
func (p *progress) step(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLineLocked()
	p.drawLocked(format, args)
	if !p.terminal {
		p.endLineLocked()
	}
}

// hint is step for a terminal. Elsewhere it says nothing, so that an error can be
// the only line.
func (p *progress) hint(what string) {
	if p.terminal {
		p.step("%s", what)
	}
}

// detail says how far the step has come, unless that was said just now.
func (p *progress) detail(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.mu.drawn) < p.interval {
		return
	}
	if p.terminal {
		_, _ = io.WriteString(p.out, "\r\x1b[K")
	}
	p.drawLocked(format, args)
	if !p.terminal {
		p.endLineLocked()
	}
}

// done ends the last line.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLineLocked()
}

// Write lets the children's log lines through.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLineLocked()
	return p.out.Write(b)
}

func (p *progress) drawLocked(format string, args []any) {
	_, _ = fmt.Fprintf(p.out, "%6.1fs  %s", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
	p.mu.drawn, p.mu.open = time.Now(), true
}

func (p *progress) endLineLocked() {
	if p.mu.open {
		_, _ = fmt.Fprintln(p.out)
	}
	p.mu.open = false
}
