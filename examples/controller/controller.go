package main

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// controller reconciles files with ConfigMaps.
//
//   - Handlers only name what may have changed. What to do about it is decided
//     when a worker gets to it, by what the lister says then. Several events of an
//     object, in whatever order, therefore lead to one result.
//   - Reconciling is idempotent. An event that comes again, as every object does at
//     each start and a delete may after a restart, finds its work done.
//   - Nobody reconciles before the initial events have arrived: until then "not
//     found" says nothing about the cluster.
type controller struct {
	lister corelisters.ConfigMapLister
	synced cache.DoneChecker
	queue  workqueue.TypedRateLimitingInterface[cache.ObjectName]
	files  directory
}

// newController registers its handlers; the caller starts the informer.
func newController(informer coreinformers.ConfigMapInformer, files directory) (*controller, error) {
	c := &controller{
		lister: informer.Lister(),
		queue:  workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
		files:  files,
	}
	registration, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, obj any) { c.enqueue(obj) },
		DeleteFunc: c.enqueue,
	})
	if err != nil {
		return nil, err
	}
	c.synced = registration.HasSyncedChecker()
	return c, nil
}

// enqueue takes objects and, for deletes that no watch has seen, tombstones
// (cache.DeletedFinalStateUnknown).
func (c *controller) enqueue(obj any) {
	key, err := cache.DeletionHandlingObjectToName(obj)
	if err != nil {
		utilruntime.HandleError(err)
		return
	}
	c.queue.Add(key)
}

// run reconciles until ctx ends, and returns when the last worker has.
func (c *controller) run(ctx context.Context, workers int) {
	defer utilruntime.HandleCrashWithContext(ctx)
	logger, start := klog.FromContext(ctx), time.Now()
	var running sync.WaitGroup
	defer running.Wait()
	defer c.queue.ShutDown()
	if !cache.WaitFor(ctx, "", c.synced) {
		return
	}
	logger.Info("Synced", "after", time.Since(start).Round(time.Millisecond), "toReconcile", c.queue.Len())
	for range workers {
		running.Go(func() {
			for c.processNext(ctx) {
			}
		})
	}
	<-ctx.Done()
}

// processNext waits for a key and reconciles it. It returns false once the queue
// has been shut down and is empty.
func (c *controller) processNext(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	result, err := c.reconcile(key)
	if err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Reconciling failed; trying again", "configMap", key)
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	klog.FromContext(ctx).Info("Reconciled", "configMap", key, "file", result)
	return true
}

// reconcile makes the file of a ConfigMap what it has to be.
func (c *controller) reconcile(key cache.ObjectName) (outcome, error) {
	configMap, err := c.lister.ConfigMaps(key.Namespace).Get(key.Name)
	switch {
	case apierrors.IsNotFound(err):
		return c.files.remove(key)
	case err != nil:
		return "", err
	}
	return c.files.write(key, configMap.Data)
}
