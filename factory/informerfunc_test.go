package factory

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/apitest"
	"github.com/warmcache/warmcache/store"
)

func TestNewInformerFunc_InvalidOptions(t *testing.T) {
	name := must(cache.NewInformerName("of-a-factory"))
	t.Cleanup(name.Release)
	for option, opt := range map[string]Option{
		"WithNamespace":          WithNamespace("web"),
		"WithTweakListOptions":   WithTweakListOptions(func(*metav1.ListOptions) {}),
		"WithResync":             WithResync(time.Hour),
		"WithCustomResyncConfig": WithCustomResyncConfig(map[metav1.Object]time.Duration{&corev1.Pod{}: time.Hour}),
		"WithTransform":          WithTransform(func(obj any) (any, error) { return obj, nil }, ""),
		"WithDiscovery":          WithDiscovery(fake.NewClientset().Discovery()),
		"WithScheme":             WithScheme(scheme.Scheme),
		"WithInformerName":       WithInformerName(name),
		"WithInformerMetrics":    WithInformerMetricsProvider(nil),
		"WithoutPersistence":     WithoutPersistence(nil),
	} {
		_, err := NewInformerFunc(newStore(), opt)
		if !errors.Is(err, ErrInvalidOptions) || !strings.Contains(err.Error(), option) {
			t.Errorf("%s: %v, want ErrInvalidOptions with its name", option, err)
		}
	}
}

// TestNewInformerFunc_WithoutStore is controller-runtime with everything as it was.
func TestNewInformerFunc_WithoutStore(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.create(labelled("web", "a", ""))
		a := c.beginOn(nil)
		inf := a.informer(hidden{}.configMaps(t, c.server.RESTConfig()), &corev1.ConfigMap{})
		wantKeys(t, inf, "web/a")
		if s := statusOf(inf); s.Persistent || s.Durability.Err != nil {
			t.Errorf("status %+v", s)
		}
	})
}

// lastObserved is an Observer.
type lastObserved struct{ inf cache.SharedIndexInformer }

func (o *lastObserved) Observe(inf cache.SharedIndexInformer) { o.inf = inf }

func TestNewInformerFunc_OptionsReachInformers(t *testing.T) {
	logger, _ := newLog()
	observed := &lastObserved{}
	time10 := clocktesting.NewFakeClock(time.Unix(10, 0))
	f := must(newInformerFunc(newStore(), "me", []Option{
		WithStartPolicy(informer.Resumed), WithListBelow(7), WithDepartedRetention(9), WithClock(time10), WithLogger(logger),
		WithIndexVersions(map[string]string{"byApp": "1"}), WithTransformVersion("2"), WithObserver(observed),
	}))
	var got informer.Options
	f.newInformer = func(lw cache.ListerWatcher, example runtime.Object, o informer.Options) (cache.SharedIndexInformer, error) {
		got = o
		return informer.New(lw, example, o)
	}
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	if inf := f.make(&cache.ListWatch{}, newMetadata(configMapKind), time.Hour, indexers); observed.inf != inf {
		t.Error("the observer was not told of the informer")
	}
	if got.Store == nil || got.Identify == nil || got.Cluster == nil || got.Schema == nil || len(got.Indexers) != 1 || got.Logger == nil {
		t.Errorf("options %+v", got)
	}
	got.Store, got.Identify, got.Cluster, got.Schema, got.Indexers, got.Logger = nil, nil, nil, nil, nil, nil
	want := informer.Options{
		Owner: "me", ObjectDescription: "/v1, Kind=ConfigMap", ResyncPeriod: time.Hour,
		Start: informer.Resumed, ListBelow: 7, DepartedRetention: 9, Clock: time10,
		IndexVersions: map[string]string{"byApp": "1"}, TransformVersion: "2",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("options %+v, want %+v", got, want)
	}
}

// An informer that cannot be built does not sync, and says why.
func TestNewInformerFunc_Unbuildable(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a := c.begin()
		inf := a.new(nil, &corev1.ConfigMap{})
		a.start(inf)
		synctest.Wait()
		if s := statusOf(inf); inf.HasSynced() || !errors.Is(s.Err, informer.ErrInvalidOptions) {
			t.Errorf("status %+v", s)
		}
	})
}

// gizmo is a custom resource with a Go type, as a program has it for its own
// CRD: that of apitest.Widgets.
type gizmo struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              gizmoSpec `json:"spec"`
}

type gizmoSpec struct {
	Size    int64             `json:"size"`
	Ratio   float64           `json:"ratio"`
	Color   string            `json:"color"`
	Parts   []gizmoPart       `json:"parts"`
	Empty   map[string]string `json:"empty"`
	Nothing *string           `json:"nothing"`
}

type gizmoPart struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

func (g *gizmo) DeepCopyObject() runtime.Object {
	c := *g
	g.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

type gizmoList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []gizmo `json:"items"`
}

func (l *gizmoList) DeepCopyObject() runtime.Object {
	c := *l
	return &c
}

// gizmoScheme knows gizmo as the type of apitest.Widgets.
func gizmoScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	gv := apitest.Widgets.GVR.GroupVersion()
	s.AddKnownTypeWithName(gv.WithKind("Widget"), &gizmo{})
	s.AddKnownTypeWithName(gv.WithKind("WidgetList"), &gizmoList{})
	metav1.AddToGroupVersion(s, gv)
	return s
}

// watched are informers of every form, restricted in every way, of two resources
// with objects in two namespaces.
func watched(t *testing.T, a *application, c *cluster) map[string]cache.SharedIndexInformer {
	t.Helper()
	config := Identify(c.server.RESTConfig())
	widgets, widgetKind := apitest.Widgets.GVR, apitest.Widgets.GVR.GroupVersion().WithKind("Widget")
	informers := map[string]cache.SharedIndexInformer{}
	for _, h := range []hidden{{}, {namespace: "web"}, {namespace: "db"}, {labels: "app=x"}, {fields: "metadata.name!=a"}} {
		for _, r := range []struct {
			gvr  schema.GroupVersionResource
			kind schema.GroupVersionKind
		}{{configMapsResource, configMapKind}, {widgets, widgetKind}} {
			h.gvr = r.gvr
			where := fmt.Sprintf("%+v ", h)
			informers[where+"unstructured"] = a.new(h.unstructured(config), newUnstructured(r.kind))
			informers[where+"metadata"] = a.new(h.metadata(config, r.kind), newMetadata(r.kind))
		}
		h.gvr = configMapsResource
		informers[fmt.Sprintf("%+v typed", h)] = a.new(h.configMaps(t, config), &corev1.ConfigMap{})
		h.gvr = widgets
		informers[fmt.Sprintf("%+v typed", h)] = a.new(h.typed(t, config, gizmoScheme(), &gizmoList{}), &gizmo{})
	}
	for _, inf := range informers {
		a.start(inf)
	}
	for _, inf := range informers {
		<-inf.HasSyncedChecker().Done()
	}
	return informers
}

// objectsOf returns what an informer holds, by key.
func objectsOf(inf cache.SharedIndexInformer) map[string]any {
	objects := map[string]any{}
	for _, key := range inf.GetStore().ListKeys() {
		objects[key], _, _ = inf.GetStore().GetByKey(key)
	}
	return objects
}

// TestNewInformerFunc_Restart_EachHasItsOwn kills a program with many informers.
// Each comes back with its own objects, exactly as they were, including the kind
// that controller-runtime gives to metadata, and without a list.
func TestNewInformerFunc_Restart_EachHasItsOwn(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		for i, namespace := range []string{"web", "db"} {
			for j, name := range []string{"a", "b", "c"} {
				w := apitest.Widget(namespace, name, 3*i+j)
				w.SetLabels(map[string]string{"app": []string{"x", "y"}[j%2]})
				c.create(w, labelled(namespace, name, []string{"x", "y"}[j%2]))
			}
		}
		first := c.begin()
		before := map[string]map[string]any{}
		for name, inf := range watched(t, first, c) {
			before[name] = objectsOf(inf)
			if s := statusOf(inf); !s.Persistent {
				t.Errorf("%s is not persistent: %v", name, s.Durability.Err)
			}
		}
		if got := identities(t, first.db); len(got) != len(before) {
			t.Errorf("%d collections for %d informers", len(got), len(before))
		}

		second := c.begin()
		first.stop()
		for name, inf := range watched(t, second, c) {
			if s := statusOf(inf); s.Lists != 0 || !s.Persistent || !s.Confirmed {
				t.Errorf("%s: %+v", name, s)
			}
			if got := objectsOf(inf); !reflect.DeepEqual(got, before[name]) {
				t.Errorf("%s (-before +after):\n%s", name, cmp.Diff(before[name], got))
			}
			for _, obj := range objectsOf(inf) {
				if m, ok := obj.(*metav1.PartialObjectMetadata); ok && m.Kind != "Widget" && m.Kind != "ConfigMap" {
					t.Errorf("%s has an object of kind %q", name, m.Kind)
				}
			}
		}
	})
}

func TestNewInformerFunc_Restart_TellsWhatChanged(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.create(labelled("web", "a", "x"), labelled("web", "b", "x"), labelled("web", "c", "x"))
		c.begin().informer(hidden{labels: "app=x"}.configMaps(t, Identify(c.server.RESTConfig())), &corev1.ConfigMap{})

		a := c.begin()
		if err := errors.Join(c.server.Delete(labelled("web", "a", "x")), c.server.Update(labelled("web", "b", "y"))); err != nil {
			t.Fatal(err)
		}
		c.create(labelled("web", "d", "x"))
		inf := a.new(hidden{labels: "app=x"}.configMaps(t, Identify(c.server.RESTConfig())), &corev1.ConfigMap{})
		var deleted []string
		_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
			deleted = append(deleted, must(cache.DeletionHandlingMetaNamespaceKeyFunc(obj)))
		}})
		if err != nil {
			t.Fatal(err)
		}
		a.run(inf)
		synctest.Wait()
		wantKeys(t, inf, "web/c", "web/d")
		if diff := cmp.Diff([]string{"web/a", "web/b"}, deleted); diff != "" {
			t.Errorf("deletes (-want +got):\n%s", diff)
		}
		if s := statusOf(inf); s.Lists != 0 {
			t.Errorf("listed because %s", s.ListReason)
		}
	})
}

// TestNewInformerFunc_Offline is an edge node whose link is down when it starts.
func TestNewInformerFunc_Offline(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.create(labelled("web", "a", "x"))
		lw := hidden{namespace: "web"}.configMaps(t, Identify(c.server.RESTConfig()))
		c.begin().informer(lw, &corev1.ConfigMap{})

		a := c.begin(WithStartPolicy(informer.Stale(time.Second)))
		if err := c.server.Down(); err != nil {
			t.Fatal(err)
		}
		inf := a.informer(lw, &corev1.ConfigMap{})
		wantKeys(t, inf, "web/a")
		if s := statusOf(inf); s.Confirmed || !s.Persistent {
			t.Errorf("status %+v, want persistent and not confirmed", s)
		}
	})
}

// TestNewInformerFunc_IdentityInUse is about two managers of one process.
func TestNewInformerFunc_IdentityInUse(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.create(labelled("web", "a", ""))
		config := Identify(c.server.RESTConfig())
		first := c.begin()
		inf := first.informer(hidden{}.configMaps(t, config), &corev1.ConfigMap{})
		second := c.beginOn(first.db)
		refused := second.informer(hidden{}.configMaps(t, config), &corev1.ConfigMap{})
		err := statusOf(refused).Durability.Err
		if !errors.Is(err, store.ErrInUse) || strings.Count(err.Error(), "cluster_test.go") != 2 {
			t.Errorf("status says %v, want ErrInUse with the callers of NewInformerFunc", err)
		}
		if !strings.Contains(second.log.String(), store.ErrInUse.Error()) {
			t.Errorf("the log does not say so:\n%s", second.log)
		}
		c.create(labelled("web", "b", ""))
		synctest.Wait()
		wantKeys(t, inf, "web/a", "web/b")
		wantKeys(t, refused, "web/a", "web/b")
		if got := identities(t, first.db); len(got) != 1 {
			t.Errorf("collections %q, want one", got)
		}
		// Another selection is another identity.
		other := second.informer(hidden{namespace: "web"}.configMaps(t, config), &corev1.ConfigMap{})
		if s := statusOf(other); !s.Persistent {
			t.Errorf("status %+v", s)
		}
	})
}

func TestNewInformerFunc_WithoutPersistence(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		config := Identify(c.server.RESTConfig())
		h := hidden{gvr: configMapsResource}
		a := c.begin(WithoutPersistence(&corev1.ConfigMap{}))
		typed := a.informer(h.configMaps(t, config), &corev1.ConfigMap{})
		a.informer(h.metadata(config, configMapKind), newMetadata(configMapKind))
		if diff := cmp.Diff([]string{"v1/configmaps?form=metadata"}, identities(t, a.db)); diff != "" {
			t.Errorf("collections by type (-want +got):\n%s", diff)
		}
		if s := statusOf(typed); s.Persistent || s.Durability.Err != nil {
			t.Errorf("status %+v", s)
		}

		b := c.begin(WithoutPersistenceOf(configMapsResource))
		a.stop()
		metadata := b.informer(h.metadata(config, configMapKind), newMetadata(configMapKind))
		namespaces := corev1.SchemeGroupVersion.WithResource("namespaces")
		b.informer(hidden{gvr: namespaces}.unstructured(config), newUnstructured(corev1.SchemeGroupVersion.WithKind("Namespace")))
		if s := statusOf(metadata); s.Persistent || s.Durability.Err != nil {
			t.Errorf("status %+v", s)
		}
		want := []string{"v1/configmaps?form=metadata", "v1/namespaces?form=unstructured"}
		if diff := cmp.Diff(want, identities(t, b.db)); diff != "" {
			t.Errorf("collections by resource (-want +got):\n%s", diff)
		}
		if log := b.log.String(); strings.Contains(log, "E1") {
			t.Errorf("errors are logged about what is wanted:\n%s", log)
		}
	})
}

func TestNewInformerFunc_Secrets(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		h := hidden{gvr: corev1.SchemeGroupVersion.WithResource("secrets")}
		kind := corev1.SchemeGroupVersion.WithKind("Secret")
		config := Identify(c.server.RESTConfig())
		run := func(a *application) [3]bool {
			var persistent [3]bool
			for i, inf := range []cache.SharedIndexInformer{
				a.informer(h.typed(t, config, scheme.Scheme, &corev1.SecretList{}), &corev1.Secret{}),
				a.informer(h.unstructured(config), newUnstructured(kind)),
				a.informer(h.metadata(config, kind), newMetadata(kind)),
			} {
				s := statusOf(inf)
				persistent[i] = s.Persistent
				if !s.Persistent && !errors.Is(s.Durability.Err, informer.ErrPlaintextSecrets) {
					t.Errorf("status %+v", s)
				}
			}
			return persistent
		}
		a := c.begin()
		if got := run(a); got != [3]bool{} {
			t.Errorf("persistent %v, want none", got)
		}
		b := c.begin(WithPlaintextSecrets())
		a.stop()
		if got := run(b); got != [3]bool{true, true, true} {
			t.Errorf("persistent %v, want all", got)
		}
		d := c.begin()
		b.stop()
		run(d)
		if stored := identities(t, d.db); len(stored) != 0 {
			t.Errorf("%v are still stored although that is not allowed any more", stored)
		}
	})
}

// The transform comes after construction, as with controller-runtime, and stored
// objects were made by the transform of then.
func TestNewInformerFunc_TransformVersion(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.create(labelled("web", "a", ""))
		config := Identify(c.server.RESTConfig())
		run := func(version, value string) informer.Status {
			a := c.begin(WithTransformVersion(version))
			inf := a.new(hidden{}.configMaps(t, config), &corev1.ConfigMap{})
			err := inf.SetTransform(func(obj any) (any, error) {
				obj.(*corev1.ConfigMap).Data = map[string]string{"key": value}
				return obj, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			a.run(inf)
			obj, _, _ := inf.GetStore().GetByKey("web/a")
			if got := obj.(*corev1.ConfigMap).Data["key"]; got != value {
				t.Errorf("version %s: value %q, want %q", version, got, value)
			}
			a.stop()
			return statusOf(inf)
		}
		run("1", "one")
		if s := run("1", "one"); s.Lists != 0 {
			t.Errorf("same version: listed because %s", s.ListReason)
		}
		if s := run("2", "two"); s.Lists != 1 {
			t.Errorf("other version: %d lists, want 1", s.Lists)
		}
	})
}

// Indexers are added by controller-runtime's IndexField, before and after the
// start.
func TestNewInformerFunc_AddIndexers(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.create(labelled("web", "a", "x"), labelled("web", "b", "y"))
		byApp := func(obj any) ([]string, error) { return []string{obj.(*corev1.ConfigMap).Labels["app"]}, nil }
		for range 2 {
			a := c.begin()
			inf := a.new(hidden{}.configMaps(t, Identify(c.server.RESTConfig())), &corev1.ConfigMap{})
			if err := inf.AddIndexers(cache.Indexers{"before": byApp}); err != nil {
				t.Fatal(err)
			}
			a.run(inf)
			if err := inf.AddIndexers(cache.Indexers{"after": byApp}); err != nil {
				t.Fatal(err)
			}
			for _, index := range []string{"before", "after"} {
				if keys, err := inf.GetIndexer().IndexKeys(index, "x"); err != nil || len(keys) != 1 || keys[0] != "web/a" {
					t.Errorf("index %s: %v, %v", index, keys, err)
				}
			}
			a.stop()
		}
	})
}

func TestNewInformerFunc_WatchErrorHandler(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.server.Inject(apitest.Fault{Status: http.StatusForbidden, Times: 3, Match: func(r apitest.Request) bool {
			return r.Resource == "configmaps"
		}})
		a := c.begin()
		inf := a.new(hidden{}.configMaps(t, Identify(c.server.RESTConfig())), &corev1.ConfigMap{})
		var failed error
		if err := inf.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { failed = err }); err != nil {
			t.Fatal(err)
		}
		a.run(inf)
		if failed == nil {
			t.Error("the handler was not called")
		}
	})
}

// TestNewInformerFunc_OtherCluster resumes nothing that another cluster, behind
// the same address, has made.
func TestNewInformerFunc_OtherCluster(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.create(labelled("web", "a", ""))
		config := Identify(c.server.RESTConfig()) // of one process
		run := func() cache.SharedIndexInformer {
			a := c.begin()
			defer a.stop()
			return a.informer(hidden{}.configMaps(t, config), &corev1.ConfigMap{})
		}
		run()
		kubeSystem := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}
		if err := c.server.Delete(kubeSystem); err != nil {
			t.Fatal(err)
		}
		c.create(kubeSystem)
		if s := statusOf(run()); s.Lists != 1 || !strings.Contains(s.ListReason, "another cluster") {
			t.Errorf("%d lists because %q, want one because of another cluster", s.Lists, s.ListReason)
		}
	})
}

// TestNewInformerFunc_TakesOver has an informer follow another one that was told to
// stop and has not yet, as when controller-runtime's cache removes one and makes it
// again.
func TestNewInformerFunc_TakesOver(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.create(labelled("web", "a", ""))
		config := Identify(c.server.RESTConfig())
		a := c.begin()
		old := a.new(hidden{}.configMaps(t, config), &corev1.ConfigMap{})
		ctx, cancel := context.WithCancel(a.ctx)
		a.running.Go(func() { old.RunWithContext(ctx) })
		<-old.HasSyncedChecker().Done()
		time.Sleep(time.Minute)
		cancel() // and nobody waits
		s := statusOf(a.informer(hidden{}.configMaps(t, config), &corev1.ConfigMap{}))
		if !s.Persistent || s.Outcome == informer.OutcomeCold {
			t.Errorf("persistent %v, %s because %s: %v", s.Persistent, s.Outcome, s.OutcomeReason, s.Durability.Err)
		}
	})
}

// TestNewInformerFunc_AsksAtEachStart has informers of two managers, with one config,
// that start one after the other. Meanwhile the server may have been upgraded, or
// replaced.
func TestNewInformerFunc_AsksAtEachStart(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		config := Identify(c.server.RESTConfig())
		a := c.begin()
		b := c.beginOn(a.db)
		for _, namespace := range []string{"x", "y", "z"} {
			a.informer(hidden{namespace: namespace}.configMaps(t, config), &corev1.ConfigMap{})
			b.informer(hidden{namespace: namespace, labels: "app"}.configMaps(t, config), &corev1.ConfigMap{})
		}
		asked := func() (cluster, schemas int) {
			for _, r := range c.server.Requests() {
				switch {
				case r.Name == metav1.NamespaceSystem:
					cluster++
				case strings.HasPrefix(r.Path, "/openapi"):
					schemas++
				}
			}
			return cluster, schemas
		}
		if cluster, schemas := asked(); cluster != 6 || schemas != 6 {
			t.Errorf("asked %d times for the cluster and %d times for the schemas, want both at each start", cluster, schemas)
		}
	})
}

// TestNewInformerFunc_SchemaChanged lists, because a new default changes objects
// without changing their versions.
func TestNewInformerFunc_SchemaChanged(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.create(labelled("web", "a", ""))
		run := func() informer.Status {
			a := c.begin()
			defer a.stop()
			return statusOf(a.informer(hidden{}.configMaps(t, Identify(c.server.RESTConfig())), &corev1.ConfigMap{}))
		}
		run()
		if err := c.server.ChangeSchema(configMapsResource, nil); err != nil {
			t.Fatal(err)
		}
		if s := run(); s.Lists != 1 || !strings.Contains(s.ListReason, "schema") {
			t.Errorf("%d lists because %q, want one because of the schema", s.Lists, s.ListReason)
		}
	})
}
