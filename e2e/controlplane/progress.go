package controlplane

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progressInterval is short enough that nobody takes a build for a hang.
const progressInterval = 10 * time.Second

// buildReporter receives the output of "go build -v", one line per package
// compiled, and says now and then how far it is.
type buildReporter struct {
	name  string
	start time.Time
	stop  chan struct{}
	done  chan struct{}

	mu struct {
		sync.Mutex
		output   bytes.Buffer
		packages int
	}
}

func newBuildReporter(w io.Writer, name string) *buildReporter {
	r := &buildReporter{name: name, start: time.Now(), stop: make(chan struct{}), done: make(chan struct{})}
	go r.run(w)
	return r
}

// Write takes output of the build. It never fails.
func (r *buildReporter) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.packages += bytes.Count(p, []byte("\n"))
	return r.mu.output.Write(p)
}

func (r *buildReporter) run(w io.Writer) {
	defer close(r.done)
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	fmt.Fprintf(w, "controlplane: building %s (once; about ten minutes if nothing is cached)\n", r.name)
	for {
		select {
		case <-ticker.C:
			fmt.Fprintf(w, "controlplane: building %s: %d packages compiled, %s\n", r.name, r.compiled(), r.elapsed())
		case <-r.stop:
			fmt.Fprintf(w, "controlplane: building %s ended after %s\n", r.name, r.elapsed())
			return
		}
	}
}

func (r *buildReporter) elapsed() time.Duration {
	return time.Since(r.start).Round(time.Second)
}

func (r *buildReporter) compiled() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.packages
}

// close ends the reports. No line is written after it returned.
func (r *buildReporter) close() {
	close(r.stop)
	<-r.done
}

func (r *buildReporter) tail() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return lastLines(r.mu.output.String(), 20)
}

// lastLines returns at most n lines from the end of s.
func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
