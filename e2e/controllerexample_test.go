package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/warmcache/warmcache/e2e/controlplane"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
)

// exampleController runs examples/controller, process after process.
type exampleController struct {
	*testing.T
	program, kubeconfig  string
	directory, cacheFile string
	namespace            string
	writer               kubernetes.Interface
	starts               int
}

// exampleProcess is one process of it.
type exampleProcess struct {
	*exampleController
	// name is argument 0, with which client-go's default user agent begins.
	name string
	cmd  *exec.Cmd
	log  lockedBuffer
	done chan error
}

// lockedBuffer is written by a process and read by a test.
type lockedBuffer struct {
	sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.Lock()
	defer b.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.Lock()
	defer b.Unlock()
	return b.Buffer.String()
}

func newExampleController(t *testing.T) *exampleController {
	t.Helper()
	dir, writer := t.TempDir(), clientFor(t, "writer")
	e := &exampleController{
		T: t, program: filepath.Join(dir, "controller"), kubeconfig: filepath.Join(dir, "kubeconfig"),
		directory: filepath.Join(dir, "files"), cacheFile: filepath.Join(dir, "cache.db"),
		namespace: newNamespace(t, writer), writer: writer,
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", e.program, "./examples/controller")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the example: %v\n%s", err, out)
	}
	e.writeKubeconfig()
	return e
}

func (e *exampleController) writeKubeconfig() {
	e.Helper()
	server := plane.API.Config()
	// By hand: clientcmd would bring a module of its own.
	config, err := json.Marshal(object{
		"apiVersion": "v1", "kind": "Config", "current-context": "e2e",
		"clusters": []object{{"name": "e2e", "cluster": object{"server": server.Host, "certificate-authority-data": server.CAData}}},
		"users":    []object{{"name": "e2e", "user": object{"token": server.BearerToken}}},
		"contexts": []object{{"name": "e2e", "context": object{"cluster": "e2e", "user": "e2e"}}},
	})
	if err != nil {
		e.Fatal(err)
	}
	if err := os.WriteFile(e.kubeconfig, config, 0o600); err != nil {
		e.Fatal(err)
	}
}

func (e *exampleController) start() *exampleProcess {
	e.Helper()
	e.starts++
	p := &exampleProcess{exampleController: e, name: fmt.Sprintf("%s-%d", e.namespace, e.starts), done: make(chan error, 1)}
	p.cmd = exec.Command(e.program, "-kubeconfig", e.kubeconfig, "-namespace", e.namespace,
		"-directory", e.directory, "-cache-file", e.cacheFile, "-v=2")
	p.cmd.Args[0], p.cmd.Stderr = p.name, &p.log
	if err := p.cmd.Start(); err != nil {
		e.Fatal(err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	e.Cleanup(func() {
		_ = p.cmd.Process.Kill() // Fails if it has ended.
		if e.Failed() {
			e.Logf("log of %s:\n%s", p.name, &p.log)
		}
	})
	return p
}

// end ends the process with a signal, verifies its file and returns how it ended.
func (p *exampleProcess) end(signal os.Signal) error {
	p.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		p.Fatal(err)
	}
	select {
	case err := <-p.done:
		if p.cacheFile != "" {
			bolttest.CheckFile(p, p.cacheFile)
		}
		return err
	case <-patiently(p.T).Done():
		p.Fatal("the process does not end")
	}
	return nil
}

// kill ends the process as a crash would.
func (p *exampleProcess) kill() {
	p.Helper()
	if err := p.end(syscall.SIGKILL); err == nil {
		p.Fatal("the process had ended before it was killed")
	}
}

// terminate asks the process to end.
func (p *exampleProcess) terminate() {
	p.Helper()
	if err := p.end(syscall.SIGTERM); err != nil {
		p.Errorf("after SIGTERM: %v", err)
	}
}

// waitReconciled waits until the files are what the server says they have to be.
func (p *exampleProcess) waitReconciled() {
	p.Helper()
	list, err := p.writer.CoreV1().ConfigMaps(p.namespace).List(p.Context(), metav1.ListOptions{})
	if err != nil {
		p.Fatal(err)
	}
	want := map[string]string{}
	for i := range list.Items {
		content, err := json.Marshal(list.Items[i].Data)
		if err != nil {
			p.Fatal(err)
		}
		want[list.Items[i].Name+".json"] = string(content)
	}
	p.eventually("files (-server +directory)", func() string { return cmp.Diff(want, p.files()) })
}

// eventually waits until problem returns nothing.
func (p *exampleProcess) eventually(what string, problem func() string) {
	p.Helper()
	var last string
	err := wait.PollUntilContextTimeout(p.Context(), 10*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		select {
		case err := <-p.done:
			return false, fmt.Errorf("the process has ended: %w", err)
		default:
		}
		last = problem()
		return last == "", nil
	})
	if err != nil {
		p.Fatalf("%v: %s:\n%s", err, what, last)
	}
}

func (e *exampleController) files() map[string]string {
	e.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(filepath.Join(e.directory, e.namespace))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		e.Fatal(err)
	}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(e.directory, e.namespace, entry.Name()))
		if err != nil {
			continue // Removed or renamed meanwhile.
		}
		files[entry.Name()] = string(content)
	}
	return files
}

// waitCommitted waits until everything that the process knows by now is in its
// file, as far as that can be seen from outside: a key is in the bytes of the file
// before the commit ends that brought it there, and another commit follows only
// then.
func (p *exampleProcess) waitCommitted() {
	p.Helper()
	for n := range 2 {
		name := fmt.Sprintf("%s-marker-%d", p.name, n)
		createConfigMap(p.T, p.writer, p.namespace, name)
		p.eventually("key of "+name, func() string {
			content, err := os.ReadFile(p.cacheFile)
			if err != nil || !bytes.Contains(content, []byte(name)) {
				return fmt.Sprintf("not in the file; %v", err)
			}
			return ""
		})
	}
}

// outcomes returns what the process has done, by name of the ConfigMap, in order.
func (p *exampleProcess) outcomes() map[string][]string {
	outcomes := map[string][]string{}
	for line := range strings.Lines(p.log.String()) {
		var name, outcome string
		_, rest, ok := strings.Cut(line, `"Reconciled" configMap="`+p.namespace+"/")
		if !ok {
			continue
		}
		name, rest, _ = strings.Cut(rest, `"`)
		_, outcome, _ = strings.Cut(rest, `file="`)
		outcomes[name] = append(outcomes[name], strings.TrimSuffix(strings.TrimSpace(outcome), `"`))
	}
	return outcomes
}

// waitForOutcome waits until the process has reconciled an object with a result.
func (p *exampleProcess) waitForOutcome(name, want string) {
	p.Helper()
	p.eventually("outcomes of "+name, func() string {
		if got := p.outcomes()[name]; !slices.Contains(got, want) {
			return fmt.Sprintf("%q, want %s among them", got, want)
		}
		return ""
	})
}

func (p *exampleProcess) wantLists(want int) {
	p.Helper()
	r := requestsFor(p.T, plane.API, func(e controlplane.AuditEvent) bool {
		return strings.HasPrefix(e.UserAgent, p.name+"/") && e.Resource == "configmaps"
	})
	if p.Logf("%s: %s", p.name, r); r.Lists != want {
		p.Errorf("%s: %s; want %d lists", p.name, r, want)
	}
}

func (e *exampleController) create(names ...string) {
	e.Helper()
	for _, name := range names {
		createConfigMap(e.T, e.writer, e.namespace, name)
	}
}

// changeAll changes one object in each way that there is.
func (e *exampleController) changeAll(round string) {
	e.Helper()
	e.create(round + "-new")
	touchConfigMap(e.T, e.writer, e.namespace, round+"-update", "changed")
	deleteConfigMap(e.T, e.writer, e.namespace, round+"-delete")
	deleteConfigMap(e.T, e.writer, e.namespace, round+"-recreate")
	e.create(round + "-recreate")
	touchConfigMap(e.T, e.writer, e.namespace, round+"-recreate", "recreated")
}

func TestExampleController_Warm_ReconcilesWhatHappenedMeanwhile(t *testing.T) {
	e := newExampleController(t)
	for _, round := range []string{"killed", "stopped"} {
		e.create(round+"-keep", round+"-update", round+"-delete", round+"-recreate")
	}
	p := e.start()
	p.waitReconciled()
	p.wantLists(1)
	p.waitCommitted()
	p.kill()

	e.changeAll("killed")
	p = e.start()
	p.waitReconciled()
	p.wantLists(0)
	p.waitForOutcome("killed-keep", "unchanged")
	p.waitForOutcome("killed-update", "written")
	p.waitForOutcome("killed-new", "written")
	p.waitForOutcome("killed-delete", "removed")
	p.waitForOutcome("killed-recreate", "written")
	p.terminate()

	e.changeAll("stopped")
	p = e.start()
	p.waitReconciled()
	// After a graceful stop so few objects are listed, which is quicker.
	p.wantLists(1)
	p.waitForOutcome("stopped-delete", "removed")
	p.waitForOutcome("stopped-recreate", "written")
	// Delivered again, because nobody says when a worker is done with a key.
	p.waitForOutcome("killed-delete", "absent")
	p.terminate()
}

// The reference: with client-go's informers the files of what was deleted while
// the controller was away stay.
func TestExampleController_ClientGo_KnowsNothingOfDeletesMeanwhile(t *testing.T) {
	e := newExampleController(t)
	e.cacheFile = ""
	e.create("killed-update", "killed-delete", "killed-recreate")
	p := e.start()
	p.waitReconciled()
	p.kill()

	e.changeAll("killed")
	p = e.start()
	p.waitForOutcome("killed-new", "written")
	p.waitForOutcome("killed-update", "written")
	p.waitForOutcome("killed-recreate", "written")
	p.wantLists(1)
	if _, stale := e.files()["killed-delete.json"]; !stale {
		t.Error("the file of a deleted object is gone: how did the controller know?")
	}
	p.terminate()
}
