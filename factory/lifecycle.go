package factory

import (
	"context"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

// Start is StartWithContext for code that stops informers with a channel.
func (f *Factory) Start(stopCh <-chan struct{}) {
	f.StartWithContext(wait.ContextForChannel(stopCh))
}

// StartWithContext runs, in goroutines, all informers that were requested and
// are not running yet. They run until ctx ends. It does not block, and does
// nothing after Shutdown was called.
func (f *Factory) StartWithContext(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.shuttingDown {
		return
	}
	fresh := f.notStartedLocked()
	if len(fresh) == 0 {
		return
	}
	// The server may have been upgraded since an earlier start.
	f.server.schemas.forget()
	for t, inf := range fresh {
		f.mu.started[t] = inf
		f.running.Go(func() { inf.RunWithContext(ctx) })
	}
}

func (f *Factory) notStartedLocked() map[reflect.Type]cache.SharedIndexInformer {
	fresh := maps.Clone(f.mu.informers)
	maps.DeleteFunc(fresh, func(t reflect.Type, _ cache.SharedIndexInformer) bool {
		_, started := f.mu.started[t]
		return started
	})
	return fresh
}

// Shutdown keeps the factory from starting anything more and waits until all
// started informers have ended, which they do when the context or channel of
// their start does. It may be called more than once and concurrently; every call
// waits. The informer name, if there is one, is free again afterwards.
func (f *Factory) Shutdown() {
	f.mu.Lock()
	f.mu.shuttingDown = true
	f.mu.Unlock()

	f.running.Wait()
	f.config.informerName.Release()
}

// WaitForCacheSync is WaitForCacheSyncWithContext for code that stops with a
// channel.
func (f *Factory) WaitForCacheSync(stopCh <-chan struct{}) map[reflect.Type]bool {
	return f.WaitForCacheSyncWithContext(wait.ContextForChannel(stopCh)).Synced
}

// WaitForCacheSyncWithContext waits until all informers that have been started
// by now are synced, or ctx ends. What synced means after a warm restart is for
// the start policy to say.
func (f *Factory) WaitForCacheSyncWithContext(ctx context.Context) cache.SyncResult {
	started := f.startedInformers()
	checkers := make([]cache.DoneChecker, 0, len(started))
	for _, inf := range started {
		checkers = append(checkers, inf.HasSyncedChecker())
	}
	cache.WaitFor(ctx, "", checkers...) // An empty name means no logging.

	result := cache.SyncResult{Synced: make(map[reflect.Type]bool, len(started))}
	for t, inf := range started {
		synced := inf.HasSynced()
		result.Synced[t] = synced
		if !synced {
			result.Err = context.Cause(ctx)
		}
	}
	return result
}

// startedInformers returns a copy, because waiting must not hold the lock.
func (f *Factory) startedInformers() map[reflect.Type]cache.SharedIndexInformer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.mu.started)
}
