package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/warmcache/warmcache/bench/internal/process"
)

// WriteJSON writes one object.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// WriteText writes what a person wants to compare.
func (r *Report) WriteText(w io.Writer) error {
	p := &printer{out: w}
	p.line("%s, %d CPUs, %s", r.Machine.System, r.Machine.CPUs, r.Machine.Go)
	for _, s := range r.Suites {
		p.suite(s)
	}
	p.benchmarks(r.Benchmarks)
	p.hitRates(r.HitRates)
	p.aims(r.Aims)
	return p.err
}

// printer keeps the first error.
type printer struct {
	out io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if _, err := fmt.Fprintf(p.out, format+"\n", args...); err != nil && p.err == nil {
		p.err = err
	}
}

// table writes rows of cells, the first of them to the left.
func (p *printer) table(rows [][]string) {
	t := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	width := 0
	for _, row := range rows {
		width = max(width, len(row[0]))
	}
	for _, row := range rows {
		row[0] += strings.Repeat(" ", width-len(row[0]))
		_, _ = fmt.Fprintln(t, strings.Join(row, "\t")+"\t")
	}
	if err := t.Flush(); err != nil && p.err == nil {
		p.err = err
	}
}

const legend = `
seconds    until the handlers had been told of everything
CPU        seconds of it, until everything was durable
heap       in use afterwards; peak heap has garbage, too
RssAnon    physical memory of the process alone, at its highest
received   on the wire
1/n, xn    part or multiple of what client-go has in the same phase`

func (p *printer) suite(s *Suite) {
	p.line("\n%d %s pods\n", s.Pods, s.Shape)
	rows := [][]string{{"", "subject", "seconds", "", "CPU", "heap", "", "peak heap", "", "RssAnon", "", "received", ""}}
	for _, phase := range s.phases() {
		base, _ := s.Find(phase, Baseline)
		name := phase
		for _, r := range s.Runs {
			if r.Phase == phase {
				rows = append(rows, append([]string{name}, runCells(r, base.Report)...))
				name = ""
			}
		}
	}
	p.table(rows)
	p.line("%s", legend)
}

func runCells(r Run, base process.Report) []string {
	if r.Subject == Baseline {
		base = process.Report{}
	}
	return []string{
		r.Subject,
		fmt.Sprintf("%.2f", r.Seconds), part(r.Seconds, base.Seconds),
		fmt.Sprintf("%.2f", r.CPUSeconds),
		megabytes(r.After.Heap), part(r.After.Heap, base.After.Heap),
		megabytes(r.Peak.Heap), part(r.Peak.Heap, base.Peak.Heap),
		megabytes(r.Peak.Anon), part(r.Peak.Anon, base.Peak.Anon),
		megabytes(r.Received), part(r.Received, base.Received),
	}
}

// part says what part of base the value is, as 1/n, or how many times as large.
func part[T int64 | float64](value, base T) string {
	switch {
	case base == 0 || value == 0:
		return ""
	case value > base:
		return fmt.Sprintf("x%.2f", float64(value)/float64(base))
	}
	return fmt.Sprintf("1/%.3g", float64(base)/float64(value))
}

// megabytes are decimal, as networks count.
func megabytes(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }

func (p *printer) benchmarks(all []Benchmark) {
	if len(all) == 0 {
		return
	}
	p.line("\nSingle operations\n")
	rows := [][]string{{"", "subject", "time", "allocs", "against", "its time", "ratio"}}
	for _, b := range all {
		row := []string{b.Operation, b.Subject, duration(b.Nanos), fmt.Sprintf("%.0f", b.Allocs), "", "", ""}
		if b.AgainstNanos > 0 {
			row[4], row[5], row[6] = b.Against, duration(b.AgainstNanos), fmt.Sprintf("%.2f", b.Ratio())
		}
		rows = append(rows, row)
	}
	p.table(rows)
}

// duration has three digits, more or less.
func duration(nanos float64) string {
	d := time.Duration(nanos)
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%.3g ns", nanos)
	case d < time.Millisecond:
		return fmt.Sprintf("%.3g µs", nanos/1e3)
	}
	return fmt.Sprintf("%.3g ms", nanos/1e6)
}

func (p *printer) hitRates(all []HitRate) {
	if len(all) == 0 {
		return
	}
	p.line("\nHit rates of caches of the same size\n")
	head := []string{"reads", "objects", "fit"}
	for _, rate := range all[0].Rates {
		head = append(head, rate.Policy)
	}
	rows := [][]string{head}
	for _, h := range all {
		row := []string{h.Reads, strconv.Itoa(h.Objects), strconv.Itoa(h.Capacity)}
		for _, rate := range h.Rates {
			row = append(row, percent(rate.Rate))
		}
		rows = append(rows, row)
	}
	p.table(rows)
}

func percent(rate float64) string { return fmt.Sprintf("%.1f%%", 100*rate) }

func (p *printer) aims(all []Aim) {
	if len(all) == 0 {
		return
	}
	p.line("\nAims\n")
	rows := [][]string{{"", "measured", "limit", ""}}
	for _, a := range all {
		verdict := "met"
		if !a.Met() {
			verdict = "MISSED"
		}
		rows = append(rows, []string{a.Name, figure(a.Value, a.Unit), figure(a.Limit, a.Unit), verdict})
	}
	p.table(rows)
}

func figure(value float64, unit string) string {
	if unit == "" {
		return fmt.Sprintf("%.3g", value)
	}
	return fmt.Sprintf("%.4g %s", value, unit)
}
