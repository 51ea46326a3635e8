package informer

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/warmcache/warmcache/fifo"
	"github.com/warmcache/warmcache/indexer"
	"github.com/warmcache/warmcache/reflector"
	"github.com/warmcache/warmcache/store"
)

// sharedIndexInformer implements cache.SharedIndexInformer.
type sharedIndexInformer struct {
	options Options
	// owner says for whom the collection is open.
	owner     string
	lw        cache.ListerWatcher
	example   runtime.Object
	clock     clock.WithTicker
	indexer   *indexer.Indexer
	processor *processor
	mutations cache.MutationDetector
	// synced is closed when the initial state has been handed to the handlers.
	synced chan struct{}

	// lifecycle guards what may only change before the start, and the start
	// itself. It is taken before delivery, and held while a handler that joins is
	// given what has departed, which may take a disk some seconds.
	lifecycle struct {
		sync.Mutex
		started           bool
		stopped           atomic.Bool // set under the lock
		transform         cache.TransformFunc
		watchErrorHandler cache.WatchErrorHandlerWithContext
		// resyncCheckPeriod is how often handlers are asked whether they want
		// a resync.
		resyncCheckPeriod time.Duration
		queue             *fifo.Queue
	}

	// start is what RunWithContext notes of its beginning. The pump, which is its
	// goroutine, reads it without the lock, which nobody holds for long.
	start struct {
		sync.Mutex
		at        time.Time
		reflector *reflector.Reflector
		// persistenceErr says why the informer works in memory only although
		// it was given a store.
		persistenceErr error
		// storedRV is the version of the stored copy; storedContact is when the
		// server vouched for it; storedClean is its store.Header.Clean.
		storedRV      string
		storedContact time.Time
		storedClean   bool
	}

	// delivery serialises changes of the indexer with their distribution, so
	// that a handler that joins sees each change exactly once.
	delivery struct {
		sync.Mutex
		// listed is set once the state derives from a list of this process.
		listed bool
		// unversioned is set while the state derives from a list without a
		// version.
		unversioned bool
		// replayed is set once handlers have been given the initial state.
		replayed bool
		// refill is set while a list fills a collection whose objects were lost.
		refill *refilling
		// cold says why there is no stored copy to go on from; empty if there is.
		cold     string
		departed departedTracker
	}

	witness witness

	// identity is the place in the store; zero until it is known.
	identity atomic.Pointer[store.Identity]
	// throttled is Status.Throttled.
	throttled atomic.Bool
	// confirmed is closed once the state is proven to be current.
	confirmed chan struct{}
	// outcome is nil until the start has come to its end.
	outcome atomic.Pointer[startOutcome]
}

// New returns an informer that lists and watches with lw. The example, an object
// of the expected type, must not be nil if the informer is to be persistent. The
// error wraps ErrInvalidOptions and names what cannot be meant.
//
// The informer opens its collection when it is run. If that fails, because another
// informer has its identity, the store is closed, or the file is damaged, it works
// in memory, logs why, and says so in its Status.
func New(lw cache.ListerWatcher, example runtime.Object, o Options) (cache.SharedIndexInformer, error) {
	if err := validate(lw, example, o); err != nil {
		return nil, err
	}
	o.setDefaults()
	i := &sharedIndexInformer{
		options:   o,
		owner:     ownerOf(o),
		lw:        lw,
		example:   example,
		clock:     o.Clock,
		processor: newProcessor(o.Clock),
		mutations: cache.NewCacheMutationDetector(fmt.Sprintf("%T", example)),
		synced:    make(chan struct{}),
		confirmed: make(chan struct{}),
		indexer: indexer.New(indexer.Options{
			Indexers: o.Indexers, IndexVersions: o.IndexVersions, Logger: o.Logger,
			Residency: o.Residency, MemoryBudget: o.MemoryBudget,
			Metrics: o.InformerMetricsProvider, Identifier: o.Identifier,
		}),
	}
	i.lifecycle.resyncCheckPeriod = o.ResyncPeriod
	i.delivery.departed.retention = o.DepartedRetention
	i.delivery.departed.wake = make(chan struct{}, 1)
	i.identity.Store(&o.Identity)
	return i, nil
}

// GetStore implements cache.SharedInformer.
func (i *sharedIndexInformer) GetStore() cache.Store { return i.indexer }

// GetIndexer implements cache.SharedIndexInformer.
func (i *sharedIndexInformer) GetIndexer() cache.Indexer { return i.indexer }

// AddIndexers implements cache.SharedIndexInformer. Unlike client-go's it may be
// called at any time before the informer stops. An index that is added after the start is
// written to the file anew by each process.
func (i *sharedIndexInformer) AddIndexers(indexers cache.Indexers) error {
	if i.lifecycle.stopped.Load() {
		return fmt.Errorf("indexers were not added because %w", errStopped)
	}
	return i.indexer.AddIndexers(indexers)
}

// SetTransform implements cache.SharedInformer.
func (i *sharedIndexInformer) SetTransform(transform cache.TransformFunc) error {
	i.lifecycle.Lock()
	defer i.lifecycle.Unlock()
	if i.lifecycle.started {
		return errStarted
	}
	i.lifecycle.transform = transform
	return nil
}

// SetWatchErrorHandler implements cache.SharedInformer.
func (i *sharedIndexInformer) SetWatchErrorHandler(handler cache.WatchErrorHandler) error {
	return i.SetWatchErrorHandlerWithContext(withoutContext(handler))
}

// SetWatchErrorHandlerWithContext implements cache.SharedInformer. The handler is
// given a Reflector that has the informer's name and type but does not run.
func (i *sharedIndexInformer) SetWatchErrorHandlerWithContext(handler cache.WatchErrorHandlerWithContext) error {
	i.lifecycle.Lock()
	defer i.lifecycle.Unlock()
	if i.lifecycle.started {
		return errStarted
	}
	i.lifecycle.watchErrorHandler = handler
	return nil
}

// HasSynced implements cache.SharedInformer.
func (i *sharedIndexInformer) HasSynced() bool { return cache.IsDone(i.HasSyncedChecker()) }

// HasSyncedChecker implements cache.SharedInformer.
func (i *sharedIndexInformer) HasSyncedChecker() cache.DoneChecker { return syncedChecker{i} }

type syncedChecker struct{ informer *sharedIndexInformer }

func (c syncedChecker) Name() string {
	return fmt.Sprintf("SharedIndexInformer %T", c.informer.example)
}
func (c syncedChecker) Done() <-chan struct{} { return c.informer.synced }

// LastSyncResourceVersion implements cache.SharedInformer. It is the version of
// the store, what has been applied, not what has been read.
func (i *sharedIndexInformer) LastSyncResourceVersion() string {
	return i.indexer.LastStoreSyncResourceVersion()
}

// IsStopped implements cache.SharedInformer.
func (i *sharedIndexInformer) IsStopped() bool { return i.lifecycle.stopped.Load() }

// HasStarted reports whether Run was called, as client-go's informer does.
func (i *sharedIndexInformer) HasStarted() bool {
	i.lifecycle.Lock()
	defer i.lifecycle.Unlock()
	return i.lifecycle.started
}
