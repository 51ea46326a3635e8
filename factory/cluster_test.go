package factory

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/internal/apitest"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

// cluster is an API server, and a file that outlives the processes of a test.
type cluster struct {
	t      *testing.T
	server *apitest.Server
	file   *storetest.Memory
}

// inCluster runs a test in a bubble, in which the seconds of the protocol cost
// nothing.
func inCluster(t *testing.T, test func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server, err := apitest.New(apitest.Options{InMemory: true, CustomResources: []apitest.CustomResource{apitest.Widgets}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // after that of the informers
			if err := server.Close(); err != nil {
				t.Error(err)
			}
		})
		test(t, &cluster{t: t, server: server, file: storetest.NewMemory()})
	})
}

func (c *cluster) create(objs ...runtime.Object) {
	c.t.Helper()
	if err := c.server.Create(objs...); err != nil {
		c.t.Fatal(err)
	}
}

// labelled returns a ConfigMap with a label "app".
func labelled(namespace, name, app string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": app}},
		Data:       map[string]string{"key": "value of " + name},
	}
}

// hidden is what controller-runtime hides in the closures of a ListerWatcher.
type hidden struct {
	gvr                       schema.GroupVersionResource
	namespace, labels, fields string
}

var (
	configMapsResource = corev1.SchemeGroupVersion.WithResource("configmaps")
	configMapKind      = corev1.SchemeGroupVersion.WithKind("ConfigMap")
)

// apply sets the selectors.
func (h hidden) apply(o *metav1.ListOptions) { o.LabelSelector, o.FieldSelector = h.labels, h.fields }

// typed lists and watches with a plain REST client.
func (h hidden) typed(t *testing.T, config *rest.Config, s *runtime.Scheme, list runtime.Object) cache.ListerWatcher {
	t.Helper()
	config = rest.CopyConfig(config)
	gv := h.gvr.GroupVersion()
	config.GroupVersion, config.APIPath = &gv, "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(s).WithoutConversion()
	client := must(rest.RESTClientFor(config))
	request := func(o metav1.ListOptions) *rest.Request {
		h.apply(&o)
		r := client.Get().Resource(h.gvr.Resource).VersionedParams(&o, runtime.NewParameterCodec(s))
		if h.namespace != "" {
			r.Namespace(h.namespace)
		}
		return r
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			result := list.DeepCopyObject()
			return result, request(o).Do(ctx).Into(result)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			return request(o).Watch(ctx)
		},
	}
}

// configMaps lists ConfigMaps.
func (h hidden) configMaps(t *testing.T, config *rest.Config) cache.ListerWatcher {
	t.Helper()
	h.gvr = configMapsResource
	return h.typed(t, config, scheme.Scheme, &corev1.ConfigMapList{})
}

func (h hidden) unstructured(config *rest.Config) cache.ListerWatcher {
	client := must(dynamic.NewForConfig(config)).Resource(h.gvr).Namespace(h.namespace)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			h.apply(&o)
			return client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			h.apply(&o)
			return client.Watch(ctx, o)
		},
	}
}

// metadata gives objects the kind that they are the metadata of, as
// controller-runtime does.
func (h hidden) metadata(config *rest.Config, kind schema.GroupVersionKind) cache.ListerWatcher {
	client := must(metadata.NewForConfig(config)).Resource(h.gvr).Namespace(h.namespace)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			h.apply(&o)
			list, err := client.List(ctx, o)
			if list != nil {
				for i := range list.Items {
					list.Items[i].SetGroupVersionKind(kind)
				}
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			h.apply(&o)
			w, err := client.Watch(ctx, o)
			if err != nil {
				return nil, err
			}
			return watchWithKind(w, kind), nil
		},
	}
}

// watchWithKind gives objects a kind. watch.Filter, which controller-runtime uses
// for it, leaves a goroutine behind if it is stopped with an event on its hands.
func watchWithKind(w watch.Interface, kind schema.GroupVersionKind) watch.Interface {
	events := make(chan watch.Event)
	proxy := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		defer w.Stop()
		for e := range w.ResultChan() {
			e.Object.GetObjectKind().SetGroupVersionKind(kind)
			select {
			case events <- e:
			case <-proxy.StopChan():
				return
			}
		}
	}()
	return &stopping{ProxyWatcher: proxy, below: w}
}

// stopping also stops the watch below, which ends the goroutine that reads it.
type stopping struct {
	*watch.ProxyWatcher
	below watch.Interface
}

func (s *stopping) Stop() {
	s.ProxyWatcher.Stop()
	s.below.Stop()
}

// example returns an object whose kind is set, as controller-runtime gives it.
func example(obj runtime.Object, kind schema.GroupVersionKind) runtime.Object {
	obj.GetObjectKind().SetGroupVersionKind(kind)
	return obj
}

func newUnstructured(kind schema.GroupVersionKind) runtime.Object {
	return example(&unstructured.Unstructured{}, kind)
}

func newMetadata(kind schema.GroupVersionKind) runtime.Object {
	return example(&metav1.PartialObjectMetadata{}, kind)
}

// application is one run of a program with informers of one NewInformerFunc.
type application struct {
	t    *testing.T
	db   store.Store
	log  *logBuffer
	make func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer

	ctx     context.Context //nolint:containedctx // it is the life of the application
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// begin begins a run, after killing the one before. It always resumes if it can.
func (c *cluster) begin(opts ...Option) *application {
	c.t.Helper()
	return c.beginOn(c.file.Open(), opts...)
}

// beginOn begins another run on the same store: another manager of the process.
func (c *cluster) beginOn(db store.Store, opts ...Option) *application {
	c.t.Helper()
	logger, log := newLog()
	makeInformer, err := NewInformerFunc(db, append([]Option{WithListBelow(-1), WithLogger(logger)}, opts...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	a := &application{t: c.t, db: db, log: log, make: makeInformer}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	c.t.Cleanup(a.stop)
	c.server.ResetRequests()
	return a
}

// stop is a graceful stop. It may be called twice.
func (a *application) stop() {
	a.cancel()
	a.running.Wait()
}

// new makes an informer as controller-runtime does.
func (a *application) new(lw cache.ListerWatcher, example runtime.Object) cache.SharedIndexInformer {
	return a.make(lw, example, 10*time.Hour, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}

// run runs an informer until it has synced.
func (a *application) run(inf cache.SharedIndexInformer) {
	a.start(inf)
	<-inf.HasSyncedChecker().Done()
}

func (a *application) start(inf cache.SharedIndexInformer) {
	a.running.Go(func() { inf.RunWithContext(a.ctx) })
}

// informer makes an informer and runs it until it has synced.
func (a *application) informer(lw cache.ListerWatcher, example runtime.Object) cache.SharedIndexInformer {
	inf := a.new(lw, example)
	a.run(inf)
	return inf
}

// wantKeys fails the test unless an informer holds exactly these objects.
func wantKeys(t *testing.T, inf cache.SharedIndexInformer, want ...string) {
	t.Helper()
	got := inf.GetStore().ListKeys()
	slices.Sort(got)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

// identities returns what is in the file, by its collections.
func identities(t *testing.T, db store.Store) []string {
	t.Helper()
	infos, err := db.Informers()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, info := range infos {
		all = append(all, info.Identity.String())
	}
	return all
}
