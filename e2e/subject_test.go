package e2e

import (
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/warmcache/warmcache/e2e/controlplane"
)

// subject is a program with persistent informers: a file, a namespace of its own,
// and the processes that one after the other run on them.
type subject struct {
	t         *testing.T
	kinds     []kind
	namespace string
	// writer changes what the informers watch.
	writer kubernetes.Interface
	// apis are the API servers that the requests of the processes are counted by.
	apis []*controlplane.APIServer
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
	s.apis = []*controlplane.APIServer{api}
	s.config.Host, s.config.Token, s.config.CA = config.Host, config.BearerToken, config.CAData
}

// auditEvents returns what the API servers were asked for.
func (s *subject) auditEvents() (all []controlplane.AuditEvent) {
	s.t.Helper()
	for _, api := range s.apis {
		all = append(all, auditEvents(s.t, api)...)
	}
	return all
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
	for _, subscription := range s.config.Subscriptions {
		all[subscription.Name] = subscription.fresh(s.t)
	}
	return all
}

// subscribe adds informers to those of the next processes.
func (s *subject) subscribe(subscriptions ...subscription) {
	for _, subscription := range subscriptions {
		s.config.Subscriptions = append(s.config.Subscriptions, subscription)
		s.knowledge[subscription.Name] = newKnowledge()
	}
}

// start starts the next process.
func (s *subject) start() *child {
	s.t.Helper()
	s.starts++
	c := &child{
		subject: s, agent: fmt.Sprintf("%s/%s/%d", s.t.Name(), s.namespace, s.starts), views: map[string]*view{},
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

// key returns the key of an object that the subject has created.
func (s *subject) key(resource, name string) string {
	if resource == nodes.resource.Resource {
		return s.namespace + "-" + name
	}
	return s.namespace + "/" + name
}

// names returns n names that begin with prefix.
func names(prefix string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("%s-%03d", prefix, i))
	}
	return all
}
