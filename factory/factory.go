package factory

import (
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/internal/isnil"
	"github.com/warmcache/warmcache/store"
)

// Factory is an informers.SharedInformerFactory whose informers keep their
// objects in a store. The package comment says what callers may rely on.
type Factory struct {
	client kubernetes.Interface
	*builder
	pool pool[reflect.Type]
}

var (
	_ informers.SharedInformerFactory          = (*Factory)(nil)
	_ internalinterfaces.SharedInformerFactory = generated{}
)

// New returns a factory for the informers of all built-in types, or an error
// that wraps ErrInvalidOptions and names the option that cannot be meant.
//
// With a nil db everything is kept in memory, as in client-go. The factory uses
// db but does not own it: close it after Shutdown. New makes no request and opens
// nothing; what is wrong with an informer shows in its watch error handler, its
// status and the log.
func New(client kubernetes.Interface, db store.Store, opts ...Option) (*Factory, error) {
	if isnil.Value(client) {
		return nil, invalid("the clientset is nil")
	}
	b, err := newBuilder(db, serverOf(client), opts)
	if err != nil {
		return nil, err
	}
	if err := b.config.refuse("New", map[string]string{"WithScheme": "its types are those of client-go"}); err != nil {
		return nil, err
	}
	if err := errors.Join(b.config.metricsNeedName(), b.config.validateTypes(clientsetResources())); err != nil {
		return nil, err
	}
	return &Factory{client: client, builder: b}, nil
}

// InformerName returns what WithInformerName set, or nil.
func (f *Factory) InformerName() *cache.InformerName { return f.config.informerName }

// InformerFor returns the informer for the type of obj, making it if it is the
// first to ask.
//
// With a nil newFunc the factory makes a persistent informer, for every type
// that the clientset can list; for another type it returns an informer that
// never syncs and reports why to its watch error handler.
//
// Otherwise newFunc makes the informer, as in client-go, because only newFunc
// knows what it selects and which indexers its caller relies on. The factory
// sets the transform and does not persist it, which is logged. newFunc must not
// use the factory, which is locked meanwhile. The accessors of the groups
// (Core, Apps, ...) and ForResource always lead to persistent informers.
func (f *Factory) InformerFor(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	t := reflect.TypeOf(obj)
	return f.pool.get(t, func() cache.SharedIndexInformer {
		if newFunc != nil {
			return f.foreign(t, newFunc)
		}
		r, err := clientsetResources().resourceFor(t)
		if err != nil {
			return f.failing(obj, err)
		}
		t, c := f.target(r), f.caller(r)
		t.get = c.get
		return f.build(t, c.listerWatcher())
	})
}

// foreign makes an informer with a user's function.
func (f *Factory) foreign(t reflect.Type, newFunc internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	if f.db != nil && !f.config.memoryOnly[t] {
		f.config.log().Info("Informer is not persisted: the caller's function builds it", "type", t)
	}
	inf := newFunc(f.client, f.config.resyncOf(t))
	f.transform(inf)
	return inf
}

func (f *Factory) target(r apiResource) target { return typedTarget(r, f.config.namespace) }

// typedTarget is what an informer of a clientset's resource holds.
func typedTarget(r apiResource, namespace string) target {
	t := target{gvr: r.gvr, example: newObject(r.object), form: store.FormTyped}
	if r.namespaced {
		t.namespace = namespace
	}
	return t
}

func (f *Factory) caller(r apiResource) caller {
	return caller{clientset: f.client, resource: r, namespace: f.config.namespace, tweak: f.config.tweak}
}

// ForResource returns the informer and a lister for a built-in resource, or an
// error wrapping ErrUnknownResource.
func (f *Factory) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	r, ok := clientsetResources().byGVR[gvr]
	if !ok {
		return nil, fmt.Errorf("%w for %v", ErrUnknownResource, gvr)
	}
	return genericInformer{
		informer: f.InformerFor(newObject(r.object), nil),
		resource: gvr.GroupResource(),
	}, nil
}

// genericInformer implements informers.GenericInformer.
type genericInformer struct {
	informer cache.SharedIndexInformer
	resource schema.GroupResource
}

// Informer returns the informer itself.
func (g genericInformer) Informer() cache.SharedIndexInformer { return g.informer }

// Lister returns a lister over the informer's indexer.
func (g genericInformer) Lister() cache.GenericLister {
	return cache.NewGenericLister(g.informer.GetIndexer(), g.resource)
}
