package factory

import (
	"context"
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
	f.pool.start(ctx, f.server.forget)
}

// Shutdown keeps the factory from starting anything more and waits until all
// started informers have ended, which they do when the context or channel of
// their start does. It may be called more than once and concurrently; every call
// waits. The informer name, if there is one, is free again afterwards.
func (f *Factory) Shutdown() {
	f.pool.shutdown()
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
	synced, err := f.pool.waitForCacheSync(ctx)
	return cache.SyncResult{Synced: synced, Err: err}
}
