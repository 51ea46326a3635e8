package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress tells a person what goes on, in a line for each step. It is also where the
// processes of a run write what they log, at the same time.
type progress struct {
	start time.Time

	mu  sync.Mutex
	out io.Writer
}

func (p *progress) step(format string, args ...any) {
	// What cannot be told is no reason to stop.
	_, _ = fmt.Fprintf(p, "%7.1fs  %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// Write implements io.Writer. It may be called concurrently.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}
