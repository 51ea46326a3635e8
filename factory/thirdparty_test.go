package factory

import (
	"context"
	"reflect"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/internal/apitest"
)

// This file is somebody else's API in small: a type, its scheme, a clientset and
// an informer factory of the shape that the generators give them.

// widget is the Go type of apitest.Widgets, in an own scheme.
type widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec map[string]any `json:"spec,omitempty"`
}

func (w *widget) DeepCopyObject() runtime.Object {
	c := *w
	c.ObjectMeta = *w.ObjectMeta.DeepCopy()
	c.Spec = runtime.DeepCopyJSON(w.Spec)
	return &c
}

type widgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []widget `json:"items"`
}

func (l *widgetList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = nil
	for _, w := range l.Items {
		c.Items = append(c.Items, *w.DeepCopyObject().(*widget))
	}
	return &c
}

// gadget is registered, but has no client.
type gadget struct{ widget }

func (g *gadget) DeepCopyObject() runtime.Object {
	return &gadget{*g.widget.DeepCopyObject().(*widget)}
}

func widgetScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	gv := apitest.Widgets.GVR.GroupVersion()
	s.AddKnownTypeWithName(gv.WithKind("Widget"), &widget{})
	s.AddKnownTypeWithName(gv.WithKind("WidgetList"), &widgetList{})
	s.AddKnownTypeWithName(gv.WithKind("Gadget"), &gadget{})
	metav1.AddToGroupVersion(s, gv)
	return s
}

type (
	widgetInterface interface {
		Get(ctx context.Context, name string, opts metav1.GetOptions) (*widget, error)
		List(ctx context.Context, opts metav1.ListOptions) (*widgetList, error)
		Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	}
	exampleV1Interface interface {
		RESTClient() rest.Interface
		Widgets(namespace string) widgetInterface
	}
	widgetClientset interface {
		Discovery() discovery.DiscoveryInterface
		ExampleV1() exampleV1Interface
	}
)

// widgetClients implements widgetClientset.
type widgetClients struct {
	discovery *discovery.DiscoveryClient
	rest      rest.Interface
	scheme    *runtime.Scheme
}

func newWidgetClients(t *testing.T, server *apitest.Server) *widgetClients {
	t.Helper()
	s := widgetScheme()
	config := server.RESTConfig()
	gv := apitest.Widgets.GVR.GroupVersion()
	config.GroupVersion, config.APIPath = &gv, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(s).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &widgetClients{discovery: discoveryClient(t, server), rest: client, scheme: s}
}

func (c *widgetClients) Discovery() discovery.DiscoveryInterface { return c.discovery }
func (c *widgetClients) ExampleV1() exampleV1Interface           { return c }
func (c *widgetClients) RESTClient() rest.Interface              { return c.rest }

func (c *widgetClients) Widgets(namespace string) widgetInterface {
	return gentype.NewClientWithList("widgets", c.rest, runtime.NewParameterCodec(c.scheme), namespace,
		func() *widget { return &widget{} }, func() *widgetList { return &widgetList{} })
}

type newWidgetInformerFunc func(widgetClientset, time.Duration) cache.SharedIndexInformer

// widgetFactory is a generated factory with one accessor.
type widgetFactory struct {
	client    widgetClientset
	resync    time.Duration
	transform cache.TransformFunc
	running   sync.WaitGroup
	informers map[reflect.Type]cache.SharedIndexInformer
}

func newWidgetFactory(client widgetClientset, resync time.Duration) *widgetFactory {
	return &widgetFactory{client: client, resync: resync, informers: map[reflect.Type]cache.SharedIndexInformer{}}
}

func (f *widgetFactory) InformerFor(obj runtime.Object, newFunc newWidgetInformerFunc) cache.SharedIndexInformer {
	t := reflect.TypeOf(obj)
	if inf, ok := f.informers[t]; ok {
		return inf
	}
	inf := newFunc(f.client, f.resync)
	if f.transform != nil {
		if err := inf.SetTransform(f.transform); err != nil {
			panic(err)
		}
	}
	f.informers[t] = inf
	return inf
}

// Widgets is the accessor.
func (f *widgetFactory) Widgets() cache.SharedIndexInformer {
	return f.InformerFor(&widget{}, func(client widgetClientset, resync time.Duration) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return client.ExampleV1().Widgets("").List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return client.ExampleV1().Widgets("").Watch(ctx, o)
			},
		}, &widget{}, resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	})
}

func (f *widgetFactory) Start(stop <-chan struct{}) {
	for _, inf := range f.informers {
		f.running.Go(func() { inf.Run(stop) })
	}
}

func (f *widgetFactory) Shutdown() { f.running.Wait() }

func (f *widgetFactory) WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool {
	synced := map[reflect.Type]bool{}
	for t, inf := range f.informers {
		synced[t] = cache.WaitForCacheSync(stop, inf.HasSynced)
	}
	return synced
}
