package factory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	goruntime "runtime"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/isnil"
	"github.com/warmcache/warmcache/store"
)

// NewInformerFunc returns a function that makes informers which keep their objects
// in db, for controller-runtime:
//
//	newInformer, err := factory.NewInformerFunc(db)
//	...
//	mgr, err := manager.New(factory.Identify(cfg), manager.Options{
//		Cache: cache.Options{NewInformer: newInformer},
//	})
//
// The function is not told what an informer lists. The informer finds out when it
// starts, which takes a client of a config that went through Identify. Without
// one it works in memory; the log and the status say why (ErrNotIdentified). It
// does so, too, for a list request that sets more than selectors, limit and
// timeout, and if another informer with its identity runs on db (store.ErrInUse):
// one of a second manager, say. No two informers share data.
//
// Transform, resync period, namespaces and selectors are for the caller of the
// function to say, with controller-runtime in cache.Options. An option about them
// is an error, as is anything else that cannot be meant: it wraps
// ErrInvalidOptions and names the option.
//
// WithoutPersistence and WithResidencyFor go by the Go type that an informer holds,
// so that all unstructured objects are one type, WithoutPersistenceOf by the resource.
//
// The function is safe for concurrent use. With a nil db it makes informers that
// work in memory. db is not closed: close it when all informers have stopped, which
// is after Start of the manager has returned.
func NewInformerFunc(db store.Store, opts ...Option) (func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer, error) {
	// What calls the function is often a goroutine of a library, whose name tells
	// nothing.
	f, err := newInformerFunc(db, callSite(), opts)
	if err != nil {
		return nil, err
	}
	return f.make, nil
}

// callSite says where in the program an exported function of this package was
// called by the function that calls callSite.
func callSite() string {
	pc, file, line, ok := goruntime.Caller(2)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s (%s:%d)", goruntime.FuncForPC(pc).Name(), path.Base(file), line)
}

// informerFuncRefuses are options that are for somebody else to say.
var informerFuncRefuses = map[string]string{
	"WithNamespace":          "the list requests say it; with controller-runtime, set it in cache.Options",
	"WithTweakListOptions":   "the list requests have their selectors; with controller-runtime, set them in cache.Options",
	"WithResync":             "who calls the function says it; with controller-runtime, set SyncPeriod in cache.Options",
	"WithCustomResyncConfig": "who calls the function says it; with controller-runtime, set SyncPeriod in cache.Options",
	"WithTransform":          "who calls the function sets it; use WithTransformVersion",
	"WithDiscovery":          "Identify leads to the schemas",
	"WithScheme":             "who calls the function knows the types",

	"WithResidencyForResource": "the resource is not known when an informer is made; use WithResidencyFor",

	"WithInformerName":            "it goes with a resource, which is not known when an informer is made",
	"WithInformerMetricsProvider": "it takes names, which go with a resource that is not known when an informer is made",
}

// informerFunc makes informers that are told by their list requests what they are.
type informerFunc struct {
	*builder
	// owner is who asked for the function.
	owner string
}

func newInformerFunc(db store.Store, owner string, opts []Option) (informerFunc, error) {
	c := newConfig(opts)
	if err := c.refuse("NewInformerFunc", informerFuncRefuses); err != nil {
		return informerFunc{}, err
	}
	b, err := newBuilder(db, nil, opts)
	if err != nil {
		return informerFunc{}, err
	}
	return informerFunc{builder: b, owner: owner}, nil
}

func (f informerFunc) make(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	o := informer.Options{
		Owner:             f.owner,
		ObjectDescription: kindOf(example),
		Indexers:          indexers,
		IndexVersions:     maps.Clone(f.config.indexVersions),
		ResyncPeriod:      resync,
		TransformVersion:  f.config.transformVersion,
		Start:             f.config.start,
		ListBelow:         f.config.listBelow,
		DepartedRetention: f.config.departedRetention,
		Clock:             f.config.clock,
		Logger:            f.config.logger,
	}
	if f.db != nil && !f.config.memoryOnly[reflect.TypeOf(example)] {
		d := &discovered{lw: lw, unwanted: f.config.memoryOnlyResources, clock: f.config.clockOrReal()}
		o.Store, o.PlaintextSecrets = f.db, f.config.plaintextSecrets
		o.Identify, o.Cluster, o.Schema = d.identify, d.cluster, d.schema
	}
	f.config.reside(target{example: example}, &o)
	if f.config.metadata != nil {
		o.Metadata, o.Audit = &discoveredMetadata{client: f.config.metadata, lw: lw}, f.config.audit
	}
	inf, err := f.newInformer(lw, example, o)
	if err != nil {
		return f.failing(example, err)
	}
	f.config.observe(inf)
	return inf
}

// kindOf returns the kind that an example of several possible ones has.
func kindOf(example runtime.Object) string {
	if isnil.Value(example) || example.GetObjectKind().GroupVersionKind().Empty() {
		return ""
	}
	return example.GetObjectKind().GroupVersionKind().String()
}

// discovered is what an informer finds out about itself when it starts.
type discovered struct {
	lw    cache.ListerWatcher
	clock clock.Clock
	// unwanted are resources that are not to be persisted.
	unwanted map[schema.GroupVersionResource]bool
	// place is set by identify, before anything else is asked.
	place atomic.Pointer[place]
}

// place is a collection of an API server.
type place struct {
	origin *origin
	gv     schema.GroupVersion
}

// inquire asks several times, with pauses, when it is not clear that there is no
// answer: without one the informer works in memory as long as it lives.
func (d *discovered) inquire(ctx context.Context) (id store.Identity, o *origin, err error) {
	for _, pause := range []time.Duration{time.Second, 4 * time.Second, 16 * time.Second, 0} {
		id, o, err = inquire(ctx, d.lw)
		if !errors.As(err, new(unanswered)) || pause == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return id, o, err
		case <-d.clock.After(pause):
		}
	}
	return id, o, err
}

func (d *discovered) identify(ctx context.Context) (store.Identity, error) {
	id, origin, err := d.inquire(ctx)
	if err != nil {
		return store.Identity{}, err
	}
	gvr := schema.GroupVersionResource{Group: id.Group, Version: id.Version, Resource: id.Resource}
	if d.unwanted[gvr] {
		return store.Identity{}, fmt.Errorf("%s: %w", id, informer.ErrMemoryOnly)
	}
	d.place.Store(&place{origin: origin, gv: gvr.GroupVersion()})
	return id, nil
}

// cluster is not known to an informer that works in memory, nor of use to it.
func (d *discovered) cluster(ctx context.Context) (string, error) {
	p := d.place.Load()
	if p == nil {
		return "", nil
	}
	return p.origin.cluster(ctx)
}

func (d *discovered) schema(ctx context.Context) (string, error) {
	p := d.place.Load()
	if p == nil {
		return "", nil
	}
	return p.origin.schema(ctx, p.gv)
}
