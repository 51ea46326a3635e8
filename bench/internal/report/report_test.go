package report

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/warmcache/warmcache/bench/internal/process"
	"github.com/warmcache/warmcache/bench/internal/usage"
)

func run(phase, subject string, seconds float64, heap int64) Run {
	return Run{Phase: phase, Subject: subject, Report: process.Report{
		Seconds: seconds, CPUSeconds: 1, After: usage.Memory{Heap: heap}, Peak: usage.Memory{Heap: 2 * heap, Anon: 3 * heap}, Received: 5_000_000,
	}}
}

func sample() *Report {
	return &Report{
		Machine: Machine{System: "os/arch", CPUs: 2, Go: "go1"},
		Suites: []*Suite{{Shape: "real", Pods: 7, Runs: []Run{
			run("cold", Baseline, 2, 100_000_000), run("warm", Baseline, 2, 100_000_000),
			run("cold", "disk", 3, 4_000_000), run("warm", "disk", 0.5, 4_000_000),
		}}},
		Benchmarks: []Benchmark{
			{Operation: "Get, hot", Subject: "disk", Nanos: 123.4},
			{Operation: "Get, cold", Subject: "disk", Nanos: 60_000, Against: "decode", AgainstNanos: 50_000, Limit: 1.5, Allocs: 9},
		},
		HitRates: []HitRate{{Reads: "alike", Objects: 10, Capacity: 5, Rates: []Rate{{"LRU", 0.5}, {"optimum", 0.75}}}},
		Aims:     []Aim{{Name: "small", Value: 0.04, Limit: 0.05}, {Name: "large", Value: 400, Limit: 300, Unit: "MB"}},
	}
}

func TestReport_WriteText(t *testing.T) {
	var out bytes.Buffer
	if err := sample().WriteText(&out); err != nil {
		t.Fatal(err)
	}
	var rows []string
	for line := range strings.Lines(out.String()) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	for _, want := range []string{
		"os/arch, 2 CPUs, go1",
		"7 real pods",
		"cold client-go 2.00 1.00 100.0 MB 200.0 MB 300.0 MB 5.0 MB",
		"disk 3.00 x1.50 1.00 4.0 MB 1/25 8.0 MB 1/25 12.0 MB 1/25 5.0 MB 1/1",
		"warm client-go 2.00 1.00 100.0 MB 200.0 MB 300.0 MB 5.0 MB",
		"disk 0.50 1/4 1.00 4.0 MB 1/25 8.0 MB 1/25 12.0 MB 1/25 5.0 MB 1/1",
		"Get, hot disk 123 ns 0",
		"Get, cold disk 60 µs 9 decode 50 µs 1.20",
		"reads objects fit LRU optimum",
		"alike 10 5 50.0% 75.0%",
		"small 0.04 0.05 met",
		"large 400 MB 300 MB MISSED",
	} {
		if !slices.Contains(rows, want) {
			t.Errorf("no line %q in\n%s", want, out.String())
		}
	}
}

func TestReport_WriteJSON_CanBeReadBack(t *testing.T) {
	var out bytes.Buffer
	if err := sample().WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var got Report
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if want := sample(); !reflect.DeepEqual(&got, want) {
		t.Errorf("got %+v, want %+v", &got, want)
	}
}

func TestReport_Missed(t *testing.T) {
	if missed := sample().Missed(); len(missed) != 1 || missed[0].Name != "large" {
		t.Errorf("missed %+v", missed)
	}
}
