package informer

import (
	"fmt"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// minimumResyncPeriod is client-go's.
const minimumResyncPeriod = time.Second

// AddEventHandler implements cache.SharedInformer.
func (i *sharedIndexInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, cache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (i *sharedIndexInformer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, resyncPeriod time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, cache.HandlerOptions{ResyncPeriod: &resyncPeriod})
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (i *sharedIndexInformer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	i.lifecycle.Lock()
	defer i.lifecycle.Unlock()
	if i.lifecycle.stopped.Load() {
		return nil, fmt.Errorf("handler %s was not added to shared informer because %w", handlerName(handler), errStopped)
	}
	logger := ptr.Deref(options.Logger, klog.Background())
	resync := i.grantedResyncLocked(logger, ptr.Deref(options.ResyncPeriod, i.options.ResyncPeriod))
	l := newListener(logger, handler, i.clock, i.HasSyncedChecker().Name(), resync)
	i.join(l)
	return l, nil
}

// join gives a handler the state as it is and all that follows. Before the
// replay the state is not shown yet, and the replay will reach the handler. Only
// when all of the state is queued, or its replay has begun, may its tracker learn that
// upstream has synced: it would count nothing as everything.
func (i *sharedIndexInformer) join(l *listener) {
	i.delivery.Lock()
	defer i.delivery.Unlock()
	if !i.delivery.replayed {
		i.processor.add(l, nil)
		return
	}
	initial := i.departedForLateHandler()
	if s := i.stored(); s != nil {
		l.startReplay(s) // comes after what has departed
	} else {
		initial = append(initial, initialAdds(i.indexer.List())...)
	}
	i.processor.add(l, initial)
	i.trackLate(initial)
	l.tracker.UpstreamHasSynced()
}

// grantedResyncLocked applies client-go's rules to the resync period that a handler
// asks for: there is a minimum; a period shorter than the check period shortens that
// before the start, which leaves other handlers their longer ones, and is
// lengthened to it afterwards; an informer without a check period does not resync.
func (i *sharedIndexInformer) grantedResyncLocked(logger klog.Logger, period time.Duration) time.Duration {
	if period <= 0 {
		return 0
	}
	if period < minimumResyncPeriod {
		logger.Info("Warning: resync period is too short and is lengthened", "period", period, "minimum", minimumResyncPeriod)
		period = minimumResyncPeriod
	}
	check := i.lifecycle.resyncCheckPeriod
	switch {
	case check <= 0:
		logger.Info("Warning: the handler asks for resyncs, which this informer does not do; give it a resync period", "informer", i.name(), "period", period)
		return 0
	case period < check && i.lifecycle.started:
		logger.Info("Warning: resync period is shorter than the check period of the running informer and is lengthened", "period", period, "checkPeriod", check)
		return check
	case period < check:
		i.lifecycle.resyncCheckPeriod = period
	}
	return period
}

// RemoveEventHandler implements cache.SharedInformer.
func (i *sharedIndexInformer) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	i.delivery.Lock()
	defer i.delivery.Unlock()
	return i.processor.remove(handle)
}
