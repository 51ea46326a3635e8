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

	// objects holds the decoded objects and answers every read.
	objects cache.ThreadSafeStoreWithTransaction
	// count is the number of objects.
	count atomic.Int64
	// version is the resourceVersion of the newest write, persisted or not.
	version atomic.Pointer[string]
	// indexErrors counts failed calls of index functions.
	indexErrors atomic.Int64
	// indexers are what GetIndexers returns a copy of. The map is never modified,
	// only replaced.
	indexers atomic.Pointer[cache.Indexers]
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
		// unread holds what the file knows and memory does not, because it was
		// written under another fingerprint: known, but not to be served.
		unread map[string]unread
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
	x := &Indexer{}
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
	x.showIndexersLocked()
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
	item, exists = x.objects.Get(key)
	return item, exists, nil
}

// List implements cache.Store.
func (x *Indexer) List() []any { return x.objects.List() }

// ListKeys implements cache.Store.
func (x *Indexer) ListKeys() []string { return x.objects.ListKeys() }

// Len returns the number of objects.
func (x *Indexer) Len() int { return int(x.count.Load()) }

// Index implements cache.Indexer. It returns the error of the index function for
// obj, also if that is a panic.
func (x *Indexer) Index(indexName string, obj any) ([]any, error) {
	items, err := x.objects.Index(indexName, lookup{obj})
	return x.present(items), err
}

// IndexKeys implements cache.Indexer.
func (x *Indexer) IndexKeys(indexName, indexedValue string) ([]string, error) {
	keys, err := x.objects.IndexKeys(indexName, indexedValue)
	if x.indexErrors.Load() > 0 {
		keys = slices.DeleteFunc(keys, func(key string) bool {
			_, exists := x.objects.Get(key)
			return !exists
		})
	}
	return keys, err
}

// ListIndexFuncValues implements cache.Indexer.
func (x *Indexer) ListIndexFuncValues(indexName string) []string {
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
