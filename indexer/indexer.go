package indexer

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/warmcache/warmcache/store"
)

// Codec turns objects into sealed records and back, for any number of goroutines
// at a time. Encode is deterministic: equal records mean equal objects. The
// errors of Decode wrap store.ErrCorrupt. *codec.Codec is one.
type Codec interface {
	// Encode returns the sealed record of obj, which it must not keep.
	Encode(obj runtime.Object) ([]byte, error)
	// Decode returns an object that shares no memory with the record.
	Decode(record []byte) (runtime.Object, error)
}

// Options configure an Indexer.
type Options struct {
	// Indexers are the indices to begin with.
	Indexers cache.Indexers
	// IndexVersions names the version of index functions whose own identity
	// says too little: those of the main module, and function literals. A changed
	// version rebuilds the stored index.
	IndexVersions map[string]string
	// Logger defaults to klog.Background().
	Logger *klog.Logger
	// Residency says where the objects are once there is a collection; without one
	// they are in memory.
	Residency Residency
	// MemoryBudget is how many bytes of decoded objects the cache of disk residency
	// may hold; 0 means DefaultMemoryBudget. What an object takes is estimated. See
	// ValidateResidency.
	MemoryBudget int64
	// Metrics makes the metric of the version, for an Identifier that is reserved;
	// nil means the provider of cache.SetInformerMetricsProvider.
	Metrics    cache.InformerMetricsProvider
	Identifier cache.InformerNameAndResource
}

// Indexer implements cache.Indexer and cache.TransactionStore. Reads are safe
// for concurrent use with everything, and wait at most for a change to be put
// into memory; writes are serialised.
type Indexer struct {
	logger atomic.Pointer[klog.Logger]

	// objects holds the decoded objects and answers every read, in memory residency.
	objects cache.ThreadSafeStoreWithTransaction
	// disk does in disk residency, once there is a collection.
	disk atomic.Pointer[disk]
	// residency and budget are those of the Options.
	residency Residency
	budget    int64
	// count is the number of objects.
	count atomic.Int64
	// version is the resourceVersion of the newest write, persisted or not.
	version atomic.Pointer[string]
	// indexErrors counts failed calls of index functions.
	indexErrors atomic.Int64
	// suspect is what Suspect was last given.
	suspect atomic.Bool
	// indices are those that may be asked. The map is never modified, only replaced.
	indices atomic.Pointer[map[string]*index]
	// writing is what Durability needs to know of what write guards: it must not
	// wait for a collection that waits for its disk. Nil without a collection.
	writing atomic.Pointer[writing]

	// write serialises everything that changes objects or the collection. It is
	// held while a batch is handed to the collection, which may wait for its disk
	// when too much waits already.
	write struct {
		sync.Mutex
		indices map[string]*index
		// versions is Options.IndexVersions.
		versions map[string]string
		// foreign is what the file knows and is not served; nil if there is nothing.
		foreign *foreign
		persistence
	}
}

var (
	_ cache.Indexer          = &Indexer{}
	_ cache.TransactionStore = &Indexer{}
)

// New returns an empty indexer that works in memory until Attach gives it a
// collection.
func New(o Options) *Indexer {
	x := &Indexer{residency: o.Residency, budget: o.MemoryBudget}
	if x.budget <= 0 {
		x.budget = DefaultMemoryBudget
	}
	x.SetLogger(klog.Background())
	if o.Logger != nil {
		x.SetLogger(*o.Logger)
	}
	x.write.indices = map[string]*index{}
	x.write.versions = maps.Clone(o.IndexVersions)
	guarded := x.registerLocked(o.Indexers)
	x.objects = cache.NewThreadSafeStore(guarded, cache.Indices{},
		cache.WithThreadSafeStoreMetrics(o.Identifier, o.Metrics)).(cache.ThreadSafeStoreWithTransaction)
	x.version.Store(new(string))
	x.showIndicesLocked()
	return x
}

// SetLogger replaces Options.Logger, by the one of a context that is known only
// when the indexer is already in use.
func (x *Indexer) SetLogger(logger klog.Logger) { x.logger.Store(&logger) }

func (x *Indexer) log() klog.Logger { return *x.logger.Load() }

// Get implements cache.Store.
func (x *Indexer) Get(obj any) (item any, exists bool, err error) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return nil, false, cache.KeyError{Obj: obj, Err: err}
	}
	return x.GetByKey(key)
}

// GetByKey implements cache.Store.
func (x *Indexer) GetByKey(key string) (item any, exists bool, err error) {
	if d := x.disk.Load(); d != nil {
		return d.get(key)
	}
	item, exists = x.objects.Get(key)
	return item, exists, nil
}

// List implements cache.Store. In disk residency it decodes all objects, in the order
// of their keys: Objects does not need memory for all of them. It waits while they
// cannot be read; see the package documentation.
func (x *Indexer) List() []any {
	if d := x.disk.Load(); d != nil {
		return d.list()
	}
	return x.objects.List()
}

// ListKeys implements cache.Store. It waits as List does.
func (x *Indexer) ListKeys() []string {
	if d := x.disk.Load(); d != nil {
		return d.listKeys()
	}
	return x.objects.ListKeys()
}

// Len returns the number of objects.
func (x *Indexer) Len() int { return int(x.count.Load()) }

// Index implements cache.Indexer. It returns the error of the index function for
// obj, also if that is a panic.
func (x *Indexer) Index(indexName string, obj any) ([]any, error) {
	if d := x.disk.Load(); d != nil {
		return d.index(indexName, obj)
	}
	items, err := x.objects.Index(indexName, lookup{obj})
	return x.present(items), err
}

// IndexKeys implements cache.Indexer.
func (x *Indexer) IndexKeys(indexName, indexedValue string) ([]string, error) {
	if d := x.disk.Load(); d != nil {
		return d.indexKeys(indexName, indexedValue)
	}
	keys, err := x.objects.IndexKeys(indexName, indexedValue)
	if x.indexErrors.Load() > 0 {
		keys = slices.DeleteFunc(keys, func(key string) bool {
			_, exists := x.objects.Get(key)
			return !exists
		})
	}
	return keys, err
}

// ListIndexFuncValues implements cache.Indexer. It waits as List does.
func (x *Indexer) ListIndexFuncValues(indexName string) []string {
	if d := x.disk.Load(); d != nil {
		return d.indexValues(indexName)
	}
	values := x.objects.ListIndexFuncValues(indexName)
	if x.indexErrors.Load() > 0 {
		values = slices.DeleteFunc(values, func(value string) bool {
			keys, _ := x.IndexKeys(indexName, value)
			return len(keys) == 0
		})
	}
	return values
}

// ByIndex implements cache.Indexer.
func (x *Indexer) ByIndex(indexName, indexedValue string) ([]any, error) {
	if d := x.disk.Load(); d != nil {
		return d.byIndex(indexName, indexedValue)
	}
	items, err := x.objects.ByIndex(indexName, indexedValue)
	return x.present(items), err
}

// present drops the nil items that client-go's store returns for keys that an
// index function has put into its index and then failed to take out. No caller
// expects nil.
func (x *Indexer) present(items []any) []any {
	if x.indexErrors.Load() == 0 {
		return items
	}
	return slices.DeleteFunc(items, func(item any) bool { return item == nil })
}

// LastStoreSyncResourceVersion implements cache.Store: the version of the newest
// write, or after Load that of the file.
func (x *Indexer) LastStoreSyncResourceVersion() string { return *x.version.Load() }

// setVersion also tells client-go's store, which keeps the metric of the version.
func (x *Indexer) setVersion(rv string) {
	x.version.Store(&rv)
	x.objects.Bookmark(rv)
}

// Resync implements cache.Store; it does nothing, as in client-go.
func (x *Indexer) Resync() error { return nil }

// IndexErrors returns how many calls of index functions have failed. One change
// of an object may call a function several times.
func (x *Indexer) IndexErrors() int64 { return x.indexErrors.Load() }

// Durability says what has reached the disk, and whether there is a collection
// at all that is being written.
//
// After Detach it is what Detach has left. It waits for no disk.
func (x *Indexer) Durability() (d store.Durability, persistent bool) {
	w := x.writing.Load()
	switch {
	case w == nil:
		return store.Durability{}, false
	case w.collection == nil:
		return w.last, false
	}
	d = w.collection.Durability()
	if d.Err == nil {
		d.Err = w.suspended
	}
	return d, w.suspended == nil
}

// writing says whether changes are written.
type writing struct {
	// collection is nil once it was released; last is its end.
	collection store.Collection
	suspended  error
	last       store.Durability
}

// publishLocked is to be called when the collection or suspended changes.
func (x *Indexer) publishLocked() {
	x.writing.Store(&writing{collection: x.write.collection, suspended: x.write.suspended})
}
