package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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
	"github.com/warmcache/warmcache/store/bolt"
)

// subject is a program with persistent informers: a file, a namespace of its own,
// and the processes that one after the other run on them.
type subject struct {
	t         *testing.T
	kinds     []kind
	namespace string
	// writer changes what the informers watch.
	writer kubernetes.Interface
	// api is the API server that the requests of the processes are counted by.
	api *controlplane.APIServer
	// config is what the next process is given, apart from the user agent.
	config childConfig
	starts int
	// knowledge has the notes that each resource's handler leaves behind for the
	// next process.
	knowledge map[string]*knowledge
}

// newSubject returns a subject that always resumes if it can, however few the
// objects are.
func newSubject(t *testing.T, kinds ...kind) *subject {
	t.Helper()
	s := &subject{t: t, kinds: kinds, writer: clientFor(t, "writer"), knowledge: map[string]*knowledge{}}
	s.namespace = newNamespace(t, s.writer)
	s.config = childConfig{
		Path:      filepath.Join(t.TempDir(), "informers.db"),
		Namespace: s.namespace,
		ListBelow: -1,
	}
	for _, k := range kinds {
		s.config.Resources = append(s.config.Resources, k.resource)
		s.knowledge[k.resource.Resource] = newKnowledge()
	}
	s.connectTo(plane.API)
	return s
}

// connectTo makes the next processes talk to an API server.
func (s *subject) connectTo(api *controlplane.APIServer) {
	config := api.Config()
	s.api = api
	s.config.Host, s.config.Token, s.config.CA = config.Host, config.BearerToken, config.CAData
}

// create creates objects of each kind, of about 100 bytes, with labels like
// "a=b,c=d".
func (s *subject) create(labels string, names ...string) {
	s.t.Helper()
	s.createSized(100, labels, names...)
}

func (s *subject) createSized(size int, labels string, names ...string) {
	s.t.Helper()
	s.each(names, func(k kind, name string) error {
		return k.create(s.t.Context(), s.writer, objectMeta(s.namespace, name, size, labels))
	})
}

// update changes an annotation of objects of each kind.
func (s *subject) update(value string, names ...string) {
	s.t.Helper()
	s.each(names, func(k kind, name string) error {
		return k.patch(s.t.Context(), s.writer, s.namespace, name, annotate(value))
	})
}

// label sets a label of an object of each kind.
func (s *subject) label(name, label, value string) {
	s.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, label, value)
	s.each([]string{name}, func(k kind, name string) error {
		return k.patch(s.t.Context(), s.writer, s.namespace, name, patch)
	})
}

func (s *subject) delete(names ...string) {
	s.t.Helper()
	s.each(names, func(k kind, name string) error {
		return k.remove(s.t.Context(), s.writer, s.namespace, name)
	})
}

func (s *subject) each(names []string, do func(kind, string) error) {
	s.t.Helper()
	for _, k := range s.kinds {
		for _, name := range names {
			if k.resource == nodes.resource {
				name = s.namespace + "-" + name
			}
			if err := do(k, name); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

// changeSomethingElse changes something that the informers do not select, which moves the
// server's version on.
func (s *subject) changeSomethingElse() {
	s.t.Helper()
	newNamespace(s.t, s.writer)
}

// beat renews a lease several times a second until the test ends, as the nodes of
// a cluster do: the server's version moves on.
func (s *subject) beat() {
	s.t.Helper()
	ctx := s.t.Context()
	if err := leases.create(ctx, s.writer, objectMeta(s.namespace, "node", 0, "")); err != nil {
		s.t.Fatal(err)
	}
	var beating sync.WaitGroup
	beating.Go(func() {
		ticker := time.NewTicker(300 * time.Millisecond)
		defer ticker.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if err := leases.patch(ctx, s.writer, s.namespace, "node", annotate(strconv.Itoa(n))); err != nil && ctx.Err() == nil {
				s.t.Error(err)
			}
		}
	})
	s.t.Cleanup(beating.Wait)
}

// fresh returns what the server has of what the informers select.
func (s *subject) fresh() map[string]map[string]state {
	s.t.Helper()
	all := map[string]map[string]state{}
	for _, k := range s.kinds {
		all[k.resource.Resource] = k.fresh(s.t, s.writer, s.config.Namespace,
			metav1.ListOptions{LabelSelector: s.config.LabelSelector, FieldSelector: s.config.FieldSelector})
	}
	return all
}

// start starts the next process.
func (s *subject) start() *child {
	s.t.Helper()
	s.starts++
	c := &child{
		subject: s, agent: fmt.Sprintf("%s/%d", s.t.Name(), s.starts), views: map[string]*view{},
		synced: make(chan *snapshot, 1), snapshots: make(chan *snapshot, 1), done: make(chan struct{}),
	}
	for resource := range s.knowledge {
		c.views[resource] = newView()
	}
	if err := c.launch(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.cleanUp)
	return c
}

// child is one process, seen from outside.
type child struct {
	subject *subject
	// agent is the user agent of its requests.
	agent string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	log   bytes.Buffer
	// views have what the handlers of this process have been told, by resource.
	views map[string]*view

	synced    chan *snapshot
	snapshots chan *snapshot
	// done is closed when the process has ended and everything it said is read.
	// Then err is what was wrong with it, and stopped says that it ended
	// gracefully.
	done    chan struct{}
	stopped bool
	err     error
}

func (c *child) launch() error {
	config := c.subject.config
	config.UserAgent = c.agent
	encoded, err := json.Marshal(config)
	if err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	c.cmd = exec.Command(executable)
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(encoded))
	c.cmd.Stderr = &c.log
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.cmd.Start(); err != nil {
		return err
	}
	go c.listen(out)
	return nil
}

// listen takes in what the process says until it ends. A process that is killed
// may leave half a message behind.
func (c *child) listen(out io.Reader) {
	defer close(c.done)
	decoder := json.NewDecoder(out)
	for {
		var m message
		if err := decoder.Decode(&m); err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				c.err = err
			}
			break
		}
		c.hear(m)
	}
	c.err = errors.Join(c.err, c.cmd.Wait())
}

func (c *child) hear(m message) {
	switch {
	case m.Event != nil:
		c.views[m.Event.Resource].observe(*m.Event)
		c.subject.knowledge[m.Event.Resource].observe(*m.Event)
	case m.Synced != nil:
		c.synced <- m.Synced
	case m.Snapshot != nil:
		c.snapshots <- m.Snapshot
	case m.Stopped:
		c.stopped = true
	}
}

// waitSynced waits until all informers and their handlers have synced and returns
// what the process saw at that moment.
func (c *child) waitSynced() *snapshot {
	t := c.subject.t
	t.Helper()
	select {
	case s := <-c.synced:
		for resource, contents := range s.Informers {
			t.Logf("%s: %s synced after %.2f s: %s; %s", c.agent, resource, s.SinceStart.Seconds(),
				c.requests(resource), contents.Status.ListReason)
		}
		return s
	case <-c.done:
		t.Fatalf("the process has ended: %v", c.err)
	case <-patiently(t).Done():
		t.Fatalf("not synced; status: %+v", c.look())
	}
	return nil
}

// hasSynced reports whether the process has said so.
func (c *child) hasSynced() bool { return len(c.synced) > 0 }

// look returns what the process sees now.
func (c *child) look() *snapshot {
	t := c.subject.t
	t.Helper()
	if _, err := io.WriteString(c.stdin, "look\n"); err != nil {
		t.Fatalf("asking the process: %v", err)
	}
	select {
	case s := <-c.snapshots:
		return s
	case <-c.done:
		t.Fatalf("the process has ended: %v", c.err)
	case <-patiently(t).Done():
		t.Fatal("the process does not answer")
	}
	return nil
}

// waitUntil waits until the contents of each informer are as condition wants them.
func (c *child) waitUntil(what string, condition func(contents) error) {
	t := c.subject.t
	t.Helper()
	c.eventually(what, func() error {
		for resource, contents := range c.look().Informers {
			if err := condition(contents); err != nil {
				return fmt.Errorf("%s: %w; status: %+v", resource, err, contents.Status)
			}
		}
		return nil
	})
}

func (c *child) eventually(what string, check func() error) {
	t := c.subject.t
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("waiting until %s: %v: %v", what, err, last)
	}
}

// waitPersisted waits until everything the informers hold is on disk.
func (c *child) waitPersisted() {
	c.subject.t.Helper()
	c.waitUntil("everything is on disk", func(now contents) error {
		if now.Status.PersistedRV != now.Status.RV {
			return errors.New("not on disk")
		}
		return nil
	})
}

// waitCurrent waits until indexers and handlers know what the server has.
func (c *child) waitCurrent() {
	c.subject.t.Helper()
	want := c.subject.fresh()
	c.eventually("the informers are current", func() error { return c.compare(want, c.look()) })
}

// wantCurrent fails the test unless indexers and handlers knew what the server
// has at the moment of a snapshot.
func (c *child) wantCurrent(s *snapshot) {
	c.subject.t.Helper()
	if err := c.compare(c.subject.fresh(), s); err != nil {
		c.subject.t.Error(err)
	}
}

// compare compares what the server has with the indexers, with what the handlers
// of this process have been told, and with what the handlers of all processes
// together have been told.
func (c *child) compare(want map[string]map[string]state, s *snapshot) error {
	var problems []error
	for resource, objects := range want {
		got := s.Informers[resource]
		versions, byUID, indexed := map[string]string{}, map[string]string{}, map[string]int{}
		for key, object := range objects {
			versions[key] = object.RV
			byUID[object.UID] = key + " at " + object.RV
			indexed[namespaceOf(key)]++
		}
		problems = append(problems,
			differs("indexer of "+resource, objects, got.Objects),
			differs("namespace index of "+resource, indexed, got.Indexed),
			differs("handlers of "+resource, versions, c.views[resource].known()),
			differs("handlers of all processes of "+resource, byUID, c.subject.knowledge[resource].known()))
	}
	return errors.Join(problems...)
}

func namespaceOf(key string) string {
	namespace, _, namespaced := strings.Cut(key, "/")
	if !namespaced {
		return ""
	}
	return namespace
}

func differs[V any](what string, want, got map[string]V) error {
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("%s (-server +%s):\n%s", what, what, diff)
	}
	return nil
}

func (c *child) requests(resource string) requests {
	c.subject.t.Helper()
	return requestsOf(c.subject.t, c.subject.api, c.agent, resource)
}

// wantLists fails the test unless each informer of the process has read its
// collection n times so far.
func (c *child) wantLists(n int) {
	t := c.subject.t
	t.Helper()
	for _, k := range c.subject.kinds {
		if r := c.requests(k.resource.Resource); r.Lists != n {
			t.Errorf("%s: read the collection of %s %d times, want %d; %s", c.agent, k.resource.Resource, r.Lists, n, r)
		}
	}
}

// wantDelivered fails the test unless each handler of the process has been given
// these numbers of events.
func (c *child) wantDelivered(want counts) {
	t := c.subject.t
	t.Helper()
	for resource, view := range c.views {
		if got, _ := view.delivered(); got != want {
			t.Errorf("%s: the handlers of %s were given %+v, want %+v", c.agent, resource, got, want)
		}
	}
}

// kill ends the process as a crash would.
func (c *child) kill() {
	c.subject.t.Helper()
	c.end(func() error { return c.cmd.Process.Kill() })
}

// terminate asks the process to end, as a kubelet does.
func (c *child) terminate() {
	c.subject.t.Helper()
	c.end(func() error { return c.cmd.Process.Signal(syscall.SIGTERM) })
	if !c.stopped || c.err != nil {
		c.subject.t.Errorf("%s: did not stop gracefully: %v", c.agent, c.err)
	}
}

// end ends the process and verifies what it leaves behind.
func (c *child) end(how func() error) {
	t := c.subject.t
	t.Helper()
	if err := how(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.done:
	case <-time.After(patience):
		t.Fatalf("%s: does not end", c.agent)
	}
	for resource, view := range c.views {
		_, problems := view.delivered()
		for _, problem := range problems {
			t.Errorf("%s: handler of %s: %s", c.agent, resource, problem)
		}
	}
	if err := bolt.Verify(c.subject.config.Path); err != nil {
		t.Errorf("%s: the file is damaged: %v", c.agent, err)
	}
}

// cleanUp ends a process that the test has left running and shows what a process
// of a failed test has logged.
func (c *child) cleanUp() {
	select {
	case <-c.done:
	default:
		if !c.subject.t.Failed() {
			c.terminate()
		}
		_ = c.cmd.Process.Kill() // Fails if it has ended.
		<-c.done
	}
	if c.subject.t.Failed() {
		c.subject.t.Logf("log of %s:\n%s", c.agent, &c.log)
	}
}

// names returns n names that begin with prefix.
func names(prefix string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("%s-%03d", prefix, i))
	}
	return all
}

// splitReplay splits what a handler was told into the keys of the departed
// objects that came first, each introduced and then deleted, and the rest.
func splitReplay(events []event) (departed []string, rest []event) {
	for len(events) >= 2 {
		introduced, gone := events[0], events[1]
		if introduced.Type != added || !introduced.Initial || gone.Type != deleted || introduced.UID != gone.UID {
			break
		}
		departed = append(departed, gone.Key)
		events = events[2:]
	}
	slices.Sort(departed)
	return departed, events
}

// wantDeparted fails the test unless each handler was told first that these
// objects are gone, and of no other delete so far.
func (c *child) wantDeparted(names ...string) {
	t := c.subject.t
	t.Helper()
	for resource, view := range c.views {
		departed, rest := splitReplay(view.events())
		var want []string
		for _, name := range names {
			want = append(want, c.subject.key(resource, name))
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, departed); diff != "" {
			t.Errorf("%s: departed objects of %s before the replay (-want +got):\n%s", c.agent, resource, diff)
		}
		for _, e := range rest {
			if e.Type == deleted {
				t.Errorf("%s: %s of %s was deleted after the replay had begun", c.agent, e.Key, resource)
			}
		}
	}
}

// key returns the key of an object that the subject has created.
func (s *subject) key(resource, name string) string {
	if resource == nodes.resource.Resource {
		return s.namespace + "-" + name
	}
	return s.namespace + "/" + name
}
