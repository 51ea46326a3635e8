package factory

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"

	"github.com/warmcache/warmcache/internal/apitest"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

var (
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	secrets    = corev1.SchemeGroupVersion.WithResource("secrets")
	nodes      = corev1.SchemeGroupVersion.WithResource("nodes")
	widgets    = apitest.Widgets.GVR
)

// door makes factories of one kind, on an API server or on client-go's fakes.
type door struct {
	form  store.Form
	real  func(t *testing.T, server *apitest.Server, db store.Store, opts ...Option) *resources
	fakes func(db store.Store, objects []runtime.Object, opts ...Option) *resources
}

var doors = []door{
	{
		form: store.FormUnstructured,
		real: func(t *testing.T, server *apitest.Server, db store.Store, opts ...Option) *resources {
			client, err := dynamic.NewForConfig(server.RESTConfig())
			if err != nil {
				t.Fatal(err)
			}
			return must(NewDynamic(client, db, opts...)).resources
		},
		fakes: func(db store.Store, objects []runtime.Object, opts ...Option) *resources {
			return must(NewDynamic(dynamicfake.NewSimpleDynamicClient(scheme.Scheme, objects...), db, opts...)).resources
		},
	},
	{
		form: store.FormMetadata,
		real: func(t *testing.T, server *apitest.Server, db store.Store, opts ...Option) *resources {
			client, err := metadata.NewForConfig(server.RESTConfig())
			if err != nil {
				t.Fatal(err)
			}
			return must(NewMetadata(client, db, opts...)).resources
		},
		fakes: func(db store.Store, objects []runtime.Object, opts ...Option) *resources {
			s := metadatafake.NewTestScheme()
			if err := metav1.AddMetaToScheme(s); err != nil {
				panic(err)
			}
			return must(NewMetadata(metadatafake.NewSimpleMetadataClient(s, partial(objects)...), db, opts...)).resources
		},
	},
}

// partial turns objects into their metadata, which is all that the fake takes.
func partial(objects []runtime.Object) []runtime.Object {
	var result []runtime.Object
	for _, obj := range objects {
		m := must(meta.Accessor(obj))
		p := &metav1.PartialObjectMetadata{ObjectMeta: *meta.AsPartialObjectMetadata(m).ObjectMeta.DeepCopy()}
		kinds, _, err := scheme.Scheme.ObjectKinds(obj)
		p.SetGroupVersionKind(must(kinds, err)[0])
		result = append(result, p)
	}
	return result
}

// throughEachDoor runs a test with an API server in a synctest bubble.
func throughEachDoor(t *testing.T, test func(t *testing.T, server *apitest.Server, d door)) {
	t.Helper()
	for _, d := range doors {
		t.Run(string(d.form), func(t *testing.T) {
			inBubble(t, func(t *testing.T, server *apitest.Server) { test(t, server, d) })
		})
	}
}

func inBubble(t *testing.T, test func(t *testing.T, server *apitest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server, err := apitest.New(apitest.Options{InMemory: true, CustomResources: []apitest.CustomResource{apitest.Widgets}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := server.Close(); err != nil {
				t.Error(err)
			}
		}()
		test(t, server)
	})
}

// runFactory starts a factory and returns what stops it.
func runFactory(t *testing.T, f interface {
	StartWithContext(ctx context.Context)
	Shutdown()
},
) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f.StartWithContext(ctx)
	return func() {
		cancel()
		f.Shutdown()
	}
}

// eventLog is a handler that notes events as lines.
type eventLog struct {
	mu     sync.Mutex
	events []string
}

func (r *eventLog) note(event string, obj any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event+" "+must(key, err))
}

func (r *eventLog) OnAdd(obj any, initial bool) {
	if initial {
		r.note("initial", obj)
		return
	}
	r.note("add", obj)
}
func (r *eventLog) OnUpdate(_, obj any) { r.note("update", obj) }
func (r *eventLog) OnDelete(obj any)    { r.note("delete", obj) }

// want fails the test unless these are the events so far, in this order. The
// objects of an initial list have none, and are compared sorted.
func (r *eventLog) want(t *testing.T, events ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	got := slices.Clone(r.events)
	for from := 0; from < len(got); {
		to := from
		for to < len(got) && strings.HasPrefix(got[to], "initial") {
			to++
		}
		slices.Sort(got[from:to])
		from = to + 1
	}
	if diff := cmp.Diff(events, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// handle registers an eventLog and returns it.
func handle(t *testing.T, inf cache.SharedIndexInformer) *eventLog {
	t.Helper()
	r := &eventLog{}
	if _, err := inf.AddEventHandler(r); err != nil {
		t.Fatal(err)
	}
	return r
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func create(t *testing.T, server *apitest.Server, objs ...runtime.Object) {
	t.Helper()
	if err := server.Create(objs...); err != nil {
		t.Fatal(err)
	}
}

// TestResources_Restart is the point of it all: the second run lists nothing, and
// its handlers learn what happened in between.
func TestResources_Restart(t *testing.T) {
	throughEachDoor(t, func(t *testing.T, server *apitest.Server, d door) {
		memory := storetest.NewMemory()
		create(t, server, configMap("a"), configMap("gone"), apitest.Widget("default", "w", 1))
		run := func() (*resources, *eventLog, *eventLog, func()) {
			f := d.real(t, server, memory.Open(), WithListBelow(-1))
			builtIn, custom := handle(t, f.ForResource(configMaps).Informer()), handle(t, f.ForResource(widgets).Informer())
			stop := runFactory(t, f)
			if err := f.WaitForCacheSyncWithContext(t.Context()).AsError(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return f, builtIn, custom, stop
		}
		_, builtIn, custom, stop := run()
		builtIn.want(t, "initial default/a", "initial default/gone")
		custom.want(t, "initial default/w")
		stop()

		if err := server.Delete(configMap("gone")); err != nil {
			t.Fatal(err)
		}
		create(t, server, configMap("new"))
		f, builtIn, custom, stop := run()
		defer stop()
		builtIn.want(t, "initial default/gone", "delete default/gone", "initial default/a", "initial default/new")
		custom.want(t, "initial default/w")
		for _, gvr := range []schema.GroupVersionResource{configMaps, widgets} {
			if status := statusOf(f.ForResource(gvr).Informer()); !status.Persistent || !status.Confirmed || status.Lists != 0 {
				t.Errorf("%s: status %+v", gvr.Resource, status)
			}
		}
		var forms []store.Form
		for _, info := range must(f.db.Informers()) {
			forms = append(forms, info.Identity.Form)
		}
		if !slices.Equal(forms, []store.Form{d.form, d.form}) {
			t.Errorf("forms in the store: %v", forms)
		}
	})
}

func TestResources_ForResource_HoldsWhatClientGoHolds(t *testing.T) {
	inBubble(t, func(t *testing.T, server *apitest.Server) {
		create(t, server, apitest.Widget("default", "w", 1))
		for _, d := range doors {
			f := d.real(t, server, newStore())
			generic := f.ForResource(widgets)
			lister := generic.Lister()
			stop := runFactory(t, f)
			f.WaitForCacheSync(t.Context().Done())
			obj, err := lister.ByNamespace("default").Get("w")
			if err != nil {
				t.Fatal(err)
			}
			switch obj := obj.(type) {
			case *unstructured.Unstructured:
				want, err := server.Get(widgets, "default", "w")
				if diff := cmp.Diff(must(want, err), runtime.Object(obj)); d.form != store.FormUnstructured || diff != "" {
					t.Errorf("%s (-want +got):\n%s", d.form, diff)
				}
			case *metav1.PartialObjectMetadata:
				if d.form != store.FormMetadata || obj.Name != "w" || obj.UID == "" {
					t.Errorf("%s: %v", d.form, obj)
				}
			default:
				t.Errorf("%s: a %T", d.form, obj)
			}
			stop()
		}
	})
}

func TestResources_ForResource_Listers(t *testing.T) {
	for _, d := range doors {
		f := d.fakes(nil, []runtime.Object{pod("a"), pod("b"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}})
		pods, nodes := f.ForResource(corev1.SchemeGroupVersion.WithResource("pods")).Lister(), f.ForResource(nodes).Lister()
		stop := runFactory(t, f)
		f.WaitForCacheSync(t.Context().Done())
		if list, err := pods.ByNamespace("web").List(labels.Everything()); err != nil || len(list) != 2 {
			t.Errorf("%s: List = %v, %v; want two pods", d.form, list, err)
		}
		if _, err := nodes.Get("n"); err != nil {
			t.Errorf("%s: %v", d.form, err)
		}
		_, err := nodes.Get("m")
		if err == nil || !strings.Contains(err.Error(), `nodes "m" not found`) {
			t.Errorf("%s: %v; want an error that names the resource", d.form, err)
		}
		stop()
	}
}

func TestResources_ForResource_OnePerResource(t *testing.T) {
	for _, d := range doors {
		f := d.fakes(nil, nil)
		a, b := f.ForResource(configMaps), f.ForResource(configMaps)
		if a.Informer() != b.Informer() {
			t.Errorf("%s: two informers of one resource", d.form)
		}
		other := schema.GroupVersionResource{Group: "other", Version: "v1", Resource: "configmaps"}
		if f.ForResource(other).Informer() == a.Informer() {
			t.Errorf("%s: one informer for two groups", d.form)
		}
	}
}

// TestResources_Namespace checks that all resources are asked for in the
// namespace of the factory, as client-go does, and that this is in the identity.
func TestResources_Namespace(t *testing.T) {
	throughEachDoor(t, func(t *testing.T, server *apitest.Server, d door) {
		create(t, server, configMap("a"), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "b"}})
		f := d.real(t, server, newStore(), WithNamespace("default"))
		calls := recordBuilder(f.builder)
		events := handle(t, f.ForResource(configMaps).Informer())
		f.ForResource(nodes)
		stop := runFactory(t, f)
		defer stop()
		synctest.Wait()
		events.want(t, "initial default/a")
		for _, c := range *calls {
			if got := c.options.Identity; got.Namespace != "default" || got.Form != d.form {
				t.Errorf("identity = %v", got)
			}
		}
		synced := f.WaitForCacheSync(closed())
		if want := (map[schema.GroupVersionResource]bool{configMaps: true, nodes: false}); !cmp.Equal(synced, want) {
			t.Errorf("synced = %v, want %v: there are no nodes in a namespace", synced, want)
		}
	})
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func TestResources_TweaksEveryRequest(t *testing.T) {
	throughEachDoor(t, func(t *testing.T, server *apitest.Server, d door) {
		f := d.real(t, server, newStore(), WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "app=web" }))
		calls := recordBuilder(f.builder)
		create(t, server, configMap("a"))
		events := handle(t, f.ForResource(configMaps).Informer())
		stop := runFactory(t, f)
		defer stop()
		f.WaitForCacheSync(t.Context().Done())
		selected := configMap("selected")
		selected.Labels = map[string]string{"app": "web"}
		create(t, server, configMap("b"), selected)
		synctest.Wait()
		events.want(t, "add default/selected")
		if got := only(t, calls).options.Identity.LabelSelector; got != "app=web" {
			t.Errorf("selector in the identity: %q", got)
		}
	})
}

// TestResources_Secrets checks that Secrets need permission, and so does their
// metadata, in which kubectl apply writes their content.
func TestResources_Secrets(t *testing.T) {
	for _, d := range doors {
		for _, allowed := range []bool{false, true} {
			var opts []Option
			if allowed {
				opts = append(opts, WithPlaintextSecrets())
			}
			db := newStore()
			f := d.fakes(db, []runtime.Object{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "s"}}}, opts...)
			inf := f.ForResource(secrets).Informer()
			stop := runFactory(t, f)
			f.WaitForCacheSync(t.Context().Done())
			status := statusOf(inf)
			if status.Persistent != allowed {
				t.Errorf("%s, allowed %v: persistent = %v, %v", d.form, allowed, status.Persistent, status.Durability.Err)
			}
			if len(inf.GetStore().List()) != 1 {
				t.Errorf("%s: the secret is not in the cache", d.form)
			}
			stop()
			if !status.Persistent {
				wantNothingStored(t, db)
			}
		}
	}
}

func TestResources_WithoutPersistenceOf(t *testing.T) {
	for _, d := range doors {
		f := d.fakes(newStore(), nil, WithoutPersistenceOf(configMaps))
		calls := recordBuilder(f.builder)
		f.ForResource(configMaps)
		f.ForResource(nodes)
		if (*calls)[0].options.Store != nil || (*calls)[1].options.Store == nil {
			t.Errorf("%s: configmaps are persisted, or nodes are not", d.form)
		}
	}
}

// TestResources_ListError checks that the empty list that clients return along with
// an error is not believed.
func TestResources_ListError(t *testing.T) {
	throughEachDoor(t, func(t *testing.T, server *apitest.Server, d door) {
		server.Inject(apitest.Fault{Verb: "list", Status: 403})
		f := d.real(t, server, nil)
		calls := recordBuilder(f.builder)
		f.ForResource(configMaps)
		if list, err := only(t, calls).lw.List(metav1.ListOptions{}); err == nil || list != nil {
			t.Errorf("list = %v, %v; want nil and an error", list, err)
		}
	})
}

// TestResources_WatchList checks that informers know whether the client can do
// watch-lists. Fakes cannot.
func TestResources_WatchList(t *testing.T) {
	throughEachDoor(t, func(t *testing.T, server *apitest.Server, d door) {
		knows := func(f *resources) bool {
			calls := recordBuilder(f.builder)
			f.ForResource(configMaps)
			return !watchlist.DoesClientNotSupportWatchListSemantics(only(t, calls).lw)
		}
		if !knows(d.real(t, server, nil)) || knows(d.fakes(nil, nil)) {
			t.Error("real clients can do watch-lists and fakes cannot; the informer sees it otherwise")
		}
	})
}

func TestResources_Cluster(t *testing.T) {
	throughEachDoor(t, func(t *testing.T, server *apitest.Server, d door) {
		f := d.real(t, server, newStore())
		calls := recordBuilder(f.builder)
		f.ForResource(configMaps)
		system, err := server.Get(namespaces, "", metav1.NamespaceSystem)
		want := must(meta.Accessor(must(system, err))).GetUID()
		if got, err := only(t, calls).options.Cluster(t.Context()); err != nil || got != string(want) {
			t.Errorf("cluster = %q, %v; want %q", got, err, want)
		}
		if got, err := only(t, calls).options.Schema(t.Context()); err != nil || got != "" {
			t.Errorf("schema = %q, %v; want unknown", got, err)
		}
	})
}

func TestResources_Fakes_HaveNoCluster(t *testing.T) {
	for _, d := range doors {
		if got, err := d.fakes(nil, nil).server.cluster.get(t.Context()); err != nil || got != "" {
			t.Errorf("%s: cluster = %q, %v; want unknown", d.form, got, err)
		}
	}
}

func TestResources_ForResource_WithoutResource(t *testing.T) {
	throughEachDoor(t, func(t *testing.T, server *apitest.Server, d door) {
		f := d.real(t, server, newStore())
		var failures []error
		inf := f.ForResource(schema.GroupVersionResource{Group: "example.com"}).Informer()
		if err := inf.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			failures = append(failures, err)
		}); err != nil {
			t.Fatal(err)
		}
		stop := runFactory(t, f)
		synctest.Wait()
		stop()
		if len(failures) == 0 || !errors.Is(failures[0], store.ErrInvalidIdentity) {
			t.Errorf("watch errors: %v, want that there is no resource", failures)
		}
	})
}

// TestResources_SettingsOfInformers checks what is not the same as in Factory.
func TestResources_SettingsOfInformers(t *testing.T) {
	cache.ResetInformerNamesForTesting()
	defer cache.ResetInformerNamesForTesting()
	throughEachDoor(t, func(t *testing.T, server *apitest.Server, d door) {
		name, err := cache.NewInformerName("named")
		if err != nil {
			t.Fatal(err)
		}
		f := d.real(t, server, newStore(), WithInformerName(name), WithDiscovery(discoveryClient(t, server)))
		calls := recordBuilder(f.builder)
		f.ForResource(widgets)
		o := only(t, calls).options
		if o.ObjectDescription != widgets.String() || o.Identifier.Name() != "named" {
			t.Errorf("description %q, name %q", o.ObjectDescription, o.Identifier.Name())
		}
		before, err := o.Schema(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := server.ChangeSchema(widgets, nil); err != nil {
			t.Fatal(err)
		}
		runFactory(t, f)()
		if after, err := o.Schema(t.Context()); err != nil || after == before {
			t.Errorf("schema = %q, %v; want the one at the start", after, err)
		}
		if again, err := cache.NewInformerName("named"); err != nil {
			t.Errorf("after Shutdown: %v", err)
		} else {
			again.Release()
		}
	})
}

func TestResourceSyncResult_AsError(t *testing.T) {
	if err := (ResourceSyncResult{Synced: map[schema.GroupVersionResource]bool{nodes: true}}).AsError(); err != nil {
		t.Error(err)
	}
	cause := errors.New("leader lost")
	err := ResourceSyncResult{Err: cause, Synced: map[schema.GroupVersionResource]bool{nodes: true, widgets: false, configMaps: false}}.AsError()
	if !errors.Is(err, cause) || !strings.Contains(err.Error(), "/v1, Resource=configmaps, example.com/v1, Resource=widgets") || strings.Contains(err.Error(), "nodes") {
		t.Errorf("error = %v", err)
	}
}
