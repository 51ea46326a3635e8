package factory

import (
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
)

// informerTypes is how many informers client-go 0.37 generates.
const informerTypes = 147

// generatedInformers calls the accessors of every informer of f, three levels
// deep: Core().V1().Pods(). It returns how many there are.
func generatedInformers(t *testing.T, f informers.SharedInformerFactory, visit func(accessor reflect.Value)) int {
	t.Helper()
	count := 0
	for group := range reflect.TypeFor[informers.SharedInformerFactory]().Methods() {
		if group.Type.NumIn() != 0 || group.Type.NumOut() != 1 ||
			!strings.HasPrefix(group.Type.Out(0).PkgPath(), "k8s.io/client-go/informers/") {
			continue
		}
		versions := reflect.ValueOf(f).MethodByName(group.Name).Call(nil)[0]
		for _, version := range versions.Methods() {
			for _, accessor := range version.Call(nil)[0].Methods() {
				visit(accessor.Call(nil)[0])
				count++
			}
		}
	}
	return count
}

func TestFactory_EveryGeneratedAccessorResolves(t *testing.T) {
	f := must(New(fake.NewClientset(), newStore(), WithPlaintextSecrets()))
	built := map[reflect.Type]informer.Options{}
	f.newInformer = func(lw cache.ListerWatcher, example runtime.Object, o informer.Options) (cache.SharedIndexInformer, error) {
		built[reflect.TypeOf(example)] = o
		return informer.New(lw, example, o)
	}
	count := generatedInformers(t, f, func(accessor reflect.Value) {
		untyped := accessor.MethodByName("Informer").Call(nil)[0].Interface().(cache.SharedIndexInformer)
		typed := accessor.MethodByName("TypedInformer").Call(nil)[0]
		lister := accessor.MethodByName("Lister").Call(nil)[0]
		if lister.IsNil() || typed.MethodByName("GetIndexer").Call(nil)[0].Interface() != any(untyped.GetIndexer()) {
			t.Errorf("%v: Informer, TypedInformer and Lister do not share an informer", accessor.Type())
		}
	})
	if count != informerTypes || len(built) != informerTypes {
		t.Errorf("%d accessors built %d informers, want %d", count, len(built), informerTypes)
	}
	for typ, o := range built {
		if o.Store == nil || o.Cluster == nil || o.Schema == nil {
			t.Errorf("%v is not persisted", typ)
		}
		if err := o.Identity.Validate(); err != nil {
			t.Errorf("%v: %v", typ, err)
		}
	}
}

// TestResourceTable_AgreesWithGeneratedForResource checks our mapping between
// types and resources in both directions against client-go's. Its factory lets
// us plant an informer per type and see under which resource it comes back.
func TestResourceTable_AgreesWithGeneratedForResource(t *testing.T) {
	client := fake.NewClientset()
	stock := informers.NewSharedInformerFactory(client, 0)
	planted := map[reflect.Type]cache.Indexer{}
	ours := must(New(client, nil))
	ours.newInformer = func(lw cache.ListerWatcher, example runtime.Object, o informer.Options) (cache.SharedIndexInformer, error) {
		inf, err := informer.New(lw, example, o)
		planted[reflect.TypeOf(example)] = inf.GetIndexer()
		stock.InformerFor(example, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return inf })
		return inf, err
	}
	generatedInformers(t, ours, func(accessor reflect.Value) { accessor.MethodByName("Informer").Call(nil) })

	table := clientsetResources()
	if len(table.byGVR) != informerTypes || len(table.byType) != informerTypes {
		t.Errorf("table has %d types and %d resources, want %d", len(table.byType), len(table.byGVR), informerTypes)
	}
	for gvr, r := range table.byGVR {
		theirs, err := stock.ForResource(gvr)
		if err != nil {
			t.Errorf("%v: client-go: %v", r, err)
			continue
		}
		if planted[r.object] == nil || theirs.Informer().GetIndexer() != planted[r.object] {
			t.Errorf("%v: client-go has another type than %v for %v", r, r.object, gvr)
		}
		got, err := ours.ForResource(gvr)
		if err != nil {
			t.Errorf("ForResource(%v): %v", gvr, err)
		} else if got.Informer().GetIndexer() != planted[r.object] {
			t.Errorf("ForResource(%v) has another informer than its accessor", gvr)
		}
	}
}

// TestCaller_FakeClientset lists and watches every resource and compares what
// the fake's generated code says it was asked for.
func TestCaller_FakeClientset(t *testing.T) {
	client := fake.NewClientset()
	for gvr, r := range clientsetResources().byGVR {
		client.ClearActions()
		c := caller{clientset: client, resource: r, namespace: "web"}
		list, err := c.list(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Errorf("%v: list: %v", r, err)
			continue
		}
		if want := r.object.Elem().Name() + "List"; reflect.TypeOf(list).Elem().Name() != want {
			t.Errorf("%v: list is a %T, want a %s", r, list, want)
		}
		w, err := c.watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Errorf("%v: watch: %v", r, err)
			continue
		}
		w.Stop()
		wantNamespace := ""
		if r.namespaced {
			wantNamespace = "web"
		}
		actions := client.Actions()
		if len(actions) != 2 || actions[0].GetVerb() != "list" || actions[1].GetVerb() != "watch" {
			t.Fatalf("%v: unexpected actions %v", r, actions)
		}
		for _, a := range actions {
			if a.GetResource() != gvr || a.GetNamespace() != wantNamespace {
				t.Errorf("%v: %s of %v in %q, want %v in %q", r, a.GetVerb(), a.GetResource(), a.GetNamespace(), gvr, wantNamespace)
			}
		}
	}
}

// recorder is a transport that answers every request with 404.
type recorder struct {
	mu       sync.Mutex
	requests []*http.Request
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, req)
	return &http.Response{
		StatusCode: http.StatusNotFound,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)),
		Request:    req,
	}, nil
}

func (r *recorder) take() []*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.requests
	r.requests = nil
	return taken
}

// nowhere returns a real clientset whose requests end in the recorder.
func nowhere(t *testing.T) (kubernetes.Interface, *recorder) {
	t.Helper()
	rec := &recorder{}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://nowhere.invalid", Transport: rec, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client, rec
}

// TestCaller_RealClientset compares the URLs that the real clientset asks for.
func TestCaller_RealClientset(t *testing.T) {
	client, rec := nowhere(t)
	for gvr, r := range clientsetResources().byGVR {
		c := caller{clientset: client, resource: r, namespace: "web"}
		list, err := c.list(t.Context(), metav1.ListOptions{Limit: 1})
		if err == nil || list != nil {
			t.Errorf("%v: list = %v, %v; want the server's error alone", r, list, err)
		}
		if w, err := c.watch(t.Context(), metav1.ListOptions{ResourceVersion: "7"}); err == nil || w != nil {
			t.Errorf("%v: watch = %v, %v; want the server's error alone", r, w, err)
		}
		want := collectionPath(gvr, r.namespaced)
		requests := rec.take()
		if len(requests) != 2 {
			t.Fatalf("%v: %d requests, want 2", r, len(requests))
		}
		if u := requests[0].URL; u.Path != want || u.RawQuery != "limit=1" {
			t.Errorf("%v: listed %v, want %s?limit=1", r, u, want)
		}
		if u := requests[1].URL; u.Path != want || u.RawQuery != "resourceVersion=7&watch=true" {
			t.Errorf("%v: watched %v, want %s?resourceVersion=7&watch=true", r, u, want)
		}
	}
}

func collectionPath(gvr schema.GroupVersionResource, namespaced bool) string {
	path := "/apis/" + gvr.Group + "/" + gvr.Version
	if gvr.Group == "" {
		path = "/api/" + gvr.Version
	}
	if namespaced {
		path += "/namespaces/web"
	}
	return path + "/" + gvr.Resource
}

// Clients of the shapes that the table must accept or pass over.
type (
	client[T, L any] interface {
		Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
		List(ctx context.Context, opts metav1.ListOptions) (L, error)
		Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	}
	podClient = client[*corev1.Pod, *corev1.PodList]
	noWatch   interface {
		Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Pod, error)
		List(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error)
	}
	noContext interface {
		Get(name string) (*corev1.Pod, error)
		List(opts metav1.ListOptions) (*corev1.PodList, error)
		Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	}
	silentGet interface {
		Get(name string) *corev1.Pod
		List(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error)
		Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	}
	onlyReady interface {
		podClient
		Ready() bool
	}
)

func TestNewResourceTable_PassesOverWhatIsNotAResource(t *testing.T) {
	type group interface {
		Pods(namespace string) onlyReady
		Unwatched(namespace string) noWatch
		Old(namespace string) noContext
		Silent(namespace string) silentGet
		Unregistered() client[*unregistered, *corev1.PodList]
		Values() client[corev1.Pod, *corev1.PodList]
		Strings() client[*corev1.Pod, string]
		Numbered(n int) podClient
		Two(a, b string) podClient
		Fine() error
	}
	type clientset interface {
		CoreV1() group
		Concrete() *corev1.Pod
		Named(name string) group
		Nothing()
	}
	table := newResourceTable(reflect.TypeFor[clientset](), scheme.Scheme)
	if len(table.byType) != 1 || len(table.byGVR) != 1 {
		t.Fatalf("table = %v, want pods only", table)
	}
	got, err := table.resourceFor(reflect.TypeFor[*corev1.Pod]())
	want := apiResource{
		gvr:        corev1.SchemeGroupVersion.WithResource("pods"),
		object:     reflect.TypeFor[*corev1.Pod](),
		group:      "CoreV1",
		accessor:   "Pods",
		namespaced: true,
	}
	if err != nil || got != want {
		t.Errorf("resourceFor(Pod) = %+v, %v; want %+v", got, err, want)
	}
}

// unregistered is a type that no scheme knows.
type unregistered struct{ corev1.Pod }

func TestResourceTable_ResourceFor_WantsExactlyOne(t *testing.T) {
	type group interface {
		Pods(namespace string) podClient
		OtherPods(namespace string) podClient
		Deployments(namespace string) client[*appsv1.Deployment, *appsv1.DeploymentList]
	}
	type clientset interface{ V1() group }
	table := newResourceTable(reflect.TypeFor[clientset](), scheme.Scheme)

	_, err := table.resourceFor(reflect.TypeFor[*corev1.Pod]())
	if !errors.Is(err, ErrUnknownResource) || !strings.Contains(err.Error(), "V1().Pods") || !strings.Contains(err.Error(), "V1().OtherPods") {
		t.Errorf("two accessors: %v, want ErrUnknownResource that names both", err)
	}
	if _, err := table.resourceFor(reflect.TypeFor[*corev1.Node]()); !errors.Is(err, ErrUnknownResource) {
		t.Errorf("no accessor: %v, want ErrUnknownResource", err)
	}
	if _, err := table.resourceFor(nil); !errors.Is(err, ErrUnknownResource) {
		t.Errorf("nil type: %v, want ErrUnknownResource", err)
	}
	for gvr := range table.byGVR {
		if gvr.Resource != "deployments" {
			t.Errorf("byGVR has %v, which is not unique", gvr)
		}
	}
}

func TestNewResourceTable_WantsOneKind(t *testing.T) {
	type group interface {
		Pods(namespace string) podClient
	}
	type clientset interface{ V1() group }
	typer := runtime.NewScheme()
	typer.AddKnownTypeWithName(schema.GroupVersionKind{Group: "a", Version: "v1", Kind: "Pod"}, &corev1.Pod{})
	typer.AddKnownTypeWithName(schema.GroupVersionKind{Group: "b", Version: "v1", Kind: "Pod"}, &corev1.Pod{})
	if table := newResourceTable(reflect.TypeFor[clientset](), typer); len(table.byType) != 0 {
		t.Errorf("table = %v, want nothing: the type does not tell its group", table)
	}
}

func TestClientsetResources_Scope(t *testing.T) {
	table := clientsetResources()
	for _, tc := range []struct {
		object     runtime.Object
		namespaced bool
	}{{&corev1.Pod{}, true}, {&corev1.Node{}, false}, {&corev1.Namespace{}, false}, {&corev1.Secret{}, true}} {
		r, err := table.resourceFor(reflect.TypeOf(tc.object))
		if err != nil || r.namespaced != tc.namespaced {
			t.Errorf("%T: namespaced = %v, %v; want %v", tc.object, r.namespaced, err, tc.namespaced)
		}
	}
}
