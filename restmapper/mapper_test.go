package restmapper

import (
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/warmcache/warmcache/internal/apitest"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

// world is a server that a test takes down, and a store.
type world struct {
	*testing.T
	server *apitest.Server
	db     store.Store
}

func newWorld(t *testing.T) *world {
	t.Helper()
	server, err := apitest.New(apitest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return &world{t, server, storetest.NewMemory().Open()}
}

// mapper returns the mapper of a new process.
func (w *world) mapper() *Mapper {
	w.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	w.Cleanup(client.CloseIdleConnections)
	m, err := Provider(w.db)(&rest.Config{Host: w.server.URL()}, client)
	if err != nil {
		w.Fatal(err)
	}
	return m.(*Mapper)
}

func (w *world) down() {
	w.Helper()
	if err := w.server.Down(); err != nil {
		w.Fatal(err)
	}
}

var pod = schema.GroupKind{Kind: "Pod"}

func (w *world) wantMapping(m *Mapper, kind schema.GroupKind, resource string, versions ...string) {
	w.Helper()
	mapping, err := m.RESTMapping(kind, versions...)
	if err != nil || mapping.Resource.Resource != resource {
		w.Errorf("RESTMapping(%v) = %+v, %v; want %s", kind, mapping, err, resource)
	}
}

func TestMapper_AnswersFromTheStoreWithoutLink(t *testing.T) {
	w := newWorld(t)
	first := w.mapper()
	w.wantMapping(first, pod, "pods")
	w.down()
	w.wantMapping(w.mapper(), pod, "pods")

	infos, err := w.db.Informers()
	if err != nil || len(infos) != 1 || infos[0].Identity != Identity || infos[0].InUse {
		t.Errorf("the store has %+v, %v", infos, err)
	}
}

// TestMapper_StoredAnswersEqualTheServers compares every method, with and without
// the server.
func TestMapper_StoredAnswersEqualTheServers(t *testing.T) {
	w := newWorld(t)
	online := answers(w.mapper())
	w.down()
	if diff := cmp.Diff(online, answers(w.mapper())); diff != "" {
		t.Errorf("offline answers differ (-online +offline):\n%s", diff)
	}
}

func answers(m *Mapper) []any {
	var all []any
	add := func(x any, err error) { all = append(all, x, err != nil) }
	for _, resource := range []string{"pods", "po", "deployments", "events", "nonsense"} {
		gvr := schema.GroupVersionResource{Resource: resource}
		kind, err := m.KindFor(gvr)
		add(kind, err)
		kinds, err := m.KindsFor(gvr)
		add(kinds, err)
		one, err := m.ResourceFor(gvr)
		add(one, err)
		many, err := m.ResourcesFor(gvr)
		add(many, err)
		singular, err := m.ResourceSingularizer(resource)
		add(singular, err)
	}
	for _, kind := range []schema.GroupKind{pod, {Group: "apps", Kind: "Deployment"}, {Kind: "Node"}} {
		mappings, err := m.RESTMappings(kind)
		for _, mapping := range mappings {
			add([]any{mapping.Resource, mapping.GroupVersionKind, mapping.Scope.Name()}, err)
		}
	}
	return all
}

func TestMapper_NothingStored(t *testing.T) {
	w := newWorld(t)
	w.down()
	for name, db := range map[string]store.Store{"empty store": w.db, "no store": nil} {
		w.db = db
		if _, err := w.mapper().RESTMapping(pod); !errors.Is(err, ErrUnavailable) || meta.IsNoMatchError(err) {
			t.Errorf("%s: %v, want ErrUnavailable", name, err)
		}
	}
}

// TestMapper_LearnsNewKinds checks that a kind that is installed later is found,
// and that a server is not asked for nonsense at every call.
func TestMapper_LearnsNewKinds(t *testing.T) {
	w := newWorld(t)
	m := w.mapper()
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	m.clock = clock
	widget := schema.GroupKind{Group: "example.com", Kind: "Widget"}
	if _, err := m.RESTMapping(widget); !meta.IsNoMatchError(err) {
		t.Fatalf("RESTMapping of a kind that is not there: %v", err)
	}
	w.server.Serve(apitest.Widgets)
	w.server.ResetRequests()
	if _, err := m.RESTMapping(widget); !meta.IsNoMatchError(err) || len(w.server.Requests()) != 0 {
		t.Errorf("asked again at once: %v, %d requests", err, len(w.server.Requests()))
	}
	clock.SetTime(clock.Now().Add(learnInterval))
	w.wantMapping(m, widget, "widgets")
	w.down()
	w.wantMapping(w.mapper(), widget, "widgets")
}

// TestMapper_AsksAgainWhenTheLinkIsBack checks that what is stored is only used
// until the server answers.
func TestMapper_AsksAgainWhenTheLinkIsBack(t *testing.T) {
	w := newWorld(t)
	w.wantMapping(w.mapper(), pod, "pods")
	w.down()
	m := w.mapper()
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	m.clock = clock
	w.wantMapping(m, pod, "pods")
	if m.mu.fresh {
		t.Error("what was stored counts as the server's answer")
	}
	if err := w.server.Up(); err != nil {
		t.Fatal(err)
	}
	clock.SetTime(clock.Now().Add(askInterval))
	w.wantMapping(m, pod, "pods")
	if !m.mu.fresh {
		t.Error("the server was not asked again")
	}
}

func TestMapper_Reset_AsksAgain(t *testing.T) {
	w := newWorld(t)
	m := w.mapper()
	w.wantMapping(m, pod, "pods")
	w.server.ResetRequests()
	w.wantMapping(m, pod, "pods")
	if n := len(w.server.Requests()); n != 0 {
		t.Errorf("%d requests for what is known", n)
	}
	m.Reset()
	w.wantMapping(m, pod, "pods")
	if len(w.server.Requests()) == 0 {
		t.Error("no request after Reset")
	}
}

// partial is a discovery client that cannot tell the resources of some versions,
// as when the API service behind them is down.
type partial struct {
	discovery.DiscoveryInterface
	without []string
}

func (p partial) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	groups, resources, err := p.DiscoveryInterface.ServerGroupsAndResources()
	return groups, slices.DeleteFunc(slices.Clone(resources), func(l *metav1.APIResourceList) bool {
		return slices.Contains(p.without, l.GroupVersion)
	}), err
}

func TestMapper_KeepsVersionsThatAreNotTold(t *testing.T) {
	server := fake.NewClientset().Discovery().(*fakediscovery.FakeDiscovery)
	server.Resources = []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods", Kind: "Pod", Namespaced: true}}},
		{GroupVersion: "metrics/v1", APIResources: []metav1.APIResource{{Name: "usages", Kind: "Usage"}}},
	}
	db := storetest.NewMemory().Open()
	usage := schema.GroupKind{Group: "metrics", Kind: "Usage"}
	for _, without := range [][]string{nil, {"metrics/v1"}, {"metrics/v1"}} {
		m, err := New(partial{server, without}, db)
		if err != nil {
			t.Fatal(err)
		}
		if mapping, err := m.RESTMapping(usage); err != nil || mapping.Resource.Resource != "usages" {
			t.Errorf("without %v: %v, %v", without, mapping, err)
		}
	}
}

func TestNew_NilPointers(t *testing.T) {
	var db *nilStore
	if _, err := New(nil, nil); err == nil {
		t.Error("no error for a nil client")
	}
	if _, err := New((*discovery.DiscoveryClient)(nil), nil); err == nil {
		t.Error("no error for a nil pointer to a client")
	}
	if _, err := New(fake.NewClientset().Discovery(), db); err == nil {
		t.Error("no error for a nil pointer to a store")
	}
}

// nilStore is a store that is only good for a nil pointer.
type nilStore struct{ store.Store }

func TestAPIGroup_DeepCopy(t *testing.T) {
	g := &apiGroup{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"a": "b"}}, Order: 3}
	g.Group.Name = "a"
	g.VersionedResources = map[string][]metav1.APIResource{"v1": {{Name: "as", Verbs: metav1.Verbs{"list"}}}}
	c := g.DeepCopyObject().(*apiGroup)
	if diff := cmp.Diff(g, c); diff != "" {
		t.Fatalf("copy differs:\n%s", diff)
	}
	c.VersionedResources["v1"][0].Verbs[0] = "changed"
	c.Labels["a"] = "changed"
	if g.VersionedResources["v1"][0].Verbs[0] != "list" || g.Labels["a"] != "b" {
		t.Error("the copy shares memory")
	}
}

// TestMapper_WaitsForNoAnswerOnce has a server that hangs, and nothing stored: who
// comes after the first learns at once that there is no answer.
func TestMapper_WaitsForNoAnswerOnce(t *testing.T) {
	w := newWorld(t)
	w.down()
	m := w.mapper()
	clock := clocktesting.NewFakePassiveClock(time.Unix(1, 0))
	m.clock = clock
	if _, err := m.RESTMapping(pod); !errors.Is(err, ErrUnavailable) {
		t.Fatal(err)
	}
	if err := w.server.Up(); err != nil {
		t.Fatal(err)
	}
	w.server.ResetRequests()
	if _, err := m.RESTMapping(pod); !errors.Is(err, ErrUnavailable) || len(w.server.Requests()) != 0 {
		t.Errorf("%v after %d requests, want the error of before", err, len(w.server.Requests()))
	}
	clock.SetTime(clock.Now().Add(askInterval))
	w.wantMapping(m, pod, "pods")
}

// TestMapper_ManyShareAStore has mappers of several managers load at once.
func TestMapper_ManyShareAStore(t *testing.T) {
	w := newWorld(t)
	w.wantMapping(w.mapper(), pod, "pods")
	w.down()
	var running sync.WaitGroup
	for range 20 {
		m := w.mapper()
		running.Go(func() { w.wantMapping(m, pod, "pods") })
	}
	running.Wait()
}
