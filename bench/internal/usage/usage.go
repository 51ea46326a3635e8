// Package usage measures what the process it runs in takes from its machine:
// heap, anonymous memory and processor time.
//
// RssAnon is what counts in the end, because a machine runs out of it: it has the
// stacks and what the garbage collector has not given back, too, but not the pages
// of a mapped file, which cost nobody anything. It is read from /proc, which only
// Linux has.
package usage

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"
)

// Memory is in bytes.
type Memory struct {
	// Heap is what the heap holds: live objects, and dead ones that have not been
	// swept yet.
	Heap int64 `json:"heap"`
	// Live is what the last garbage collection found in use.
	Live int64 `json:"live"`
	// Anon is RssAnon: physical memory of this process alone.
	Anon int64 `json:"anon"`
}

// Now returns what the process has at present.
func Now() (Memory, error) {
	anon, err := rssAnon()
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(samples)
	return Memory{
		Heap: int64(samples[0].Value.Uint64()),
		Live: int64(samples[1].Value.Uint64()),
		Anon: anon,
	}, err
}

// Settled collects the garbage first, so that Heap is what is in use.
func Settled() (Memory, error) {
	// Twice, because what a finalizer or a pool held goes with the second.
	runtime.GC()
	runtime.GC()
	return Now()
}

func (m Memory) max(other Memory) Memory {
	return Memory{Heap: max(m.Heap, other.Heap), Live: max(m.Live, other.Live), Anon: max(m.Anon, other.Anon)}
}

// rssAnon reads RssAnon, which the kernel gives in kB.
func rssAnon() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if value, found := strings.CutPrefix(line, "RssAnon:"); found {
			kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, errors.New("/proc/self/status has no RssAnon")
}

// tick is the unit of /proc/self/stat, which is the same on all of Linux.
const tick = 10 * time.Millisecond

// CPU returns the processor time that the process has used, to 10 ms.
func CPU() (time.Duration, error) {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0, err
	}
	// The second field is a name, in parentheses, that may contain anything. Of
	// those behind it, utime and stime are the 12th and 13th.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/self/stat has %d fields", len(fields))
	}
	var sum time.Duration
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(ticks) * tick
	}
	return sum, nil
}
