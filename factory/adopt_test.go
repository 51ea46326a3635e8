package factory

import (
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/apitest"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

// TestAdopt_ThirdParty restarts a factory of somebody else's that holds an informer
// of ours. The accessor leads to it; the factory transforms, starts, waits and
// stops.
func TestAdopt_ThirdParty(t *testing.T) {
	inBubble(t, func(t *testing.T, server *apitest.Server) {
		memory := storetest.NewMemory()
		client := newWidgetClients(t, server)
		create(t, server, apitest.Widget("default", "gone", 1), apitest.Widget("default", "w", 2))
		run := func(test func(f *widgetFactory, events *eventLog)) {
			f := newWidgetFactory(client, time.Hour)
			f.transform = func(obj any) (any, error) {
				if w, ok := obj.(*widget); ok {
					w.Labels = map[string]string{"transformed": "yes"}
				}
				return obj, nil
			}
			err := Adopt(f, memory.Open(), []runtime.Object{&widget{}}, WithScheme(widgetScheme()), WithTransformVersion("1"), WithListBelow(-1))
			if err != nil {
				t.Fatal(err)
			}
			events := handle(t, f.Widgets())
			stop := make(chan struct{})
			f.Start(stop)
			for typ, synced := range f.WaitForCacheSync(stop) {
				if !synced {
					t.Errorf("%v has not synced", typ)
				}
			}
			synctest.Wait()
			test(f, events)
			close(stop)
			f.Shutdown()
			if !f.Widgets().IsStopped() {
				t.Error("the informer was not stopped")
			}
		}
		run(func(_ *widgetFactory, events *eventLog) {
			events.want(t, "initial default/gone", "initial default/w")
		})
		if err := server.Delete(apitest.Widget("default", "gone", 1)); err != nil {
			t.Fatal(err)
		}
		run(func(f *widgetFactory, events *eventLog) {
			events.want(t, "initial default/gone", "delete default/gone", "initial default/w")
			status := statusOf(f.Widgets())
			if status.Lists != 0 || !status.Persistent {
				t.Errorf("status %+v, want a resumed watch", status)
			}
			obj, exists, err := f.Widgets().GetStore().GetByKey("default/w")
			if err != nil || !exists {
				t.Fatal(exists, err)
			}
			if w := obj.(*widget); w.Labels["transformed"] != "yes" || len(w.Spec) == 0 || w.UID == "" {
				t.Errorf("stored %+v, want the whole object, transformed", w)
			}
		})
		wantID := store.Identity{Group: "example.com", Version: "v1", Resource: "widgets", Form: store.FormTyped}
		if infos := must(memory.Open().Informers()); len(infos) != 1 || infos[0].Identity != wantID {
			t.Errorf("the store has %v", infos)
		}
	})
}

// TestAdopt_ThirdParty_Server checks what such a clientset, which has no core
// group, tells about the cluster, and when it is asked for schemas.
func TestAdopt_ThirdParty_Server(t *testing.T) {
	inBubble(t, func(t *testing.T, server *apitest.Server) {
		s := serverBehind(newWidgetClients(t, server))
		system, err := server.Get(namespaces, "", metav1.NamespaceSystem)
		want := must(meta.Accessor(must(system, err))).GetUID()
		if got, err := s.cluster.get(t.Context()); err != nil || got != string(want) {
			t.Errorf("cluster = %q, %v; want %q", got, err, want)
		}
		schemaOf := s.schemaOf(widgets.GroupVersion())
		before, err := schemaOf(t.Context())
		if err != nil || before == "" {
			t.Errorf("schema = %q, %v", before, err)
		}
		if err := server.ChangeSchema(widgets, nil); err != nil {
			t.Fatal(err)
		}
		if after, err := schemaOf(t.Context()); err != nil || after == before {
			t.Errorf("schema = %q, %v; want the changed one, although there was no start", after, err)
		}
	})
}

func TestServerBehind_TellsNothing(t *testing.T) {
	for name, client := range map[string]any{
		"no discovery":  struct{}{},
		"nil discovery": &widgetClients{},
		"fake":          fakeWidgets{},
		"fake core":     fake.NewClientset(),
	} {
		s := serverBehind(client)
		if got, err := s.cluster.get(t.Context()); err != nil || got != "" {
			t.Errorf("%s: cluster = %q, %v; want unknown", name, got, err)
		}
		if got, err := s.schemaOf(widgets.GroupVersion())(t.Context()); err != nil || got != "" {
			t.Errorf("%s: schema = %q, %v; want unknown", name, got, err)
		}
	}
}

// fakeWidgets is a fake clientset of the newer kind.
type fakeWidgets struct{}

func (fakeWidgets) Discovery() discovery.DiscoveryInterfaces {
	return &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{}}
}

func TestNamespaceOf_ServerError(t *testing.T) {
	inBubble(t, func(t *testing.T, server *apitest.Server) {
		server.Inject(apitest.Fault{Verb: "get", Status: 500})
		if id, err := serverBehind(newWidgetClients(t, server)).cluster.get(t.Context()); err == nil {
			t.Errorf("cluster = %q, want an error", id)
		}
	})
}

func TestAdopt_ClientGo(t *testing.T) {
	cache.ResetInformerNamesForTesting()
	defer cache.ResetInformerNamesForTesting()
	name, err := cache.NewInformerName("adopter")
	if err != nil {
		t.Fatal(err)
	}
	db := newStore()
	client := fake.NewClientset(pod("a"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "b"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "s"}})
	target := informers.NewSharedInformerFactoryWithOptions(client, time.Hour, informers.WithNamespace("web"), informers.WithInformerName(name))
	if err := Adopt(target, db, []runtime.Object{&corev1.Pod{}, &corev1.Node{}}, WithNamespace("web")); err != nil {
		t.Fatal(err)
	}
	pods, nodes, services := target.Core().V1().Pods(), target.Core().V1().Nodes(), target.Core().V1().Services()
	inf := pods.Informer()
	lister := pods.Lister()
	for typ, i := range map[string]cache.SharedIndexInformer{"pods": inf, "nodes": nodes.Informer()} {
		if _, ours := informer.StatusOf(i); !ours {
			t.Errorf("the informer of %s is not ours", typ)
		}
	}
	if _, ours := informer.StatusOf(services.Informer()); ours {
		t.Error("an informer is ours that was not asked for")
	}
	stop := runFactory(t, target)
	defer stop()
	if err := target.WaitForCacheSyncWithContext(t.Context()).AsError(); err != nil {
		t.Fatal(err)
	}
	if _, err := lister.Pods("web").Get("a"); err != nil {
		t.Error(err)
	}
	if got := inf.GetStore().ListKeys(); len(got) != 1 {
		t.Errorf("keys %v, want those of the namespace", got)
	}
	got := map[store.Identity]bool{}
	for _, info := range must(db.Informers()) {
		got[info.Identity] = true
	}
	want := map[store.Identity]bool{
		{Version: "v1", Resource: "pods", Namespace: "web", Form: store.FormTyped}: true,
		{Version: "v1", Resource: "nodes", Form: store.FormTyped}:                  true,
	}
	if !maps.Equal(got, want) {
		t.Errorf("the store has %v, want %v", got, want)
	}
}

// TestAdopt_TakesFromTarget checks the settings that are not given twice.
func TestAdopt_TakesFromTarget(t *testing.T) {
	cache.ResetInformerNamesForTesting()
	defer cache.ResetInformerNamesForTesting()
	name, err := cache.NewInformerName("adopter")
	if err != nil {
		t.Fatal(err)
	}
	target := informers.NewSharedInformerFactoryWithOptions(fake.NewClientset(), time.Hour, informers.WithInformerName(name),
		informers.WithCustomResyncConfig(map[metav1.Object]time.Duration{&corev1.Node{}: time.Minute}))
	tweaked := 0
	tweak := WithTweakListOptions(func(*metav1.ListOptions) { tweaked++ })
	a := must(newAdoption(target, reflect.TypeFor[kubernetes.Interface](), nil, []Option{tweak}))
	calls := recordBuilder(a.builder)
	for _, obj := range []runtime.Object{&corev1.Pod{}, &corev1.Node{}} {
		r := must(a.resourceOf(obj))
		target.InformerFor(obj, func(c kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
			return a.inform(c, r, resync)
		})
	}
	for i, want := range []time.Duration{time.Hour, time.Minute} {
		o := (*calls)[i].options
		if o.ResyncPeriod != want || o.Identifier.Name() != "adopter" {
			t.Errorf("resync %s, name %q; want %s and the target's name", o.ResyncPeriod, o.Identifier.Name(), want)
		}
		tweaked = 0
		if _, err := (*calls)[i].lw.List(metav1.ListOptions{}); err != nil || tweaked != 1 {
			t.Errorf("list: %v, tweaked %d times", err, tweaked)
		}
	}
}

func TestAdopt_AlreadyRegistered(t *testing.T) {
	target := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	earlier := target.Core().V1().Pods().Informer()
	err := Adopt(target, nil, []runtime.Object{&corev1.Pod{}, &corev1.Node{}})
	if !errors.Is(err, ErrAlreadyRegistered) || !strings.Contains(err.Error(), "*v1.Pod") || strings.Contains(err.Error(), "*v1.Node") {
		t.Errorf("error = %v, want ErrAlreadyRegistered for pods", err)
	}
	if target.Core().V1().Pods().Informer().GetIndexer() != earlier.GetIndexer() {
		t.Error("the earlier informer was replaced")
	}
	if _, ours := informer.StatusOf(target.Core().V1().Nodes().Informer()); !ours {
		t.Error("nodes were not adopted")
	}
	if err := Adopt(target, nil, []runtime.Object{&corev1.Node{}}); !errors.Is(err, ErrAlreadyRegistered) {
		t.Errorf("adopted twice: %v, want ErrAlreadyRegistered", err)
	}
}

// TestAdopt_Refuses checks errors after which nothing is registered.
func TestAdopt_Refuses(t *testing.T) {
	widgets := WithScheme(widgetScheme())
	for _, test := range []struct {
		objs []runtime.Object
		opts []Option
		err  error
		want string
	}{
		{[]runtime.Object{&widget{}, &gadget{}}, []Option{widgets}, ErrUnknownResource, "*factory.gadget: nothing lists"},
		{[]runtime.Object{&widget{}}, nil, ErrInvalidOptions, "WithScheme: no kind is registered for the type factory.widget"},
		{[]runtime.Object{&widget{}, &unstructured.Unstructured{}}, []Option{widgets}, ErrInvalidOptions, "WithScheme"},
		{nil, []Option{widgets}, ErrInvalidOptions, "no objects"},
		{[]runtime.Object{&widget{}, nil}, []Option{widgets}, ErrInvalidOptions, "object is nil"},
		{[]runtime.Object{&widget{}, &widget{}}, []Option{widgets}, ErrInvalidOptions, "*factory.widget twice"},
		{[]runtime.Object{&widget{}}, []Option{WithScheme((*runtime.Scheme)(nil))}, ErrInvalidOptions, "WithScheme: the scheme is nil"},
		{[]runtime.Object{&widget{}}, []Option{widgets, WithResync(1)}, ErrInvalidOptions, "Adopt has no use for WithResync: "},
		{[]runtime.Object{&widget{}}, []Option{widgets, WithCustomResyncConfig(nil)}, ErrInvalidOptions, "WithCustomResyncConfig"},
		{[]runtime.Object{&widget{}}, []Option{widgets, WithInformerName(nil)}, ErrInvalidOptions, "WithInformerName"},
		{[]runtime.Object{&widget{}}, []Option{widgets, WithTransform(nil, "")}, ErrInvalidOptions, "use WithTransformVersion"},
		{[]runtime.Object{&widget{}}, []Option{widgets, WithNamespace("A")}, ErrInvalidOptions, `WithNamespace: "A"`},
	} {
		f := newWidgetFactory(nil, 0)
		err := Adopt(f, nil, test.objs, test.opts...)
		if !errors.Is(err, test.err) || !strings.Contains(err.Error(), test.want) || len(f.informers) != 0 {
			t.Errorf("error = %v, %d informers; want none and %q", err, len(f.informers), test.want)
		}
	}
	if err := Adopt((*widgetFactory)(nil), nil, []runtime.Object{&widget{}}, widgets); !errors.Is(err, ErrInvalidOptions) {
		t.Errorf("nil factory: %v", err)
	}
	if err := Adopt(concreteFactory{}, nil, []runtime.Object{&widget{}}, widgets); !errors.Is(err, ErrInvalidOptions) || !strings.Contains(err.Error(), "*factory.widgetClients") {
		t.Errorf("concrete clientset: %v", err)
	}
}

// concreteFactory gives its functions a struct instead of an interface.
type concreteFactory struct{}

func (concreteFactory) InformerFor(runtime.Object, func(*widgetClients, time.Duration) cache.SharedIndexInformer) cache.SharedIndexInformer {
	return nil
}
