package factory

import (
	"context"
	"errors"
	"maps"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store"
)

// builder makes the informers of a factory of any kind: it turns the factory's
// settings into those of one informer, and decides whether it is persisted.
type builder struct {
	db     store.Store
	config config
	server *server

	// selection is part of the identity of every collection. If unpersistable is
	// not nil there is no identity, hence no persistence.
	selection     selection
	unpersistable error

	// owner is who the informers belong to; empty for where they are made.
	owner string

	// newInformer is informer.New, except where a test looks at the options.
	newInformer func(cache.ListerWatcher, runtime.Object, informer.Options) (cache.SharedIndexInformer, error)
}

// newBuilder validates the options, or returns an error that wraps
// ErrInvalidOptions. If the server is not known yet, ask must be called before
// build.
func newBuilder(db store.Store, s *server, opts []Option) (*builder, error) {
	c := newConfig(opts)
	if err := c.validate(db); err != nil {
		return nil, err
	}
	b := &builder{db: db, config: c, newInformer: informer.New}
	if s != nil {
		b.ask(s)
	}
	var err error
	b.selection, err = selectionOf(c.tweak)
	if errors.Is(err, ErrInvalidOptions) {
		return nil, err
	}
	b.unpersistable = err
	return b, nil
}

// ask makes s the server of all informers that are built from now on.
func (b *builder) ask(s *server) {
	if b.config.discovery != nil {
		s = s.withDiscovery(b.config.discovery)
	}
	b.server = s
}

// target is what an informer holds.
type target struct {
	gvr schema.GroupVersionResource
	// namespace that is listed; empty for all, and for what has none.
	namespace string
	// example is an empty object as the informer holds them.
	example runtime.Object
	form    store.Form
	// get reads one object; nil if nothing is gained by that.
	get func(ctx context.Context, namespace, name string) (runtime.Object, error)
}

// build makes the informer of a resource that is listed with lw.
func (b *builder) build(t target, lw cache.ListerWatcher) cache.SharedIndexInformer {
	o := informer.Options{
		Identity: b.identity(t),
		// What generated code indexes by, for every type.
		Indexers:          cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		IndexVersions:     maps.Clone(b.config.indexVersions),
		ResyncPeriod:      b.config.resyncOf(reflect.TypeOf(t.example)),
		TransformVersion:  b.config.transformVersion,
		Owner:             b.owner,
		Identifier:        b.config.informerName.WithResource(t.gvr),
		Get:               t.get,
		Start:             b.config.start,
		ListBelow:         b.config.listBelow,
		DepartedRetention: b.config.departedRetention,
		Clock:             b.config.clock,
		Logger:            b.config.logger,
	}
	o.InformerMetricsProvider = b.config.metricsProvider
	if t.form != store.FormTyped {
		o.ObjectDescription = t.gvr.String() // The type says nothing.
	}
	b.persist(t, &o)
	b.config.reside(t, &o)
	b.auditing(t, &o)
	inf, err := b.newInformer(lw, t.example, o)
	if err != nil {
		return b.failing(t.example, err)
	}
	b.transform(inf)
	b.config.observe(inf)
	return inf
}

// persist gives the informer the store, unless that is not wanted. One that must
// not be persisted is given it, too, and refused: that is how its status and the
// log come to say why. It has no use for what the server says about itself.
func (b *builder) persist(t target, o *informer.Options) {
	switch {
	case b.db == nil || b.config.inMemory(t):
	case b.unpersistable != nil:
		o.Store = b.db
		o.Identify = func(context.Context) (store.Identity, error) { return store.Identity{}, b.unpersistable }
	case len(o.Identity.String()) > store.MaxIdentityLength: // by its selectors
		err := o.Identity.Validate()
		o.Store, o.Identity = b.db, store.Identity{}
		o.Identify = func(context.Context) (store.Identity, error) { return store.Identity{}, err }
	case isSecrets(t) && !b.config.plaintextSecrets:
		o.Store = b.db // refused by the informer
	default:
		o.Store = b.db
		o.PlaintextSecrets = b.config.plaintextSecrets
		o.Cluster = b.server.clusterFor()
		o.Schema = b.server.schemaOf(t.gvr.GroupVersion())
	}
}

// isSecrets says whether t holds Secrets, or their metadata.
func isSecrets(t target) bool { return t.gvr.Group == "" && t.gvr.Resource == "secrets" }

// identity returns the zero Identity if the selection is not known: an identity
// with some of the selectors would be another collection's.
func (b *builder) identity(t target) store.Identity {
	if b.unpersistable != nil {
		return store.Identity{}
	}
	return store.Identity{
		Group:         t.gvr.Group,
		Version:       t.gvr.Version,
		Resource:      t.gvr.Resource,
		Namespace:     t.namespace,
		LabelSelector: b.selection.labels,
		FieldSelector: b.selection.fields,
		Form:          t.form,
	}
}

// transform gives an informer the factory's transform.
func (b *builder) transform(inf cache.SharedIndexInformer) {
	if b.config.transform == nil {
		return
	}
	if err := inf.SetTransform(b.config.transform); err != nil {
		// Only a user's function can cause this, by returning a running informer.
		b.config.log().Error(err, "Informer keeps its own transform")
	}
}

// failing returns an informer that never syncs: each attempt to list fails with
// err, which reaches the watch error handler and the log like a server's error.
func (b *builder) failing(example runtime.Object, err error) cache.SharedIndexInformer {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return nil, err
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return nil, err
		},
	}
	// These options cannot be invalid.
	inf, _ := b.newInformer(lw, example, informer.Options{Clock: b.config.clock, Logger: b.config.logger})
	b.config.observe(inf)
	return inf
}
