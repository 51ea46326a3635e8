package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/warmcache/warmcache/store/bolt/bolttest"
)

// managers is a program with managers of controller-runtime: a file, two namespaces,
// and the processes that one after the other run on them.
type managers struct {
	t      *testing.T
	writer kubernetes.Interface
	// reader reads from the server.
	reader client.Reader
	config managersConfig
	starts int
}

func newManagers(t *testing.T) *managers {
	t.Helper()
	writer := clientFor(t, "writer")
	config := plane.API.Config()
	config.UserAgent = "reader"
	reader, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &managers{t: t, writer: writer, reader: reader, config: managersConfig{
		Host: config.Host, Token: config.BearerToken, CA: config.CAData, Managers: 1,
		Path: filepath.Join(t.TempDir(), "managers.db"),
		Web:  newNamespace(t, writer), DB: newNamespace(t, writer),
	}}
}

// managersRun is one process with managers, seen from outside.
type managersRun struct {
	m     *managers
	agent string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	// log and err may be read when done is closed.
	log       bytes.Buffer
	err       error
	done      chan struct{}
	snapshots chan *managersSnapshot

	told struct {
		sync.Mutex
		// reconciled has what each controller has last found, by key.
		reconciled map[string]map[string]string
	}
}

// start starts the next process.
func (m *managers) start() *managersRun {
	m.t.Helper()
	m.starts++
	r := &managersRun{m: m, done: make(chan struct{}), snapshots: make(chan *managersSnapshot, 1)}
	r.told.reconciled = map[string]map[string]string{}
	r.agent = fmt.Sprintf("%s/%s/%d", m.t.Name(), m.config.Web, m.starts)
	m.config.UserAgent = r.agent
	if err := r.launch(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(r.cleanUp)
	return r
}

func (r *managersRun) launch() error {
	encoded, err := json.Marshal(r.m.config)
	if err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	r.cmd = exec.Command(executable)
	r.cmd.Env = append(os.Environ(), managersEnv+"="+string(encoded))
	r.cmd.Stderr = &r.log
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := r.cmd.Start(); err != nil {
		return err
	}
	go r.listen(out)
	return nil
}

// listen takes in what the process says until it ends, perhaps in the middle of a
// message.
func (r *managersRun) listen(out io.Reader) {
	defer close(r.done)
	decoder := json.NewDecoder(out)
	for {
		var m managersMessage
		if err := decoder.Decode(&m); err != nil {
			break
		}
		if m.Snapshot != nil {
			r.snapshots <- m.Snapshot
			continue
		}
		r.hear(*m.Reconciled)
	}
	r.err = r.cmd.Wait()
}

func (r *managersRun) hear(found reconciled) {
	r.told.Lock()
	defer r.told.Unlock()
	if r.told.reconciled[found.Controller] == nil {
		r.told.reconciled[found.Controller] = map[string]string{}
	}
	r.told.reconciled[found.Controller][found.Key] = found.RV
}

// reconciled returns what each controller has last found, by key.
func (r *managersRun) reconciled() map[string]map[string]string {
	r.told.Lock()
	defer r.told.Unlock()
	found := map[string]map[string]string{}
	for controller, keys := range r.told.reconciled {
		found[controller] = maps.Clone(keys)
	}
	return found
}

// look returns what the caches hold now.
func (r *managersRun) look() *managersSnapshot {
	r.m.t.Helper()
	return r.ask("look")
}

// index makes the managers, which run, index what they do not yet.
func (r *managersRun) index() {
	r.m.t.Helper()
	r.ask(commandIndex)
	r.m.config.AllIndexed = true
}

func (r *managersRun) ask(line string) *managersSnapshot {
	t := r.m.t
	t.Helper()
	if _, err := io.WriteString(r.stdin, line+"\n"); err != nil {
		t.Fatalf("asking the process: %v", err)
	}
	select {
	case s := <-r.snapshots:
		return s
	case <-r.done:
		t.Fatalf("the process has ended: %v", r.err)
	case <-patiently(t).Done():
		t.Fatal("the process does not answer")
	}
	return nil
}

func (r *managersRun) eventually(what string, check func() error) {
	t := r.m.t
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("waiting until %s: %v: %v", what, err, last)
	}
}

// waitCurrent waits until the caches of all managers hold what the server has, and
// the reconcilers have found it, and the gone objects gone. It returns what the
// caches hold then.
func (r *managersRun) waitCurrent(gone map[string][]string) *managersSnapshot {
	r.m.t.Helper()
	want := r.m.fresh()
	r.eventually("the caches are current", func() error {
		s := r.look()
		for i, c := range s.Caches {
			if diff := cmp.Diff(want, withoutSynced(c)); diff != "" || !c.Synced {
				return fmt.Errorf("cache of manager %d (-server +cache):\n%s\nstatus: %+v", i, diff, s.Informers)
			}
		}
		return nil
	})
	found := r.m.wantReconciled(want, gone)
	r.eventually("the reconcilers know it", func() error {
		if diff := cmp.Diff(found, r.reconciled()); diff != "" {
			return fmt.Errorf("reconcilers (-want +got):\n%s", diff)
		}
		return nil
	})
	return r.look() // Reconcilers start informers, too.
}

func withoutSynced(c cacheContents) cacheContents {
	c.Synced = false
	return c
}

// fresh returns what the cache of a manager should hold.
func (m *managers) fresh() cacheContents {
	m.t.Helper()
	want := cacheContents{Objects: map[string]map[string]map[string]state{}, ByValue: map[string]map[string][]string{}}
	for _, w := range m.config.watchedKinds() {
		want.Objects[w.name] = map[string]map[string]state{}
		byValue := map[string][]string{"": nil, "changed": nil}
		for namespace, p := range w.places {
			list := m.list(w, namespace, p)
			if err := meta.EachListItem(list, func(obj runtime.Object) error {
				value := obj.(client.Object).GetAnnotations()["value"]
				byValue[value] = append(byValue[value], cache.MetaObjectToName(obj.(client.Object)).String())
				return nil
			}); err != nil {
				m.t.Fatal(err)
			}
			states, err := statesIn(list)
			if err != nil {
				m.t.Fatal(err)
			}
			want.Objects[w.name][namespace] = states
		}
		if w.indexed {
			for _, keys := range byValue {
				slices.Sort(keys)
			}
			want.ByValue[w.name] = byValue
		}
	}
	return want
}

// list returns what the server has of what an informer selects, as the cache would
// return it: transformed, and with a kind.
func (m *managers) list(w watchedKind, namespace string, p place) client.ObjectList {
	m.t.Helper()
	list := w.list()
	if err := m.reader.List(m.t.Context(), list, client.InNamespace(namespace), &client.ListOptions{
		Namespace: namespace, Raw: &metav1.ListOptions{LabelSelector: p.labels, FieldSelector: p.fields},
	}); err != nil {
		m.t.Fatal(err)
	}
	if err := meta.EachListItem(list, func(obj runtime.Object) error {
		obj.GetObjectKind().SetGroupVersionKind(w.kind)
		_, err := w.transform(obj)
		return err
	}); err != nil {
		m.t.Fatal(err)
	}
	return list
}

// wantReconciled returns what the controllers of all managers should have found.
func (m *managers) wantReconciled(want cacheContents, gone map[string][]string) map[string]map[string]string {
	found := map[string]map[string]string{}
	for i := range m.config.Managers {
		for watch, namespaces := range want.Objects {
			controller := map[string]string{}
			for _, objects := range namespaces {
				for key, object := range objects {
					controller[key] = object.RV
				}
			}
			for _, key := range gone[watch] {
				controller[key] = ""
			}
			found[fmt.Sprintf("%s/%d", watch, i)] = controller
		}
	}
	return found
}

// statesIn returns the states of the items of a list by their keys.
func statesIn(list client.ObjectList) (map[string]state, error) {
	var objects []any
	if err := meta.EachListItem(list, func(obj runtime.Object) error {
		objects = append(objects, obj)
		return nil
	}); err != nil {
		return nil, err
	}
	return statesOf(objects)
}

// keysIn returns the keys of the items of a list in order.
func keysIn(list client.ObjectList) ([]string, error) {
	states, err := statesIn(list)
	if err != nil || len(states) == 0 {
		return nil, err
	}
	return slices.Sorted(maps.Keys(states)), nil
}

// waitPersisted waits until everything that the informers hold is on disk.
func (r *managersRun) waitPersisted() {
	r.m.t.Helper()
	r.eventually("everything is on disk", func() error {
		for _, s := range r.look().Informers {
			if !s.Persistent || s.PersistedRV != s.RV {
				return fmt.Errorf("not on disk: %+v", s)
			}
		}
		return nil
	})
}

// lists returns the requests by which the process has read whole collections.
func (r *managersRun) lists() []string {
	t := r.m.t
	t.Helper()
	events, err := plane.API.AuditEvents()
	if err != nil {
		t.Fatal(err)
	}
	var lists []string
	for _, e := range events {
		if e.UserAgent == r.agent && e.ListsCollection() {
			lists = append(lists, e.URI)
		}
	}
	return lists
}

// kill ends the process as a crash would.
func (r *managersRun) kill() {
	r.m.t.Helper()
	if err := r.cmd.Process.Kill(); err != nil {
		r.m.t.Fatal(err)
	}
	<-r.done
	bolttest.CheckFile(r.m.t, r.m.config.Path)
}

// stop ends the process gracefully, and returns its log.
func (r *managersRun) stop() string {
	t := r.m.t
	t.Helper()
	if err := r.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.done:
	case <-patiently(t).Done():
		t.Fatalf("%s: does not end", r.agent)
	}
	if r.err != nil {
		t.Errorf("%s: did not stop gracefully: %v", r.agent, r.err)
	}
	bolttest.CheckFile(t, r.m.config.Path)
	return r.log.String()
}

// cleanUp ends a process that the test has left running.
func (r *managersRun) cleanUp() {
	_ = r.cmd.Process.Kill() // Fails if it has ended.
	<-r.done
	if r.m.t.Failed() {
		log := strings.Split(r.log.String(), "\n")
		r.m.t.Logf("end of the log of %s:\n%s", r.agent, strings.Join(log[max(0, len(log)-100):], "\n"))
	}
}
