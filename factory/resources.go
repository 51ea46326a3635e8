package factory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/store"
)

// resources is a factory whose informers are told apart by resource instead of Go
// type: what DynamicFactory and MetadataFactory have in common.
type resources struct {
	*builder
	pool pool[schema.GroupVersionResource]
	form form
}

// form is how the objects of a factory are held, and what goes with it.
type form struct {
	name store.Form
	// example returns an empty object. It has no kind: the resource does not
	// tell which it is.
	example func() runtime.Object
	// listerWatcher returns what lists a resource.
	listerWatcher func(schema.GroupVersionResource) cache.ListerWatcher
	// get reads an object of a resource; nil if it is as small as what is listed.
	get    func(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (runtime.Object, error)
	lister func(cache.Indexer, schema.GroupVersionResource) cache.GenericLister
}

// newResourceBuilder is newBuilder for such a factory: what an option says by Go
// type means nothing to it.
func newResourceBuilder(constructor string, db store.Store, s *server, opts []Option) (*builder, error) {
	b, err := newBuilder(db, s, opts)
	if err != nil {
		return nil, err
	}
	return b, errors.Join(b.config.metricsNeedName(), b.config.refuse(constructor, map[string]string{
		"WithScheme":             "its objects have no types of their own",
		"WithCustomResyncConfig": "its informers have one Go type; use AddEventHandlerWithResyncPeriod",
		"WithoutPersistence":     "its informers have one Go type; use WithoutPersistenceOf",
		"WithResidencyFor":       "its informers have one Go type; use WithResidencyForResource",
	}))
}

// ForResource returns the informer of a resource and a lister, making the informer
// if it is the first to ask. Nothing is asked of the server before the informer
// runs. Whether the server has such a resource shows in the errors of the list,
// which the watch error handler and the log get.
func (r *resources) ForResource(gvr schema.GroupVersionResource) informers.GenericInformer {
	inf := r.pool.get(gvr, func() cache.SharedIndexInformer {
		return r.build(r.target(gvr), r.form.listerWatcher(gvr))
	})
	return resourceInformer{informer: inf, lister: r.form.lister(inf.GetIndexer(), gvr)}
}

// target puts the factory's namespace into the identity although the resource may
// have none: only the server knows, and it is what the request asks for.
func (r *resources) target(gvr schema.GroupVersionResource) target {
	t := target{gvr: gvr, namespace: r.config.namespace, example: r.form.example(), form: r.form.name}
	if r.form.get != nil {
		t.get = func(ctx context.Context, namespace, name string) (runtime.Object, error) {
			return r.form.get(ctx, gvr, namespace, name)
		}
	}
	return t
}

// Start is StartWithContext for code that stops informers with a channel.
func (r *resources) Start(stopCh <-chan struct{}) {
	r.StartWithContext(wait.ContextForChannel(stopCh))
}

// StartWithContext runs, in goroutines, all informers that were requested and
// are not running yet. They run until ctx ends. It does not block, and does
// nothing after Shutdown was called.
func (r *resources) StartWithContext(ctx context.Context) {
	r.pool.start(ctx, r.server.forget)
}

// Shutdown keeps the factory from starting anything more and waits until all
// started informers have ended, which they do when the context or channel of
// their start does. It may be called more than once and concurrently; every call
// waits. The informer name, if there is one, is free again afterwards.
func (r *resources) Shutdown() {
	r.pool.shutdown()
	r.config.informerName.Release()
}

// WaitForCacheSync is WaitForCacheSyncWithContext for code that stops with a
// channel.
func (r *resources) WaitForCacheSync(stopCh <-chan struct{}) map[schema.GroupVersionResource]bool {
	return r.WaitForCacheSyncWithContext(wait.ContextForChannel(stopCh)).Synced
}

// WaitForCacheSyncWithContext waits until all informers that have been started
// by now are synced, or ctx ends. What synced means after a warm restart is for
// the start policy to say.
func (r *resources) WaitForCacheSyncWithContext(ctx context.Context) ResourceSyncResult {
	synced, err := r.pool.waitForCacheSync(ctx)
	return ResourceSyncResult{Synced: synced, Err: err}
}

// ResourceSyncResult is cache.SyncResult for factories that know their informers
// by resource.
type ResourceSyncResult struct {
	// Err is the cause of the end of the context if an informer has not synced,
	// and nil if all have.
	Err error
	// Synced says of each informer that was started whether it has synced.
	Synced map[schema.GroupVersionResource]bool
}

// AsError returns nil if all informers have synced, and otherwise an error that
// wraps Err and names those that have not.
func (r ResourceSyncResult) AsError() error {
	if r.Err == nil {
		return nil
	}
	var missing []string
	for gvr, synced := range r.Synced {
		if !synced {
			missing = append(missing, gvr.String())
		}
	}
	slices.Sort(missing)
	return fmt.Errorf("caches did not sync: %s: %w", strings.Join(missing, ", "), r.Err)
}

// resourceInformer implements informers.GenericInformer.
type resourceInformer struct {
	informer cache.SharedIndexInformer
	lister   cache.GenericLister
}

// Informer returns the informer itself.
func (r resourceInformer) Informer() cache.SharedIndexInformer { return r.informer }

// Lister returns a lister over the informer's indexer.
func (r resourceInformer) Lister() cache.GenericLister { return r.lister }

// resourceClient lists objects of one resource; L is the client's type of list.
type resourceClient[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	watcher
}

// listerWatcherOf lists and watches with what resource returns for each request,
// like caller.listerWatcher. Whether client knows WatchList stays visible.
func listerWatcherOf[L runtime.Object](
	client any, resource func() resourceClient[L], tweak internalinterfaces.TweakListOptionsFunc,
) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			applyTweak(tweak, &opts)
			list, err := resource().List(ctx, opts)
			if err != nil {
				return nil, err // never along with a list, which might be believed
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			applyTweak(tweak, &opts)
			return resource().Watch(ctx, opts)
		},
	}, client)
}
