package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/warmcache/warmcache/bench/internal/cluster"
	"github.com/warmcache/warmcache/bench/internal/subject"
)

// TestMain lets the test binary be its own child.
func TestMain(m *testing.M) {
	if IsChild() {
		os.Exit(Child(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

const pods = 200

func newCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	c, err := cluster.New(cluster.Small, pods, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// check wants a report of pods objects with all figures in it.
func check(t *testing.T, r Report, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]bool{
		"seconds": r.Seconds > 0, "objects": r.Objects > 0,
		"heap": r.After.Heap > 0, "peak heap": r.Peak.Heap > 0, "peak RssAnon": r.Peak.Anon > 0,
	} {
		if !value {
			t.Errorf("%s makes no sense: %+v", name, r)
		}
	}
}

func TestProcess_ReportsEachPhase(t *testing.T) {
	c := newCluster(t)
	profiles := filepath.Join(t.TempDir(), "p")
	p, err := Start(t.Context(), subject.Spec{
		Kind: subject.Memory, Host: c.URL(), File: filepath.Join(t.TempDir(), "cache.db"),
	}, Options{Profile: profiles, Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	first, err := p.Sync("cold start")
	if check(t, first, err); first.Received == 0 || first.Lists != 1 || first.Objects != pods {
		t.Errorf("first start: %+v", first)
	}
	if err := p.Mark(); err != nil {
		t.Fatal(err)
	}
	since := time.Now()
	updates, err := c.Change()
	if err != nil {
		t.Fatal(err)
	}
	changed, err := p.Await("changes", updates, since)
	if check(t, changed, err); changed.Received == 0 || changed.Received > first.Received/2 || changed.Lists != 0 {
		t.Errorf("after the first start %+v, changes: %+v", first, changed)
	}
	queried, err := p.Query("queries", []string{cluster.Small.Node(0), cluster.Small.Node(pods - 1)})
	if check(t, queried, err); queried.Objects != 2*cluster.PodsPerNode {
		t.Errorf("queries: %+v", queried)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if _, err := os.Stat(profiles + "-cold-start.heap"); err != nil {
		t.Error(err)
	}
}

func TestProcess_SaysWhatItDiedOf(t *testing.T) {
	c := newCluster(t)
	p, err := Start(t.Context(), subject.Spec{Kind: subject.Memory, Host: c.URL(), File: t.TempDir()}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Sync("start"); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("sync: %v", err)
	}
	if err := p.Stop(); err == nil {
		t.Error("stop: no error")
	}
}

// TestChild_EndsWithItsParent has a child that waits for a server which is not there.
func TestChild_EndsWithItsParent(t *testing.T) {
	var log bytes.Buffer
	p, err := Start(t.Context(), subject.Spec{Kind: subject.ClientGo, Host: "http://127.0.0.1:1"}, Options{Log: &log})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.send.Encode(command{Op: opSync}); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("stop: %v; log:\n%s", err, log.String())
	}
}
