package factory

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/dynamic/dynamiclister"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/internal/isnil"
	"github.com/warmcache/warmcache/store"
)

// DynamicFactory is a dynamicinformer.DynamicSharedInformerFactory whose informers
// keep their objects, *unstructured.Unstructured, in a store. The package comment
// says what callers may rely on.
type DynamicFactory struct{ *resources }

var _ dynamicinformer.DynamicSharedInformerFactory = (*DynamicFactory)(nil)

// NewDynamic returns a factory for the informers of any resource, or an error that
// wraps ErrInvalidOptions and names the option that cannot be meant.
//
// With WithNamespace, every resource is listed in that namespace, as in client-go:
// the factory cannot know which have none. Secrets are not persisted without
// WithPlaintextSecrets. The schema of a resource is unknown without WithDiscovery.
//
// With a nil db everything is kept in memory, as in client-go. The factory uses
// db but does not own it: close it after Shutdown. NewDynamic makes no request.
func NewDynamic(client dynamic.Interface, db store.Store, opts ...Option) (*DynamicFactory, error) {
	if isnil.Value(client) {
		return nil, invalid("the dynamic client is nil")
	}
	namespace := func(ctx context.Context, name string, o metav1.GetOptions) (metav1.Object, error) {
		return client.Resource(namespaces).Get(ctx, name, o)
	}
	b, err := newResourceBuilder("NewDynamic", db, newServer(namespace, noDiscovery), opts)
	if err != nil {
		return nil, err
	}
	return &DynamicFactory{&resources{builder: b, form: form{
		name:    store.FormUnstructured,
		example: func() runtime.Object { return &unstructured.Unstructured{} },
		listerWatcher: func(gvr schema.GroupVersionResource) cache.ListerWatcher {
			return listerWatcherOf(client, func() resourceClient[*unstructured.UnstructuredList] {
				return client.Resource(gvr).Namespace(b.config.namespace)
			}, b.config.tweak)
		},
		get: func(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (runtime.Object, error) {
			obj, err := client.Resource(gvr).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, err // and no pointer to nothing
			}
			return obj, nil
		},
		lister: func(indexer cache.Indexer, gvr schema.GroupVersionResource) cache.GenericLister {
			return dynamiclister.NewRuntimeObjectShim(dynamiclister.New(indexer, gvr))
		},
	}}}, nil
}

// namespaces is where a client finds kube-system, which identifies the cluster.
var namespaces = corev1.SchemeGroupVersion.WithResource("namespaces")
