package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/warmcache/warmcache/bench/internal/process"
	"github.com/warmcache/warmcache/bench/internal/report"
	"github.com/warmcache/warmcache/bench/internal/subject"
)

// TestMain lets the test binary be its own child.
func TestMain(m *testing.M) {
	if process.IsChild() {
		os.Exit(process.Child(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// TestRun_MeasuresEverySubjectInEveryPhase runs the processes with few pods, which
// show nothing but that all is measured.
func TestRun_MeasuresEverySubjectInEveryPhase(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute: every restart waits for its proof")
	}
	var out, log bytes.Buffer
	dir := t.TempDir()
	args := []string{"-suites", "pods,small-pods", "-pods", "200", "-small-pods", "300", "-o", "json", "-dir", dir}
	if status := run(t.Context(), args, &out, &log); status != exitOK {
		t.Fatalf("exit status %d; log:\n%s", status, log.String())
	}
	var r report.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	for i, phases := range [][]string{
		{phaseCold, phaseSteady, phaseOutage, phaseResume, phaseReadsOnly, phaseRelist, phasePaged},
		{phaseCold, phaseResume, phaseQueries, phaseReadsOnly, phaseRelist},
	} {
		for _, phase := range phases {
			for _, kind := range subject.Kinds {
				if _, measured := r.Suites[i].Find(phase, string(kind)); !measured {
					t.Errorf("suite %d has no phase %q of %s", i, phase, kind)
				}
			}
		}
	}
	if len(r.Aims) != 12 {
		t.Errorf("%d aims, want 12", len(r.Aims))
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("what is left: %v, %v", files, err)
	}
}

// TestRun_Check knows that no process takes as little as the aims allow for so few
// pods.
func TestRun_Check_FailsIfAnAimIsMissed(t *testing.T) {
	var out, log bytes.Buffer
	args := []string{"-check", "-suites", "pods", "-pods", "100", "-subjects", "client-go,disk", "-dir", t.TempDir()}
	if status := run(t.Context(), args, &out, &log); status != exitFailed || !strings.Contains(log.String(), "aims are missed") {
		t.Errorf("exit status %d; log:\n%s", status, log.String())
	}
	if !strings.Contains(out.String(), "MISSED") {
		t.Errorf("no aim is marked as missed:\n%s", out.String())
	}
}

func TestRun_Interrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, log bytes.Buffer
	if status := run(ctx, []string{"-suites", "pods", "-pods", "100", "-dir", t.TempDir()}, &out, &log); status != exitInterrupted {
		t.Errorf("exit status %d; log:\n%s", status, log.String())
	}
}

func TestRun_BadInput(t *testing.T) {
	for _, args := range []string{
		"-pods 99", "-pods x", "-small-pods 1e9", "-subjects tape", "-suites all", "-o yaml", "-what", "more",
	} {
		var out, log bytes.Buffer
		status := run(t.Context(), strings.Fields(args), &out, &log)
		if status != exitBadInput || out.Len() > 0 || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("%s: exit status %d, output %q, log %q", args, status, out.String(), log.String())
		}
	}
}

func TestRun_Help(t *testing.T) {
	var out, log bytes.Buffer
	if status := run(t.Context(), []string{"-h"}, &out, &log); status != exitOK || log.Len() > 0 {
		t.Errorf("exit status %d, log %q", status, log.String())
	}
	for _, flag := range []string{"-pods", "-small-pods", "-subjects", "-suites", "-check", "-o text|json", "-dir", "-profiles"} {
		if !strings.Contains(out.String(), "  "+flag) {
			t.Errorf("the usage does not explain %s", flag)
		}
	}
}

func TestParseOptions(t *testing.T) {
	o, err := parseOptions(strings.Fields("-pods 100 -small-pods 200 -subjects disk -suites cache,pods -o json -check"))
	if err != nil {
		t.Fatal(err)
	}
	if o.pods != 100 || o.smallPods != 200 || !o.json || !o.check ||
		!slices.Equal(o.subjects, []subject.Kind{subject.Disk}) || !slices.Equal(o.suites, []string{suiteCache, suitePods}) {
		t.Errorf("options: %+v", o)
	}
}

func TestAims_OperationsHaveThem(t *testing.T) {
	r := &report.Report{Benchmarks: []report.Benchmark{
		{Operation: "Get, hot", Subject: "disk", Nanos: 400},
		{Operation: "Get, cold", Subject: "disk", Nanos: 60, Against: "decode", AgainstNanos: 50, Limit: 1.5},
	}}
	all := aims(r)
	if len(all) != 2 || all[0].Met() || !all[1].Met() {
		t.Errorf("aims: %+v", all)
	}
}
