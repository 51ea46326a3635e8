package factory

import (
	"fmt"
	"maps"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store"
)

// Factory is an informers.SharedInformerFactory whose informers keep their
// objects in a store. The package comment says what callers may rely on.
type Factory struct {
	client kubernetes.Interface
	db     store.Store
	config config
	server *server

	// selection is part of the identity of every collection. If selectionErr
	// is not nil there is no identity, hence no persistence.
	selection    selection
	selectionErr error

	// newInformer is informer.New, except where a test looks at the options.
	newInformer func(cache.ListerWatcher, runtime.Object, informer.Options) cache.SharedIndexInformer

	// running counts the goroutines of started informers.
	running sync.WaitGroup

	// mu is not held while waiting for anything. It is held while the function
	// passed to InformerFor builds an informer: nothing else makes sure that a
	// type is built once.
	mu struct {
		sync.Mutex
		informers map[reflect.Type]cache.SharedIndexInformer
		// started is the part of informers that has been started.
		started map[reflect.Type]cache.SharedIndexInformer
		// shuttingDown is set before Shutdown waits for running, which must
		// not grow from then on.
		shuttingDown bool
	}
}

var (
	_ informers.SharedInformerFactory          = (*Factory)(nil)
	_ internalinterfaces.SharedInformerFactory = generated{}
)

// New returns a factory for the informers of all built-in types.
//
// With a nil db everything is kept in memory, as in client-go. The factory uses
// db but does not own it: close it after Shutdown. New makes no request and opens
// nothing; what is wrong with an informer shows in its watch error handler, its
// status and the log.
func New(client kubernetes.Interface, db store.Store, opts ...Option) *Factory {
	f := &Factory{
		client:      client,
		db:          db,
		config:      newConfig(opts),
		server:      newServer(client),
		newInformer: informer.New,
	}
	f.selection, f.selectionErr = selectionOf(f.config.tweak)
	f.mu.informers = map[reflect.Type]cache.SharedIndexInformer{}
	f.mu.started = map[reflect.Type]cache.SharedIndexInformer{}
	return f
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
	f.mu.Lock()
	defer f.mu.Unlock()
	t := reflect.TypeOf(obj)
	if inf, ok := f.mu.informers[t]; ok {
		return inf
	}
	inf := f.build(t, obj, newFunc)
	if f.config.transform != nil {
		if err := inf.SetTransform(f.config.transform); err != nil {
			// Only newFunc can cause this, by returning a running informer.
			f.config.log().Error(err, "Informer keeps its own transform", "type", t)
		}
	}
	f.mu.informers[t] = inf
	return inf
}

// build makes the informer for type t, of which obj is an example.
func (f *Factory) build(t reflect.Type, obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	if newFunc != nil {
		if f.db != nil && !f.config.memoryOnly[t] {
			f.config.log().Info("Informer is not persisted: the caller's function builds it", "type", t)
		}
		return newFunc(f.client, f.config.resyncOf(t))
	}
	r, err := clientsetResources().resourceFor(t)
	if err != nil {
		return f.newInformer(failingListerWatcher(err), obj, informer.Options{
			ResyncPeriod: f.config.resyncOf(t),
			Clock:        f.config.clock,
			Logger:       f.config.logger,
		})
	}
	lw := caller{clientset: f.client, resource: r, namespace: f.config.namespace, tweak: f.config.tweak}.listerWatcher()
	return f.newInformer(lw, newObject(t), f.informerOptions(r))
}

// informerOptions turns the factory's settings into those of one informer.
func (f *Factory) informerOptions(r apiResource) informer.Options {
	o := informer.Options{
		Identity: f.identity(r),
		// What generated code indexes by, for every type.
		Indexers:         cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		IndexVersions:    maps.Clone(f.config.indexVersions),
		ResyncPeriod:     f.config.resyncOf(r.object),
		TransformVersion: f.config.transformVersion,
		Identifier:       f.config.informerName.WithResource(r.gvr),
		Start:            f.config.start,
		ListBelow:        f.config.listBelow,
		Clock:            f.config.clock,
		Logger:           f.config.logger,
	}
	f.persist(r, &o)
	return o
}

// persist gives the informer the store, unless that is not wanted. One that must not
// be persisted is given a store, too, which refuses it: that is how its status and
// the log come to say why. It has no use for what the server says about itself.
func (f *Factory) persist(r apiResource, o *informer.Options) {
	switch {
	case f.db == nil || f.config.memoryOnly[r.object]:
	case f.selectionErr != nil:
		o.Store = refusing{f.db, f.selectionErr}
	case r.object == secretType && !f.config.plaintextSecrets:
		o.Store = f.db // refused by the informer
	default:
		o.Store = f.db
		o.PlaintextSecrets = f.config.plaintextSecrets
		o.Cluster = f.server.cluster.get
		o.Schema = f.server.schemaOf(r.gvr.GroupVersion())
	}
}

var secretType = reflect.TypeFor[*corev1.Secret]()

// refusing is a store that opens no collection.
type refusing struct {
	store.Store
	reason error
}

func (s refusing) Collection(store.Identity) (store.Collection, error) { return nil, s.reason }

// identity returns the zero Identity if the selection is not known: an identity
// with some of the selectors would be another collection's.
func (f *Factory) identity(r apiResource) store.Identity {
	if f.selectionErr != nil {
		return store.Identity{}
	}
	id := store.Identity{
		Group:         r.gvr.Group,
		Version:       r.gvr.Version,
		Resource:      r.gvr.Resource,
		LabelSelector: f.selection.labels,
		FieldSelector: f.selection.fields,
		Form:          store.FormTyped,
	}
	if r.namespaced {
		id.Namespace = f.config.namespace
	}
	return id
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
