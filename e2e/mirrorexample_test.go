package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/warmcache/warmcache/store/bolt/bolttest"
)

// mirrorExample runs examples/controllerruntime, process after process.
type mirrorExample struct {
	*testing.T
	program, kubeconfig string
	// cacheFile is empty for controller-runtime's own informers.
	cacheFile      string
	source, target string
	writer         kubernetes.Interface
	starts         int
}

func newMirrorExample(t *testing.T, cacheFile string) *mirrorExample {
	t.Helper()
	dir, writer := t.TempDir(), clientFor(t, "writer")
	e := &mirrorExample{
		T: t, program: filepath.Join(dir, "controllerruntime"), kubeconfig: filepath.Join(dir, "kubeconfig"),
		source: newNamespace(t, writer), target: newNamespace(t, writer), writer: writer,
	}
	if cacheFile != "" {
		e.cacheFile = filepath.Join(dir, cacheFile)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", e.program, ".")
	build.Dir = filepath.Join("..", "examples", "controllerruntime")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the example: %v\n%s", err, out)
	}
	server := plane.API.Config()
	config, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "e2e",
		"clusters": []any{map[string]any{"name": "e2e", "cluster": map[string]any{
			"server": server.Host, "certificate-authority-data": server.CAData,
		}}},
		"users":    []any{map[string]any{"name": "e2e", "user": map[string]any{"token": server.BearerToken}}},
		"contexts": []any{map[string]any{"name": "e2e", "context": map[string]any{"cluster": "e2e", "user": "e2e"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(e.kubeconfig, config, 0o600); err != nil {
		t.Fatal(err)
	}
	return e
}

// mirrorProcess is one process of it.
type mirrorProcess struct {
	*mirrorExample
	// name is argument 0, with which the user agent begins.
	name string
	cmd  *exec.Cmd
	log  mirrorLog
	// done is closed when the process has ended, with err.
	done chan struct{}
	err  error
}

// mirrorLog is written by a process and read by a test.
type mirrorLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *mirrorLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *mirrorLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (e *mirrorExample) start() *mirrorProcess {
	e.Helper()
	e.starts++
	p := &mirrorProcess{mirrorExample: e, name: fmt.Sprintf("%s-%d", e.source, e.starts), done: make(chan struct{})}
	p.cmd = exec.Command(e.program, "-kubeconfig", e.kubeconfig, "-source", e.source, "-target", e.target,
		"-cache-file", e.cacheFile, "-v=2")
	p.cmd.Args[0], p.cmd.Stderr = p.name, &p.log
	if err := p.cmd.Start(); err != nil {
		e.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	e.Cleanup(func() {
		_ = p.cmd.Process.Kill() // Fails if it has ended.
		<-p.done
		if e.Failed() {
			e.Logf("log of %s:\n%s", p.name, &p.log)
		}
	})
	return p
}

// end ends the process with a signal, verifies its file and returns how it ended.
func (p *mirrorProcess) end(signal os.Signal) error {
	p.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		p.Fatal(err)
	}
	select {
	case <-p.done:
	case <-patiently(p.T).Done():
		p.Fatal("the process does not end")
	}
	if p.cacheFile != "" {
		bolttest.CheckFile(p, p.cacheFile)
	}
	return p.err
}

func (p *mirrorProcess) kill() {
	p.Helper()
	if err := p.end(syscall.SIGKILL); err == nil {
		p.Fatal("the process had ended before it was killed")
	}
}

func (p *mirrorProcess) terminate() {
	p.Helper()
	if err := p.end(syscall.SIGTERM); err != nil {
		p.Errorf("after SIGTERM: %v", err)
	}
}

func (p *mirrorProcess) eventually(what string, problem func() string) {
	p.Helper()
	var last string
	err := wait.PollUntilContextTimeout(p.Context(), 10*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		select {
		case <-p.done:
			return false, fmt.Errorf("the process has ended: %w", p.err)
		default:
		}
		last = problem()
		return last == "", nil
	})
	if err != nil {
		p.Fatalf("%v: %s:\n%s", err, what, last)
	}
}

// data returns the ConfigMaps of a namespace that are, or could be, mirrored.
func (e *mirrorExample) data(namespace string, o metav1.ListOptions) map[string]string {
	e.Helper()
	list, err := e.writer.CoreV1().ConfigMaps(namespace).List(e.Context(), o)
	if err != nil {
		e.Fatal(err)
	}
	data := map[string]string{}
	for i := range list.Items {
		data[list.Items[i].Name] = list.Items[i].Data["data"]
	}
	return data
}

// waitMirrored waits until the copies are what the originals are.
func (p *mirrorProcess) waitMirrored() {
	p.Helper()
	want := p.data(p.source, metav1.ListOptions{LabelSelector: "mirror=yes"})
	p.eventually("copies (-originals +copies)", func() string { return cmp.Diff(want, p.data(p.target, metav1.ListOptions{})) })
}

// waitCommitted waits until everything that the process knows by now is in its file:
// a key is in the bytes of the file before the commit ends that brought it there,
// and another commit follows only then.
func (p *mirrorProcess) waitCommitted() {
	p.Helper()
	for n := range 2 {
		name := fmt.Sprintf("%s-marker-%d", p.name, n)
		p.create(name)
		p.eventually("key of "+name, func() string {
			content, err := os.ReadFile(p.cacheFile)
			if err != nil || !bytes.Contains(content, []byte(name)) {
				return fmt.Sprintf("not in the file; %v", err)
			}
			return ""
		})
	}
	p.waitMirrored()
}

// outcomes returns what the process has done, by name of the original, in order.
func (p *mirrorProcess) outcomes() map[string][]string {
	outcomes := map[string][]string{}
	for line := range strings.Lines(p.log.String()) {
		_, rest, ok := strings.Cut(line, `original="`+p.source+"/")
		name, rest, named := strings.Cut(rest, `"`)
		_, rest, _ = strings.Cut(rest, `copy="`)
		outcome, _, finished := strings.Cut(rest, `"`)
		if ok && named && finished {
			outcomes[name] = append(outcomes[name], outcome)
		}
	}
	return outcomes
}

func (p *mirrorProcess) waitForOutcome(name, want string) {
	p.Helper()
	p.eventually("outcomes of "+name, func() string {
		if got := p.outcomes()[name]; !slices.Contains(got, want) {
			return fmt.Sprintf("%q, want %s among them", got, want)
		}
		return ""
	})
}

// wantLists fails the test unless the process has read the originals so often.
func (p *mirrorProcess) wantLists(want int) {
	p.Helper()
	events, err := plane.API.AuditEvents()
	if err != nil {
		p.Fatal(err)
	}
	var r requests
	for _, e := range events {
		if strings.HasPrefix(e.UserAgent, p.name+"/") && e.Resource == "configmaps" {
			r.add(e)
		}
	}
	if p.Logf("%s: %s", p.name, r); r.Lists != want {
		p.Errorf("%s: %s; want %d lists", p.name, r, want)
	}
}

func (e *mirrorExample) create(names ...string) {
	e.Helper()
	for _, name := range names {
		original := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"mirror": "yes"}},
			Data:       map[string]string{"data": "created"},
		}
		if _, err := e.writer.CoreV1().ConfigMaps(e.source).Create(e.Context(), original, metav1.CreateOptions{}); err != nil {
			e.Fatal(err)
		}
	}
}

func (e *mirrorExample) patch(name, patch string) {
	e.Helper()
	if err := configMaps.patch(e.Context(), e.writer, e.source, name, []byte(patch)); err != nil {
		e.Fatal(err)
	}
}

// changeAll changes one object in each way that there is.
func (e *mirrorExample) changeAll() {
	e.Helper()
	e.create("new")
	e.patch("update", `{"data":{"data":"changed"}}`)
	e.patch("unlabel", `{"metadata":{"labels":{"mirror":"no"}}}`)
	deleteConfigMap(e.T, e.writer, e.source, "delete")
	deleteConfigMap(e.T, e.writer, e.source, "recreate")
	e.create("recreate")
	e.patch("recreate", `{"data":{"data":"recreated"}}`)
}

var mirrored = []string{"keep", "update", "unlabel", "delete", "recreate"}

func TestExampleControllerRuntime_Warm_ReconcilesWhatHappenedMeanwhile(t *testing.T) {
	e := newMirrorExample(t, "informers.db")
	e.create(mirrored...)
	createConfigMap(t, e.writer, e.source, "not-mirrored")
	p := e.start()
	p.waitMirrored()
	p.wantLists(1)
	p.waitCommitted()
	p.kill()

	e.changeAll()
	p = e.start()
	p.waitMirrored()
	for _, name := range []string{"keep", "update", "new", "recreate"} {
		p.waitForOutcome(name, "applied")
	}
	for _, name := range []string{"delete", "unlabel"} {
		p.waitForOutcome(name, "removed")
	}
	p.wantLists(0)
	p.terminate()

	// What was in the queue when the program was asked to end may not have been done.
	deleteConfigMap(t, e.writer, e.source, "keep")
	p = e.start()
	p.waitMirrored()
	p.waitForOutcome("keep", "removed")
	p.waitForOutcome("delete", "absent")
	p.waitForOutcome("update", "applied")
	// After a graceful stop so few objects are listed, which is quicker.
	p.wantLists(1)
	p.terminate()
}

// The reference: with controller-runtime's own informers the copies of what was
// deleted while the controller was away stay.
func TestExampleControllerRuntime_Stock_KnowsNothingOfDeletesMeanwhile(t *testing.T) {
	e := newMirrorExample(t, "")
	e.create(mirrored...)
	p := e.start()
	p.waitMirrored()
	p.kill()

	e.changeAll()
	p = e.start()
	for _, name := range []string{"keep", "update", "new", "recreate"} {
		p.waitForOutcome(name, "applied")
	}
	p.wantLists(1)
	copies := p.data(e.target, metav1.ListOptions{})
	for _, name := range []string{"delete", "unlabel"} {
		if _, stale := copies[name]; !stale {
			t.Errorf("the copy of %s is gone: how did the controller know?", name)
		}
	}
	p.terminate()
}
