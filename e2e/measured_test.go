package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/warmcache/warmcache/e2e/controlplane"
	"github.com/warmcache/warmcache/internal/apitest"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
)

const (
	// manyPods is how many there are in one namespace, fewPods in the other.
	manyPods = 20_000
	fewPods  = 1_000
)

// What client-go has, divided by what disk residency may have, with room for what a
// process has anyway, and for another Go.
const (
	heapRatio = 10
	peakRatio = 3
	// growth is by how much more the first Get may take where there are manyPods
	// instead of fewPods.
	growth = 5
)

// TestMemory_OnDisk_IsAPartOfClientGos runs an informer in disk residency beside
// client-go's, each in a process of its own, and compares what they take: for the
// first list, and for the one that an API server asks for that has forgotten.
func TestMemory_OnDisk_IsAPartOfClientGos(t *testing.T) {
	if testing.Short() {
		t.Skip("creates 20,000 pods")
	}
	t.Parallel()
	c := newCrowd(t)
	theirs := c.start(measuredConfig{Namespace: c.many})
	cold := theirs.next()
	ours := c.start(measuredConfig{Namespace: c.many, Path: c.path(c.many)})
	c.compare("cold list", cold, ours.next())

	c.forgetHistory()
	c.createPods(c.many, markerPrefix+"0")
	theirs.ask(markerPrefix + "0")
	ours.ask(markerPrefix + "0")
	relisted := ours.next()
	c.compare("relist", theirs.next(), relisted)
	if relisted.Lists != 2 {
		t.Errorf("%d lists, want one more than the first", relisted.Lists)
	}
	theirs.stop()
	ours.stop()

	few := c.start(measuredConfig{Namespace: c.few, Path: c.path(c.few)})
	few.next()
	few.stop()
	c.compareFirstGets()
}

// compare fails the test unless ours is the wanted part of theirs.
func (c *crowd) compare(phase string, theirs, ours measurement) {
	t := c.t
	t.Helper()
	t.Logf("%s: client-go: heap %s, at most %s, RssAnon %s", phase, mega(theirs.Heap), mega(theirs.Peak), mega(theirs.RssAnon))
	t.Logf("%s: on disk: heap %s (1/%.1f), at most %s (1/%.1f), RssAnon %s (1/%.1f)", phase,
		mega(ours.Heap), ratio(theirs.Heap, ours.Heap), mega(ours.Peak), ratio(theirs.Peak, ours.Peak),
		mega(ours.RssAnon), ratio(theirs.RssAnon, ours.RssAnon))
	if ours.Objects != theirs.Objects || ours.Objects < manyPods {
		t.Errorf("%s: %d objects, client-go has %d", phase, ours.Objects, theirs.Objects)
	}
	if got := ratio(theirs.Heap, ours.Heap); got < heapRatio {
		t.Errorf("%s: the heap is 1/%.1f of client-go's, want 1/%d or less", phase, got, heapRatio)
	}
	if got := ratio(theirs.Peak, ours.Peak); got < peakRatio {
		t.Errorf("%s: the highest heap is 1/%.1f of client-go's, want 1/%d or less", phase, got, peakRatio)
	}
}

// compareFirstGets fails the test if opening a file and reading one object takes
// longer the more objects there are. Of several attempts the fastest counts: anything
// may keep a process waiting.
func (c *crowd) compareFirstGets() {
	c.t.Helper()
	fastest := map[string]time.Duration{}
	for range 7 {
		for _, namespace := range []string{c.few, c.many} {
			config := measuredConfig{Host: "https://127.0.0.1:1", Namespace: namespace, Path: c.path(namespace), Get: namespace + "/" + apitest.PodName(fewPods/2)}
			r := c.run(config)
			took := r.next().FirstGet
			r.stop()
			if best, again := fastest[namespace]; !again || took < best {
				fastest[namespace] = took
			}
		}
	}
	few, many := fastest[c.few], fastest[c.many]
	c.t.Logf("from opening the file to the first Get: %s of %d, %s of %d", few, fewPods, many, manyPods)
	if many > growth*few {
		c.t.Errorf("the first Get takes %s of %d objects and %s of %d", few, fewPods, many, manyPods)
	}
}

func ratio(theirs, ours int64) float64 { return float64(theirs) / float64(ours) }

func mega(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }

// crowd is a control plane with many pods, which are none of the other tests'
// business.
type crowd struct {
	t         *testing.T
	plane     *controlplane.ControlPlane
	client    *kubernetes.Clientset
	few, many string
	dir       string
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	plane, err := controlplane.Start(t.Context(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	config := plane.API.Config()
	config.QPS, config.ContentType = -1, runtime.ContentTypeProtobuf
	c := &crowd{t: t, plane: plane, dir: t.TempDir()}
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	c.few, c.many = newNamespace(t, c.client), newNamespace(t, c.client)
	started := time.Now()
	for namespace, pods := range map[string]int{c.few: fewPods, c.many: manyPods} {
		var names []string
		for i := range pods {
			names = append(names, apitest.PodName(i))
		}
		c.createPods(namespace, names...)
	}
	t.Logf("created the pods in %s", time.Since(started).Round(time.Second))
	return c
}

// createPods creates pods of about 5 KB. Nobody runs them.
func (c *crowd) createPods(namespace string, names ...string) {
	c.t.Helper()
	pods := make(chan *corev1.Pod)
	var creating sync.WaitGroup
	for range 8 {
		creating.Go(func() {
			for pod := range pods {
				if _, err := c.client.CoreV1().Pods(namespace).Create(c.t.Context(), pod, metav1.CreateOptions{}); err != nil {
					c.t.Error(err)
				}
			}
		})
	}
	for i, name := range names {
		pod := apitest.Pod(namespace, name, i)
		// The server makes its own, which are shorter.
		pod.ManagedFields = nil
		pod.Annotations["example.com/notes"] = string(bytes.Repeat([]byte("note"), 250))
		pods <- pod
	}
	close(pods)
	creating.Wait()
	if c.t.Failed() {
		c.t.FailNow()
	}
}

// forgetHistory is forgetHistory of this control plane.
func (c *crowd) forgetHistory() {
	c.t.Helper()
	newNamespace(c.t, c.client)
	if err := c.plane.API.Restart(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

func (c *crowd) path(namespace string) string { return filepath.Join(c.dir, namespace+".db") }

// measuredRun is a process that is measured, seen from outside.
type measuredRun struct {
	t       *testing.T
	path    string
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	reports *json.Decoder
	log     bytes.Buffer
}

// start starts a process that talks to the control plane.
func (c *crowd) start(config measuredConfig) *measuredRun {
	c.t.Helper()
	api := c.plane.API.Config()
	config.Host, config.Token, config.CA = api.Host, api.BearerToken, api.CAData
	return c.run(config)
}

func (c *crowd) run(config measuredConfig) *measuredRun {
	t := c.t
	t.Helper()
	encoded, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &measuredRun{t: t, path: config.Path, cmd: exec.Command(executable)}
	r.cmd.Env = append(os.Environ(), measuredEnv+"="+string(encoded))
	r.cmd.Stderr = &r.log
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.reports = json.NewDecoder(out)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	return r
}

// ask begins a measurement that ends when the process knows a pod.
func (r *measuredRun) ask(pod string) {
	r.t.Helper()
	if _, err := io.WriteString(r.stdin, pod+"\n"); err != nil {
		r.t.Fatal(err)
	}
}

// next returns the next report, or fails the test if there is none within a few
// minutes.
func (r *measuredRun) next() (m measurement) {
	r.t.Helper()
	tooLong := time.AfterFunc(5*patience, func() { _ = r.cmd.Process.Kill() })
	defer tooLong.Stop()
	if err := r.reports.Decode(&m); err != nil {
		_ = r.cmd.Wait()
		r.t.Fatalf("the process says nothing: %v\n%s", err, &r.log)
	}
	return m
}

// stop ends the process gracefully.
func (r *measuredRun) stop() {
	r.t.Helper()
	if err := r.stdin.Close(); err != nil {
		r.t.Error(err)
	}
	if err := r.cmd.Wait(); err != nil {
		r.t.Errorf("the process ended with %v\n%s", err, &r.log)
	}
	if r.path != "" {
		bolttest.CheckFile(r.t, r.path)
	}
}
