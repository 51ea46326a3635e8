package indexer

import (
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/warmcache/warmcache/store"
)

// Codec turns objects into sealed records and back. Encode is deterministic:
// equal records mean equal objects. *codec.Codec is one.
type Codec interface {
	Encode(obj runtime.Object) ([]byte, error)
	Decode(record []byte) (runtime.Object, error)
}

// Options configure an Indexer.
type Options struct {
	// Indexers are the indices to begin with.
	Indexers cache.Indexers
	// IndexVersions names the version of index functions whose own identity
	// says too little; see internal/funcid. A changed version rebuilds the
	// stored index.
	IndexVersions map[string]string
	// Clock defaults to the real one.
	Clock clock.PassiveClock
	// Logger defaults to klog.Background().
	Logger *klog.Logger
}

// Indexer implements cache.Indexer and cache.TransactionStore. Reads are safe
// for concurrent use with everything; writes are serialised.
type Indexer struct {
	clock  clock.PassiveClock
	logger klog.Logger

	// objects holds the decoded objects and answers every read.
	objects cache.ThreadSafeStore
	// count is the number of objects.
	count atomic.Int64
	// indexErrors counts failed calls of index functions.
	indexErrors atomic.Int64

	// write serialises everything that changes objects or the collection. It is
	// held while the collection is written but never while its disk is: Apply of
	// a collection only waits for memory.
	write struct {
		sync.Mutex
		indices map[string]*index
		// versions is Options.IndexVersions.
		versions map[string]string
		// rv is the version of the newest write, persisted or not.
		rv string
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
	x := &Indexer{clock: o.Clock, logger: klog.Background()}
	if x.clock == nil {
		x.clock = clock.RealClock{}
	}
	if o.Logger != nil {
		x.logger = *o.Logger
	}
	x.objects = cache.NewThreadSafeStore(cache.Indexers{}, cache.Indices{})
	x.write.indices = map[string]*index{}
	x.write.versions = o.IndexVersions
	x.addIndexersLocked(o.Indexers) // cannot conflict: there are none yet
	return x
}

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

// Index implements cache.Indexer.
func (x *Indexer) Index(indexName string, obj any) ([]any, error) {
	return x.objects.Index(indexName, obj)
}

// IndexKeys implements cache.Indexer.
func (x *Indexer) IndexKeys(indexName, indexedValue string) ([]string, error) {
	return x.objects.IndexKeys(indexName, indexedValue)
}

// ListIndexFuncValues implements cache.Indexer.
func (x *Indexer) ListIndexFuncValues(indexName string) []string {
	return x.objects.ListIndexFuncValues(indexName)
}

// ByIndex implements cache.Indexer.
func (x *Indexer) ByIndex(indexName, indexedValue string) ([]any, error) {
	return x.objects.ByIndex(indexName, indexedValue)
}

// LastStoreSyncResourceVersion implements cache.Store.
func (x *Indexer) LastStoreSyncResourceVersion() string {
	x.write.Lock()
	defer x.write.Unlock()
	return x.write.rv
}

// Resync implements cache.Store; it does nothing, as in client-go.
func (x *Indexer) Resync() error { return nil }

// IndexErrors returns how often an index function has failed.
func (x *Indexer) IndexErrors() int64 { return x.indexErrors.Load() }

// Durability says what has reached the disk, and whether there is a collection
// at all that is being written.
func (x *Indexer) Durability() (d store.Durability, persistent bool) {
	x.write.Lock()
	collection, suspended := x.write.collection, x.write.suspended
	x.write.Unlock()
	if collection == nil {
		return store.Durability{}, false
	}
	d = collection.Durability()
	if d.Err == nil {
		d.Err = suspended
	}
	return d, suspended == nil
}
