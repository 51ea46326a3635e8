package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the demo under test start this binary as its children.
func TestMain(m *testing.M) {
	if asChild() {
		os.Exit(childMain(os.Stdin, os.Stdout))
	}
	goleak.VerifyTestMain(m)
}

// outcome is what a run of the program leaves behind.
type outcome struct {
	exit           int
	stdout, stderr string
}

func runDemo(ctx context.Context, children processRunner, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	exit := run(ctx, args, &stdout, &stderr, children)
	return outcome{exit, stdout.String(), stderr.String()}
}

// parse checks that stdout is one JSON object and returns it in both forms.
func (o outcome) parse(t *testing.T) (report, map[string]json.RawMessage) {
	t.Helper()
	var r report
	raw := map[string]json.RawMessage{}
	decoder := json.NewDecoder(strings.NewReader(o.stdout))
	if err := decoder.Decode(&raw); err != nil {
		t.Fatalf("stdout is not JSON: %v; stderr:\n%s", err, o.stderr)
	}
	if _, err := decoder.Token(); err != io.EOF {
		t.Errorf("something follows the JSON object in %q", o.stdout)
	}
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
		t.Fatal(err)
	}
	return r, raw
}

func TestRun_JSON(t *testing.T) {
	t.Parallel()
	got := runDemo(t.Context(), runProcess, "-objects", "200", "-o", "json")
	r, raw := got.parse(t)
	if got.exit != exitOK {
		t.Errorf("exit = %d; stderr:\n%s", got.exit, got.stderr)
	}
	checkKeys(t, "the object", raw, "server", "objects", "clientgo", "cold", "warm", "warmResumed")
	if r.Server != "embedded" || r.Objects != 200 {
		t.Errorf("server = %q, objects = %d", r.Server, r.Objects)
	}
	costs := []string{"seconds", "lists", "probes", "bytesReceived", "peakHeapBytes", "adds", "updates", "deletes"}
	warmCosts := append(slices.Clone(costs), "outcome", "deletedWhileDown", "missed")
	for name, keys := range map[string][]string{"clientgo": costs, "cold": costs, "warm": warmCosts, "warmResumed": warmCosts} {
		fields := map[string]json.RawMessage{}
		if err := json.Unmarshal(raw[name], &fields); err != nil {
			t.Fatal(err)
		}
		checkKeys(t, name, fields, keys...)
	}
	checkCold(t, "clientgo", r.ClientGo, 200)
	checkCold(t, "cold", r.Cold, 200)
	checkWarm(t, "warm", r.Warm, planFor(200), r.Cold)
	checkWarm(t, "warmResumed", r.WarmResumed, planFor(200), r.Cold)
	for _, step := range []string{"creating 200 pods", "client-go, cold", "killed; its file is complete", "Confirmed", "Resumed"} {
		if !strings.Contains(got.stderr, step) {
			t.Errorf("progress does not mention %q:\n%s", step, got.stderr)
		}
	}
}

func checkKeys(t *testing.T, what string, got map[string]json.RawMessage, want ...string) {
	t.Helper()
	slices.Sort(want)
	if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, want) {
		t.Errorf("%s has keys %v, want %v", what, keys, want)
	}
}

func checkCold(t *testing.T, name string, m measured, objects int) {
	t.Helper()
	if m.Adds != objects || m.Updates != 0 || m.Deletes != 0 || m.Lists != 1 {
		t.Errorf("%s: %+v", name, m)
	}
	if m.Seconds <= 0 || m.BytesReceived <= int64(objects)*1000 || m.PeakHeapBytes <= 0 {
		t.Errorf("%s measured nothing: %+v", name, m)
	}
}

// checkWarm checks the result of a start after the changes of p.
func checkWarm(t *testing.T, name string, w warmMeasured, p plan, cold measured) {
	t.Helper()
	if w.Outcome != outcomeResumed || w.Missed != 0 || w.Lists != 0 || w.Probes == 0 {
		t.Errorf("%s: %+v", name, w)
	}
	if w.DeletedWhileDown != len(p.remove) || w.Deletes != len(p.remove) {
		t.Errorf("%s: %d deletes delivered of %d; want %d", name, w.Deletes, w.DeletedWhileDown, len(p.remove))
	}
	if w.BytesReceived*2 > cold.BytesReceived && cold.Adds > 100 {
		t.Errorf("%s received %d bytes, a cold start %d", name, w.BytesReceived, cold.BytesReceived)
	}
}

// TestRun_ResumesSmallCollections has collections that are not worth resuming.
func TestRun_ResumesSmallCollections(t *testing.T) {
	t.Parallel()
	for _, n := range []string{"0", "1", "2", "10"} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			got := runDemo(t.Context(), runProcess, "-objects", n, "-o", "json")
			r, _ := got.parse(t)
			if got.exit != exitOK {
				t.Errorf("exit = %d; stderr:\n%s", got.exit, got.stderr)
			}
			checkWarm(t, "warm", r.Warm, planFor(r.Objects), r.Cold)
			checkWarm(t, "warmResumed", r.WarmResumed, planFor(r.Objects), r.Cold)
		})
	}
}

// tampering runs real children and changes what the warm one with the given
// policy reports.
func tampering(resumed bool, change func(*childReport)) processRunner {
	starts := 0
	return func(ctx context.Context, spec childSpec, stderr io.Writer) (*childReport, error) {
		r, err := runProcess(ctx, spec, stderr)
		if starts++; err == nil && starts > 2 && spec.Resumed == resumed {
			change(r)
		}
		return r, err
	}
}

func TestRun_WhatWentWrongShowsInTheExitStatus(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		resumed bool
		change  func(*childReport)
		missed  int
		says    string
	}{
		"delete not delivered": {false, func(r *childReport) { r.Deleted = r.Deleted[1:] }, 1, "(Confirmed) got 1 objects wrong"},
		"cache is stale": {true, func(r *childReport) {
			for key := range r.Cached {
				r.Cached[key] = version{RV: "1"}
				return
			}
		}, 1, "(Resumed) got 1 objects wrong"},
		"listed": {true, func(r *childReport) { r.Lists, r.Outcome = 1, "listed: expired" }, 0, "(Resumed) made 1 LISTs (listed: expired)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := runDemo(t.Context(), tampering(test.resumed, test.change), "-objects", "20", "-o", "json")
			r, _ := got.parse(t)
			if got.exit != exitFailed || !strings.Contains(got.stderr, test.says) {
				t.Errorf("exit = %d; stderr:\n%s", got.exit, got.stderr)
			}
			w, other := r.Warm, r.WarmResumed
			if test.resumed {
				w, other = other, w
			}
			if w.Missed != test.missed || other.Missed != 0 {
				t.Errorf("missed = %d and %d, want %d and 0", w.Missed, other.Missed, test.missed)
			}
		})
	}
}

func TestRun_BadInput(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := dir + "/" + name
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, args := range map[string][]string{
		"objects: not a number": {"-objects", "many"},
		"objects: negative":     {"-objects", "-1"},
		"objects: too many":     {"-objects", "1000001"},
		"output":                {"-o", "yaml"},
		"flag":                  {"-nonsense"},
		"argument":              {"nonsense"},
		"kubeconfig: unset":     {"-kubeconfig", ""},
		"kubeconfig: missing":   {"-kubeconfig", dir + "/missing"},
		"kubeconfig: directory": {"-kubeconfig", dir},
		"kubeconfig: empty":     {"-kubeconfig", write("empty", "")},
		"kubeconfig: garbage":   {"-kubeconfig", write("garbage", "\x00{{{")},
		"kubeconfig: no server": {"-kubeconfig", write("noserver", kubeconfigFor(""))},
		"kubeconfig: no such CA": {"-kubeconfig", write("noca", strings.ReplaceAll(kubeconfigFor("https://127.0.0.1:1"), "cluster:\n",
			"cluster:\n    certificate-authority: /nonexistent\n"))},
		"kubeconfig: nobody listens": {"-kubeconfig", write("unreachable", kubeconfigFor("http://127.0.0.1:1"))},
	} {
		t.Run(name, func(t *testing.T) {
			got := runDemo(t.Context(), noProcess(t), args...)
			if got.exit != exitBadInput {
				t.Errorf("exit = %d, want %d", got.exit, exitBadInput)
			}
			checkOneLine(t, got)
		})
	}
}

// checkOneLine checks that an error is all that was written.
func checkOneLine(t *testing.T, got outcome) {
	t.Helper()
	if got.stdout != "" || !strings.HasPrefix(got.stderr, "warmrestart: ") || strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("stdout = %q, stderr = %q", got.stdout, got.stderr)
	}
}

func noProcess(t *testing.T) processRunner {
	return func(context.Context, childSpec, io.Writer) (*childReport, error) {
		t.Error("a process was started")
		return nil, os.ErrInvalid
	}
}

func TestRun_Help(t *testing.T) {
	got := runDemo(t.Context(), noProcess(t), "-h")
	if got.exit != exitOK || got.stderr != "" || !strings.HasPrefix(got.stdout, "Usage: warmrestart") || strings.Contains(got.stdout, "%!") {
		t.Errorf("%+v", got)
	}
}
