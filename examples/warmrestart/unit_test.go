package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

func v(uid, rv string) version { return version{UID: types.UID(uid), RV: rv} }

func TestMistakes(t *testing.T) {
	before := state{"stays": v("s", "1"), "changes": v("c", "2"), "goes": v("g", "3"), "returns": v("r", "4")}
	want := state{"stays": v("s", "1"), "changes": v("c", "5"), "returns": v("r2", "6"), "new": v("n", "7")}
	deleted := []instance{{"goes", "g"}, {"returns", "r"}}
	for name, test := range map[string]struct {
		change func(*childReport)
		wrong  []string
	}{
		"all right":              {func(*childReport) {}, nil},
		"delete missed":          {func(r *childReport) { r.Deleted = r.Deleted[1:] }, []string{"goes"}},
		"recreation missed":      {func(r *childReport) { r.Deleted = r.Deleted[:1] }, []string{"returns"}},
		"delete of another":      {func(r *childReport) { r.Deleted[0].UID = "other" }, []string{"goes"}},
		"add missed":             {func(r *childReport) { delete(r.Known, "new") }, []string{"new"}},
		"never told, but knew":   {func(r *childReport) { delete(r.Known, "stays") }, nil},
		"update missed":          {func(r *childReport) { delete(r.Known, "changes") }, []string{"changes"}},
		"old state delivered":    {func(r *childReport) { r.Known["changes"] = v("c", "2") }, []string{"changes"}},
		"not in the cache":       {func(r *childReport) { delete(r.Cached, "stays") }, []string{"stays"}},
		"still in the cache":     {func(r *childReport) { r.Cached["goes"] = v("g", "3") }, []string{"goes"}},
		"still told of":          {func(r *childReport) { r.Known["goes"] = v("g", "3") }, []string{"goes"}},
		"one key counts once":    {func(r *childReport) { delete(r.Known, "new"); delete(r.Cached, "new") }, []string{"new"}},
		"known, deletes dropped": {func(r *childReport) { r.Deleted = nil }, []string{"goes", "returns"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &childReport{Known: maps.Clone(want), Cached: maps.Clone(want), Deleted: slices.Clone(deleted)}
			test.change(r)
			got := slices.Sorted(maps.Keys(mistakes(want, r, before, deleted)))
			if !slices.Equal(got, test.wrong) {
				t.Errorf("wrong = %q, want %q", got, test.wrong)
			}
		})
	}
}

func TestPlanFor_TouchesEachObjectOnce(t *testing.T) {
	for n, want := range map[int]struct{ remove, update, add, recreate int }{
		0:         {0, 0, 1, 0},
		1:         {1, 0, 1, 0},
		2:         {1, 1, 1, 1},
		30_000:    {300, 300, 300, 1},
		1_000_000: {1000, 1000, 1000, 1},
	} {
		p := planFor(n)
		if len(p.remove) != want.remove || len(p.update) != want.update || len(p.add) != want.add || len(p.recreate) != want.recreate {
			t.Errorf("planFor(%d) has %d, %d, %d, %d; want %v", n, len(p.remove), len(p.update), len(p.add), len(p.recreate), want)
		}
		seen := map[int]bool{}
		for _, i := range slices.Concat(p.remove, p.update, p.add) {
			if seen[i] {
				t.Errorf("planFor(%d) touches %d twice", n, i)
			}
			seen[i] = true
		}
	}
}

func pod(name, uid, rv string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name, UID: types.UID(uid), ResourceVersion: rv}}
}

func TestRecorder_KeepsWhatItWasTold(t *testing.T) {
	r := newRecorder()
	r.OnAdd(pod("gone", "g", "1"), true)
	r.OnAdd(pod("tomb", "t", "2"), true)
	r.OnAdd(pod("here", "h", "3"), true)
	r.OnUpdate(pod("here", "h", "3"), pod("here", "h", "4"))
	r.OnDelete(pod("gone", "g", "5"))
	r.OnDelete(cache.DeletedFinalStateUnknown{Key: "x/tomb", Obj: pod("tomb", "t", "2")})
	r.OnDelete(cache.DeletedFinalStateUnknown{Key: "x/unknown"})
	if !r.knows([]any{pod("here", "h", "4")}) || r.knows([]any{pod("here", "h", "3")}) || r.knows(nil) {
		t.Error("knows is wrong")
	}
	r.freeze()
	r.OnAdd(pod("late", "l", "6"), false)
	var got childReport
	r.fill(&got)
	if !maps.Equal(got.Known, state{"x/here": v("h", "4")}) {
		t.Errorf("known = %v", got.Known)
	}
	if want := []instance{{"x/gone", "g"}, {"x/tomb", "t"}, {"x/unknown", ""}}; !slices.Equal(got.Deleted, want) {
		t.Errorf("deleted = %v, want %v", got.Deleted, want)
	}
	if got.Adds != 3 || got.Updates != 1 || got.Deletes != 3 {
		t.Errorf("counts = %+v", got.measured)
	}
}

func TestReport_WriteTable(t *testing.T) {
	r := report{Server: "embedded", Objects: 7, ClientGo: measured{Seconds: 1.234, Lists: 1, BytesReceived: 5_000_000, PeakHeapBytes: 12_340_000, Adds: 7}}
	r.Warm = warmMeasured{measured: measured{Adds: 8, Updates: 2, Deletes: 3}, Outcome: outcomeResumed, DeletedWhileDown: 4, Missed: 1}
	var out bytes.Buffer
	if err := r.writeTable(&out); err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(out.String()) {
		rows = append(rows, strings.Fields(line))
	}
	for _, want := range []string{
		"Restarting an informer of 7 objects, server: embedded",
		"seconds LISTs received peak heap adds updates deletes deleted while down missed",
		"client-go, cold 1.23 1 5.00 MB 12.34 MB 7 0 0 - 0",
		"warmcache, warm, Confirmed 0.00 0 0.00 MB 0.00 MB 8 2 3 4 1",
	} {
		if !slices.ContainsFunc(rows, func(row []string) bool { return strings.Join(row, " ") == want }) {
			t.Errorf("no line %q in\n%s", want, out.String())
		}
	}
}

func TestReport_WriteTable_SaysWhyWarmIsSlower(t *testing.T) {
	for _, warm := range []float64{1, 3} {
		r := report{ClientGo: measured{Seconds: 2}, Warm: warmMeasured{measured: measured{Seconds: warm}}}
		var out bytes.Buffer
		if err := r.writeTable(&out); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.HasSuffix(out.String(), footnoteFew), warm > 2; got != want {
			t.Errorf("warm %v s, cold 2 s: footnote %v, want %v", warm, got, want)
		}
	}
}

func TestCopyPrivate_NobodyElseCanRead(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "to")
	if err := os.WriteFile(filepath.Join(from, "cache.db"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := copyPrivate(to, from); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{"": 0o700, "cache.db": 0o600} {
		info, err := os.Stat(filepath.Join(to, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%q: mode %v, want %v", name, got, want)
		}
	}
}

func TestProgress_OneLineOnATerminalManyElsewhere(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		var out bytes.Buffer
		p := newProgress(&out)
		p.terminal, p.interval = terminal, 0
		p.step("writing")
		p.detail("1 of 2")
		_, _ = p.Write([]byte("log\n"))
		p.step("reading")
		p.done()
		p.done()
		got := strings.ReplaceAll(out.String(), "   0.0s  ", "")
		want := "writing\n1 of 2\nlog\nreading\n"
		if terminal {
			want = "writing\r\x1b[K1 of 2\nlog\nreading\n"
		}
		if got != want {
			t.Errorf("terminal %v: %q, want %q", terminal, got, want)
		}
	}
}

func TestProgress_SparesTheReader(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	p.step("writing")
	p.detail("1 of 2")
	if strings.Contains(out.String(), "1 of 2") {
		t.Errorf("a detail directly after the step: %q", out.String())
	}
}

// TestChildMain_EndsWithItsParent starts a child that nobody feeds.
func TestChildMain_EndsWithItsParent(t *testing.T) {
	spec, err := json.Marshal(childSpec{Host: "http://127.0.0.1:1", Namespace: "x"})
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+string(spec))
	if out, err := child.Output(); err != nil || len(out) > 0 {
		t.Errorf("child: %v, output %q", err, out)
	}
}

func TestRunProcess_SaysWhatTheChildDiedOf(t *testing.T) {
	for name, test := range map[string]struct {
		spec childSpec
		says string
	}{
		"file":   {childSpec{Host: "http://127.0.0.1:1", File: t.TempDir()}, "is a directory"},
		"config": {childSpec{Kubeconfig: "/nonexistent"}, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			_, err := runProcess(t.Context(), test.spec, &stderr)
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("err = %v; stderr:\n%s", err, stderr.String())
			}
		})
	}
}

func TestOneLine(t *testing.T) {
	if got := oneLine(errors.Join(errors.New("a b"), errors.New("c\r\nd"))); got != "a b; c; d" {
		t.Errorf("oneLine = %q", got)
	}
}
