package main

import (
	"fmt"
	"io"
	"time"
)

// progress tells a person what goes on, in a line for each step.
type progress struct {
	out   io.Writer
	start time.Time
}

func (p *progress) step(format string, args ...any) {
	// What cannot be told is no reason to stop.
	_, _ = fmt.Fprintf(p.out, "%7.1fs  %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}
