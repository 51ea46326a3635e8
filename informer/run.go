package informer

import (
	"context"
	"errors"
	"fmt"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"

	"github.com/warmcache/warmcache/codec"
	"github.com/warmcache/warmcache/fifo"
	"github.com/warmcache/warmcache/indexer"
	"github.com/warmcache/warmcache/internal/funcid"
	"github.com/warmcache/warmcache/reflector"
	"github.com/warmcache/warmcache/store"
)

// Run implements cache.SharedInformer.
func (i *sharedIndexInformer) Run(stopCh <-chan struct{}) {
	i.RunWithContext(wait.ContextForChannel(stopCh))
}

// RunWithContext implements cache.SharedInformer. When ctx ends it stops the
// reflector, then the handlers, and returns once everything applied has been
// flushed and the identity is free again.
func (i *sharedIndexInformer) RunWithContext(ctx context.Context) {
	defer utilruntime.HandleCrashWithContext(ctx)
	if i.options.Logger != nil {
		ctx = klog.NewContext(ctx, *i.options.Logger)
	}
	i.indexer.SetLogger(klog.FromContext(ctx))
	if !i.begin() {
		klog.FromContext(ctx).Info("Warning: the informer has started already; it cannot run twice", "informer", i.name())
		return
	}
	defer i.detach(ctx)

	// Handlers stop strictly after what feeds them, and none is added any more
	// when they do.
	handlersCtx, stopHandlers := context.WithCancel(context.WithoutCancel(ctx))
	var handlers wait.Group
	defer handlers.Wait()
	defer stopHandlers()
	defer i.markStopped()
	handlers.StartWithChannel(handlersCtx.Done(), i.mutations.Run)
	handlers.StartWithContext(handlersCtx, i.processor.run)

	i.prepare(ctx, i.open(ctx))
	defer i.indexer.EndWaits() // a handler may be in one
	var feeders wait.Group
	defer feeders.Wait()
	// The reflector's lines, and those of the watch error handler, say the type only.
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "informer", i.name())
	reading, stopReading := context.WithCancel(klog.NewContext(ctx, logger))
	defer stopReading()
	feeders.StartWithContext(reading, i.start.reflector.Run)
	feeders.StartWithContext(ctx, i.resync)
	feeders.StartWithContext(ctx, i.expireDeparted)
	if i.options.Audit.Period > 0 {
		feeders.StartWithContext(ctx, i.auditPeriodically)
	}
	feeders.StartWithContext(ctx, func(ctx context.Context) {
		<-ctx.Done()
		i.lifecycle.queue.Close()
	})
	if i.load(ctx) {
		feeders.StartWithContext(ctx, i.restore)
		i.pump(ctx, func() {
			stopReading()
			i.lifecycle.queue.Close()
		})
	}
}

func (i *sharedIndexInformer) begin() bool {
	i.lifecycle.Lock()
	defer i.lifecycle.Unlock()
	if i.lifecycle.started {
		return false
	}
	i.lifecycle.started = true
	i.start.Lock()
	defer i.start.Unlock()
	i.start.at = i.clock.Now()
	return true
}

func (i *sharedIndexInformer) markStopped() {
	i.lifecycle.Lock()
	defer i.lifecycle.Unlock()
	i.lifecycle.stopped.Store(true)
}

// detach flushes and gives the identity back, after the last handler has
// returned.
func (i *sharedIndexInformer) detach(ctx context.Context) {
	i.keepDeparted()
	if err := i.indexer.Detach(); err != nil {
		klog.FromContext(ctx).Error(err, "The last changes did not reach the disk; the next start resumes from before them", "informer", i.name())
	}
}

// open opens and attaches the collection. A failure leaves the informer in
// memory.
func (i *sharedIndexInformer) open(ctx context.Context) indexer.Origin {
	if i.options.Store == nil {
		i.noteCold("it is kept in memory only, or has no store")
		return indexer.Origin{}
	}
	origin, err := i.attach(ctx)
	switch status := i.options.Store.Status(); {
	case errors.Is(err, ErrMemoryOnly):
		i.noteCold(err.Error())
	case err != nil:
		i.start.Lock()
		i.start.persistenceErr = err
		i.start.Unlock()
		i.noteCold(err.Error())
		if !errors.Is(err, ErrPlaintextSecrets) { // which is as it should be; the line of the start says so
			klog.FromContext(ctx).Error(err, "Objects are not persisted; going on from memory", "informer", i.name())
		}
	case !status.Persistent && status.Err != nil:
		i.noteCold("the store has no file: " + status.Err.Error())
	case !origin.Readable:
		i.noteCold(origin.Reason)
	}
	return origin
}

func (i *sharedIndexInformer) attach(ctx context.Context) (indexer.Origin, error) {
	c, err := codec.New(i.example)
	if err != nil {
		return indexer.Origin{}, err
	}
	identity, err := i.identify(ctx)
	if err != nil {
		return indexer.Origin{}, err
	}
	if holdsSecrets(identity, i.example) && !i.options.PlaintextSecrets {
		if isOfSecrets(identity) { // else it is a mistake, and somebody else's data
			i.forget(ctx, identity)
		}
		return indexer.Origin{}, ErrPlaintextSecrets
	}
	collection, err := i.collection(ctx, identity)
	if err != nil {
		return indexer.Origin{}, fmt.Errorf("opening its collection: %w", err)
	}
	i.delivery.departed.enabled = true
	origin, err := i.indexer.Attach(collection, c, i.fingerprint(ctx, c.Fingerprint()))
	i.start.Lock()
	i.start.storedRV, i.start.storedContact, i.start.storedClean = origin.RV, origin.Contact, origin.Clean
	i.start.Unlock()
	i.witness.loaded(origin.RV)
	if err != nil {
		// The indexer has emptied the collection and goes on writing it.
		klog.FromContext(ctx).Error(err, "Stored objects cannot be read; listing", "informer", i.name())
	}
	return origin, nil
}

// forget removes what an earlier run was allowed to write.
func (i *sharedIndexInformer) forget(ctx context.Context, id store.Identity) {
	if err := i.options.Store.Forget(id); err != nil && !errors.Is(err, store.ErrNotFound) {
		klog.FromContext(ctx).Error(err, "What an earlier run has stored is not removed", "informer", i.name())
	}
}

const (
	// takeover is how long a start waits for an informer of the same identity to
	// stop. controller-runtime's cache, for one, makes another informer of a kind
	// without waiting for the one that it has told to stop.
	takeover      = 3 * time.Second
	takeoverCheck = 50 * time.Millisecond
)

// collection opens the collection.
func (i *sharedIndexInformer) collection(ctx context.Context, id store.Identity) (store.Collection, error) {
	for deadline := i.clock.Now().Add(takeover); ; {
		c, err := i.options.Store.Collection(id, i.owner)
		if !errors.Is(err, store.ErrInUse) || !i.clock.Now().Before(deadline) {
			return c, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-i.clock.After(takeoverCheck):
		}
	}
}

// identify returns the place in the store, and finds it out first if need be.
func (i *sharedIndexInformer) identify(ctx context.Context) (store.Identity, error) {
	id := i.options.Identity
	if i.options.Identify != nil {
		var err error
		if id, err = i.options.Identify(ctx); err != nil {
			return store.Identity{}, err
		}
	}
	id = identityOf(id, i.example)
	i.identity.Store(&id)
	return id, nil
}

// fingerprint identifies what made the stored records.
func (i *sharedIndexInformer) fingerprint(ctx context.Context, codecFingerprint string) string {
	transform := i.lifecycle.transform
	switch {
	case transform == nil:
		return codecFingerprint
	case i.options.TransformVersion != "":
		return codecFingerprint + " transform version " + i.options.TransformVersion
	}
	id, perBuild := funcid.Of(transform)
	if perBuild {
		klog.FromContext(ctx).V(2).Info("Each new build of this program will list once, because it may have changed the transform; set a transform version to avoid it", "informer", i.name())
	}
	return codecFingerprint + " transform " + id
}

// prepare makes the queue and the reflector.
func (i *sharedIndexInformer) prepare(ctx context.Context, origin indexer.Origin) {
	i.lifecycle.Lock()
	defer i.lifecycle.Unlock()
	if origin.RV != "" && watchlist.DoesClientNotSupportWatchListSemantics(i.lw) {
		// A fake client of client-go. Its versions begin anew with each test, and a
		// watch from one of them gets everything at once, for which its channel is
		// too small.
		origin.RV, origin.Reason = "", "a watch of a fake client cannot be resumed"
	}
	i.lifecycle.queue = fifo.New(i.queueOptionsLocked())
	i.start.Lock()
	defer i.start.Unlock()
	i.start.reflector = reflector.New(reflector.Options{
		ListerWatcher:   i.lw,
		Queue:           queue{i.lifecycle.queue},
		Expected:        i.example,
		Name:            i.name(),
		TypeDescription: i.options.ObjectDescription,
		Origin: reflector.Origin{
			RV: origin.RV, Reason: origin.Reason, Cluster: origin.Cluster, Schema: origin.Schema,
			NoBookmarks: origin.NoBookmarks, Replays: origin.Replays, Newest: reflector.ObjectRef(origin.Newest),
			Bytes: origin.Totals.Bytes, Clean: origin.Clean,
		},
		Policy:            i.options.Start,
		ListBelow:         i.options.ListBelow,
		Cluster:           i.options.Cluster,
		Schema:            i.options.Schema,
		Sparse:            i.sparse(),
		WatchErrorHandler: i.lifecycle.watchErrorHandler,
		Clock:             i.clock,
	})
	klog.FromContext(ctx).V(2).Info("Starting informer", "informer", i.name(), "storedRV", origin.RV, "storedObjects", origin.Totals.Count)
}

// sparse returns what it takes to list what differs only, or nil.
func (i *sharedIndexInformer) sparse() *reflector.Sparse {
	if i.options.Metadata == nil || i.options.Get == nil {
		return nil
	}
	return &reflector.Sparse{
		Metadata: i.options.Metadata,
		Get:      i.options.Get,
		Stored: func(keys []string) ([]reflector.ObjectRef, error) {
			stored, err := i.indexer.Refs(keys)
			refs := make([]reflector.ObjectRef, len(stored))
			for n, ref := range stored {
				refs[n] = reflector.ObjectRef(ref)
			}
			return refs, err
		},
		Size: func() (objects, bytes int64) {
			d, _ := i.indexer.Durability()
			return d.Objects.Count, d.Objects.Bytes
		},
	}
}

// Bounds of the queue in disk residency: what is read ahead of the pump, and what the
// pump applies at once, in objects; what is read ahead, in bytes, of which a quarter is
// applied at once. Both matter: most objects have some kilobytes, some a megabyte.
const (
	diskQueue      = 1000
	diskBatch      = 250
	diskQueueBytes = 16 << 20
)

func (i *sharedIndexInformer) queueOptionsLocked() fifo.Options {
	o := fifo.Options{
		Known: i.indexer.Known(), Transform: i.lifecycle.transform,
		Metrics: i.options.InformerMetricsProvider, Identifier: i.options.Identifier,
	}
	if i.indexer.Residency() == Disk {
		o.Stream, o.Limit, o.MaxBatch = true, diskQueue, diskBatch
		o.Bytes, o.Size = diskQueueBytes, indexer.SizeOf
	}
	return o
}

// queue lets a reflector use a fifo.Queue.
type queue struct{ *fifo.Queue }

func (q queue) NewReplacement() reflector.Replacement { return q.Queue.NewReplacement() }

// name is what logs call the informer.
func (i *sharedIndexInformer) name() string {
	name := i.typeName()
	if id := i.identityIfKnown(); id != (store.Identity{}) {
		name = id.String()
	}
	if owner := i.options.Identifier.Name(); owner != "" {
		name = owner + " " + name
	}
	return name
}

func withoutContext(handler cache.WatchErrorHandler) cache.WatchErrorHandlerWithContext {
	return func(_ context.Context, r *cache.Reflector, err error) { handler(r, err) }
}

// resync asks the handlers, once per check period, whether they want to see
// everything again. As in client-go it begins once the informer has synced.
func (i *sharedIndexInformer) resync(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-i.synced:
	}
	i.lifecycle.Lock()
	period := i.lifecycle.resyncCheckPeriod
	i.lifecycle.Unlock()
	if period <= 0 {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-i.clock.After(period):
		}
		i.resyncHandlers()
	}
}
