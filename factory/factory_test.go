package factory

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store"
)

func TestFactory_InformerFor_PassesEveryOption(t *testing.T) {
	cache.ResetInformerNamesForTesting()
	name, err := cache.NewInformerName("test")
	if err != nil {
		t.Fatal(err)
	}
	db, clock := newStore(), clocktesting.NewFakeClock(time.Time{})
	logger, _ := newLog()
	versions := map[string]string{"byNode": "1"}
	f := must(New(fake.NewClientset(), db,
		WithNamespace("web"),
		WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector, o.FieldSelector = "b=2,a=1", "spec.nodeName=n" }),
		WithResync(time.Minute),
		WithTransform(func(obj any) (any, error) { return obj, nil }, "v7"),
		WithInformerName(name),
		WithStartPolicy(informer.Resumed),
		WithListBelow(4096),
		WithDepartedRetention(time.Hour),
		WithIndexVersions(versions),
		WithIndexVersions(map[string]string{"byOwner": "2"}),
		WithClock(clock),
		WithLogger(logger),
	))
	defer f.Shutdown()
	calls := record(f)
	f.Core().V1().Pods().Informer()

	got := only(t, calls)
	o := got.options
	wantID := store.Identity{
		Version: "v1", Resource: "pods", Namespace: "web", LabelSelector: "a=1,b=2",
		FieldSelector: "spec.nodeName=n", Form: store.FormTyped,
	}
	wantVersions := map[string]string{"byNode": "1", "byOwner": "2"}
	switch {
	case reflect.TypeOf(got.example) != reflect.TypeFor[*corev1.Pod]():
		t.Errorf("example is a %T", got.example)
	case o.Store != db, o.Cluster == nil, o.Schema == nil:
		t.Error("informer is not persisted")
	case o.Identity != wantID:
		t.Errorf("identity = %v, want %v", o.Identity, wantID)
	case !slices.Equal(slices.Collect(maps.Keys(o.Indexers)), []string{cache.NamespaceIndex}):
		t.Errorf("indexers = %v", o.Indexers)
	case !maps.Equal(o.IndexVersions, wantVersions), len(versions) != 1:
		t.Errorf("index versions = %v, want %v", o.IndexVersions, wantVersions)
	case o.ResyncPeriod != time.Minute, o.TransformVersion != "v7", o.Start != informer.Resumed, o.ListBelow != 4096, o.DepartedRetention != time.Hour:
		t.Errorf("options = %+v", o)
	case o.Clock != clock, o.Logger == nil, *o.Logger != logger:
		t.Error("clock or logger did not arrive")
	case o.Identifier.Name() != "test", o.Identifier.GroupVersionResource().Resource != "pods", !o.Identifier.Reserved():
		t.Errorf("identifier = %+v", o.Identifier)
	}
	if f.InformerName() != name {
		t.Error("InformerName is not what was set")
	}
}

func TestFactory_Defaults(t *testing.T) {
	f := must(New(fake.NewClientset(), newStore()))
	calls := record(f)
	f.Core().V1().Pods().Informer()
	o := only(t, calls).options
	want := store.Identity{Version: "v1", Resource: "pods", Form: store.FormTyped}
	if o.Identity != want || o.ResyncPeriod != 0 || o.Start != informer.Confirmed || o.Logger != nil || o.Clock != nil || f.InformerName() != nil {
		t.Errorf("options = %+v", o)
	}
}

func TestFactory_Identity_ClusterScopedHasNoNamespace(t *testing.T) {
	f := must(New(fake.NewClientset(), newStore(), WithNamespace("web")))
	calls := record(f)
	f.Core().V1().Nodes().Informer()
	if id := only(t, calls).options.Identity; id.Namespace != "" || id.Resource != "nodes" {
		t.Errorf("identity = %v", id)
	}
}

func TestFactory_InformerFor_OnePerType(t *testing.T) {
	f := must(New(fake.NewClientset(), newStore()))
	calls := record(f)
	pods := f.InformerFor(&corev1.Pod{}, nil)
	byResource, err := f.ForResource(corev1.SchemeGroupVersion.WithResource("pods"))
	if err != nil {
		t.Fatal(err)
	}
	unused := func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		t.Error("the first registration did not win")
		return nil
	}
	if f.InformerFor(&corev1.Pod{}, unused) != pods || byResource.Informer() != pods ||
		f.Core().V1().Pods().Informer().GetIndexer() != pods.GetIndexer() {
		t.Error("there is more than one informer for pods")
	}
	only(t, calls)
}

// TestFactory_InformerFor_HonoursNewFunc has the pattern of kube-scheduler: a
// shared informer with a selector of its own.
func TestFactory_InformerFor_HonoursNewFunc(t *testing.T) {
	client := fake.NewClientset()
	logger, log := newLog()
	f := must(New(client, newStore(), WithResync(time.Minute), WithLogger(logger)))
	calls := record(f)
	var own cache.SharedIndexInformer
	newFunc := func(c kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		if c != kubernetes.Interface(client) || resync != time.Minute {
			t.Errorf("newFunc got %v, %v", c, resync)
		}
		own = coreinformers.NewFilteredPodInformer(c, "web", resync, cache.Indexers{}, nil)
		return own
	}
	if got := f.InformerFor(&corev1.Pod{}, newFunc); got != own {
		t.Error("InformerFor did not return what newFunc built")
	}
	if got := f.Core().V1().Pods().Informer(); got.GetIndexer() != own.GetIndexer() {
		t.Error("the accessor has another informer than was registered first")
	}
	if len(*calls) != 0 {
		t.Error("the factory built one, too")
	}
	if n := strings.Count(log.String(), "Informer is not persisted"); n != 1 {
		t.Errorf("%d log lines, want 1:\n%s", n, log)
	}
}

func TestFactory_InformerFor_NewFuncIsNoNewsWithoutPersistence(t *testing.T) {
	newFunc := func(c kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return coreinformers.NewPodInformer(c, "web", resync, cache.Indexers{})
	}
	for name, f := range map[string]func(Option) *Factory{
		"no store": func(log Option) *Factory { return must(New(fake.NewClientset(), nil, log)) },
		"type is off": func(log Option) *Factory {
			return must(New(fake.NewClientset(), newStore(), log, WithoutPersistence(&corev1.Pod{})))
		},
	} {
		logger, log := newLog()
		f(WithLogger(logger)).InformerFor(&corev1.Pod{}, newFunc)
		if log.String() != "" {
			t.Errorf("%s: logged %q", name, log)
		}
	}
}

func TestFactory_InformerFor_ForeignType(t *testing.T) {
	f := must(New(fake.NewClientset(), newStore()))
	calls := record(f)
	inf := f.InformerFor(&unregistered{}, nil)
	got := only(t, calls)
	if got.options.Store != nil {
		t.Error("an informer that cannot list has a store")
	}
	if _, err := got.lw.List(metav1.ListOptions{}); !errors.Is(err, ErrUnknownResource) {
		t.Errorf("list: %v, want ErrUnknownResource", err)
	}
	if _, err := got.lw.Watch(metav1.ListOptions{}); !errors.Is(err, ErrUnknownResource) {
		t.Errorf("watch: %v, want ErrUnknownResource", err)
	}
	if f.InformerFor(&unregistered{}, nil) != inf {
		t.Error("there is more than one informer for the type")
	}
}

func TestGenerated_InformerFor_FallsBackToNewFunc(t *testing.T) {
	f := must(New(fake.NewClientset(), nil))
	own := must(informer.New(&cache.ListWatch{}, &unregistered{}, informer.Options{}))
	newFunc := func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return own }
	if got := (generated{f}).InformerFor(&unregistered{}, newFunc); got != own {
		t.Error("a type that the clientset does not list is not built by the generated function")
	}
}

func TestFactory_CustomResync(t *testing.T) {
	f := must(New(fake.NewClientset(), nil, WithResync(time.Hour),
		WithCustomResyncConfig(map[metav1.Object]time.Duration{&corev1.Pod{}: time.Minute}),
		WithCustomResyncConfig(map[metav1.Object]time.Duration{&corev1.Node{}: 0})))
	calls := record(f)
	f.Core().V1().Pods().Informer()
	f.Core().V1().Nodes().Informer()
	f.Core().V1().Services().Informer()
	for i, want := range []time.Duration{time.Minute, 0, time.Hour} {
		if got := (*calls)[i].options.ResyncPeriod; got != want {
			t.Errorf("%T: resync %v, want %v", (*calls)[i].example, got, want)
		}
	}
}

func TestFactory_Persistence(t *testing.T) {
	secrets := func(f *Factory) cache.SharedIndexInformer { return f.Core().V1().Secrets().Informer() }
	pods := func(f *Factory) cache.SharedIndexInformer { return f.Core().V1().Pods().Informer() }
	for _, tc := range []struct {
		name    string
		db      store.Store
		opts    []Option
		request func(*Factory) cache.SharedIndexInformer
		want    bool
		// reason is what the status and the log say; empty if they are silent.
		reason string
	}{
		{"store", newStore(), nil, pods, true, ""},
		{"no store", nil, nil, pods, false, ""},
		{"type is off", newStore(), []Option{WithoutPersistence(&corev1.Node{}), WithoutPersistence(&corev1.Pod{})}, pods, false, ""},
		{"other type is off", newStore(), []Option{WithoutPersistence(&corev1.Node{})}, pods, true, ""},
		{"secrets", newStore(), nil, secrets, false, "WithPlaintextSecrets"},
		{"secrets are off", newStore(), []Option{WithoutPersistence(&corev1.Secret{})}, secrets, false, ""},
		{"secrets, no store", nil, nil, secrets, false, ""},
		{"plaintext secrets", newStore(), []Option{WithPlaintextSecrets()}, secrets, true, ""},
		{"plaintext secrets are off", newStore(), []Option{WithPlaintextSecrets(), WithoutPersistence(&corev1.Secret{})}, secrets, false, ""},
		{"tweaked version", newStore(), []Option{WithTweakListOptions(func(o *metav1.ListOptions) { o.ResourceVersion = "0" })}, pods, false, "beyond selectors"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			logger, log := newLog()
			f := must(New(fake.NewClientset(pod("a"), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "s"}}),
				tc.db, append(tc.opts, WithLogger(logger))...))
			calls := record(f)
			inf := tc.request(f)
			tc.request(f)
			if o := only(t, calls).options; (o.Cluster != nil) != tc.want || (o.Schema != nil) != tc.want {
				t.Errorf("options = %+v; want questions to the server if it is persisted only", o)
			}
			runSynced(t, f)
			status, _ := informer.StatusOf(inf)
			err := status.Durability.Err
			if status.Persistent != tc.want || (err != nil) != (tc.reason != "") || err != nil && !strings.Contains(err.Error(), tc.reason) {
				t.Errorf("persistent = %v, %v; want %v, an error with %q", status.Persistent, err, tc.want, tc.reason)
			}
			if !tc.want {
				wantNothingStored(t, tc.db)
			}
			wantLines, inLog := 1, tc.reason // besides the line of every start, which may come later
			if tc.reason == "" || errors.Is(err, informer.ErrPlaintextSecrets) {
				wantLines, inLog = 0, ""
			}
			started := strings.Count(log.String(), `"Informer started"`)
			if n := strings.Count(log.String(), "\n") - started; started > 1 || n != wantLines || !strings.Contains(log.String(), inLog) {
				t.Errorf("log = %q, want %d line with %q", log, wantLines, tc.reason)
			}
		})
	}
}

// TestConstructors_InvalidOptions checks that what cannot be meant is an error that
// names the option.
func TestConstructors_InvalidOptions(t *testing.T) {
	var noStore *storetestStore
	for name, test := range map[string]struct {
		client kubernetes.Interface
		db     store.Store
		option Option
		want   string
	}{
		"nil client":         {nil, nil, WithNamespace(""), "clientset is nil"},
		"nil pointer client": {(*kubernetes.Clientset)(nil), nil, WithNamespace(""), "clientset is nil"},
		"nil pointer store":  {fake.NewClientset(), noStore, WithNamespace(""), "store is a nil *factory.storetestStore"},
		"namespace":          {fake.NewClientset(), nil, WithNamespace("a/b"), `WithNamespace: "a/b"`},
		"label selector": {fake.NewClientset(), nil, WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = "!!"
		}), `WithTweakListOptions: label selector "!!"`},
		"field selector": {fake.NewClientset(), nil, WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = "a"
		}), `WithTweakListOptions: field selector "a"`},
		"retention":         {fake.NewClientset(), nil, WithDepartedRetention(-1), "WithDepartedRetention: -1ns"},
		"start policy":      {fake.NewClientset(), nil, WithStartPolicy(informer.Stale(0)), "WithStartPolicy: Stale needs"},
		"index version":     {fake.NewClientset(), nil, WithIndexVersions(map[string]string{"": "1"}), "WithIndexVersions"},
		"empty resource":    {fake.NewClientset(), nil, WithoutPersistenceOf(schema.GroupVersionResource{}), "WithoutPersistenceOf"},
		"unknown resource":  {fake.NewClientset(), nil, WithoutPersistenceOf(corev1.SchemeGroupVersion.WithResource("secret")), "WithoutPersistenceOf: the clientset has no resource"},
		"unknown type":      {fake.NewClientset(), nil, WithoutPersistence(&metav1.Status{}), "WithoutPersistence: "},
		"metrics":           {fake.NewClientset(), nil, WithInformerMetricsProvider(noMetrics{}), "WithInformerMetricsProvider needs WithInformerName"},
		"panicking tweak":   {fake.NewClientset(), nil, WithTweakListOptions(func(o *metav1.ListOptions) { *o.TimeoutSeconds = 3 }), "WithTweakListOptions: the tweak panics"},
		"resync":            {fake.NewClientset(), nil, WithResync(-1), "WithResync: -1ns"},
		"custom resync":     {fake.NewClientset(), nil, WithCustomResyncConfig(map[metav1.Object]time.Duration{&corev1.Pod{}: -1}), "WithCustomResyncConfig: type *v1.Pod"},
		"custom resync nil": {fake.NewClientset(), nil, WithCustomResyncConfig(map[metav1.Object]time.Duration{nil: 1}), "WithCustomResyncConfig"},
		"transform":         {fake.NewClientset(), nil, WithTransform(nil, "1"), `WithTransform: version "1" without`},
		"two versions of a transform": {fake.NewClientset(), nil, func(c *config) {
			WithTransform(nil, "")(c)
			WithTransformVersion("1")(c)
		}, "WithTransformVersion: WithTransform has"},
		"discovery":   {fake.NewClientset(), nil, WithDiscovery((*discovery.DiscoveryClient)(nil)), "WithDiscovery"},
		"clock":       {fake.NewClientset(), nil, WithClock((*clocktesting.FakeClock)(nil)), "WithClock: the clock is a nil *testing.FakeClock"},
		"persistence": {fake.NewClientset(), nil, WithoutPersistence(nil), "WithoutPersistence"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := New(test.client, test.db, test.option)
			if f != nil || !errors.Is(err, ErrInvalidOptions) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, %v; want ErrInvalidOptions with %q", f, err, test.want)
			}
		})
	}
}

// storetestStore is a store that is only good for a nil pointer.
type storetestStore struct{ store.Store }

func wantNothingStored(t *testing.T, db store.Store) {
	t.Helper()
	if db == nil {
		return
	}
	if infos, err := db.Informers(); err != nil || len(infos) > 0 {
		t.Errorf("the store has %v, %v; want nothing", infos, err)
	}
}

func TestFactory_Identity_EmptyWhenUnknown(t *testing.T) {
	f := must(New(fake.NewClientset(), newStore(), WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector, o.ResourceVersion = "a=b", "0"
	})))
	calls := record(f)
	f.Core().V1().Pods().Informer()
	if id := only(t, calls).options.Identity; id != (store.Identity{}) {
		t.Errorf("identity = %v, want none", id)
	}
}

func TestFactory_ForResource_Unknown(t *testing.T) {
	got, err := must(New(fake.NewClientset(), nil)).ForResource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "foos"})
	if got != nil || !errors.Is(err, ErrUnknownResource) {
		t.Errorf("ForResource = %v, %v; want ErrUnknownResource", got, err)
	}
}

func TestFactory_Transform(t *testing.T) {
	client := fake.NewClientset(pod("a"))
	transform := func(obj any) (any, error) {
		obj.(*corev1.Pod).Labels = map[string]string{"transformed": "yes"}
		return obj, nil
	}
	f := must(New(client, nil, WithTransform(transform, "")))
	lister := f.Core().V1().Pods().Lister()
	runSynced(t, f)
	got, err := lister.Pods("web").Get("a")
	if err != nil || got.Labels["transformed"] != "yes" {
		t.Errorf("Get = %v, %v; want the transformed pod", got, err)
	}
}

// stubborn is an informer that refuses a transform.
type stubborn struct{ cache.SharedIndexInformer }

func (stubborn) SetTransform(cache.TransformFunc) error { return errors.New("already running") }

func TestFactory_Transform_RefusalIsLogged(t *testing.T) {
	logger, log := newLog()
	f := must(New(fake.NewClientset(), nil, WithLogger(logger), WithTransform(func(obj any) (any, error) { return obj, nil }, "1")))
	f.InformerFor(&corev1.Pod{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return stubborn{} })
	if !strings.Contains(log.String(), "already running") {
		t.Errorf("log = %q", log)
	}
}

func TestFactory_ListsAndIndexes(t *testing.T) {
	client := fake.NewClientset(pod("a"), pod("b"),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "c"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	f := must(New(client, nil, WithNamespace("web")))
	pods := f.Core().V1().Pods()
	typed := pods.TypedInformer()
	generic, err := f.ForResource(corev1.SchemeGroupVersion.WithResource("nodes"))
	if err != nil {
		t.Fatal(err)
	}
	lister := generic.Lister()
	runSynced(t, f)

	if got, err := typed.GetIndexer().ByIndex(cache.NamespaceIndex, "web"); err != nil || len(got) != 2 {
		t.Errorf("ByIndex = %v, %v; want two pods", got, err)
	}
	if got, err := pods.Lister().Pods("other").Get("c"); err == nil {
		t.Errorf("Get = %v; want nothing outside the factory's namespace", got)
	}
	if _, err := lister.Get("n"); err != nil {
		t.Errorf("generic lister: %v", err)
	}
	_, err = lister.Get("m")
	if err == nil || !strings.Contains(err.Error(), `nodes "m" not found`) {
		t.Errorf("generic lister: %v; want an error that names the resource", err)
	}
}

func pod(name string) runtime.Object {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name}}
}
