// Package informer is a stand-in with the signatures that factory uses. It keeps
// everything in memory.
package informer

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/warmcache/warmcache/store"
)

// StartPolicy says when a warm informer counts as synced.
type StartPolicy struct {
	mode  int
	after time.Duration
}

// The start policies.
var (
	Confirmed = StartPolicy{}
	Resumed   = StartPolicy{mode: 1}
)

// Stale is the policy for servers that cannot be reached.
func Stale(after time.Duration) StartPolicy { return StartPolicy{mode: 2, after: after} }

// Options of New.
type Options struct {
	Store             store.Store
	Identity          store.Identity
	Indexers          cache.Indexers
	IndexVersions     map[string]string
	ResyncPeriod      time.Duration
	TransformVersion  string
	ObjectDescription string
	Identifier        cache.InformerNameAndResource
	Start             StartPolicy
	ListBelow         int64
	Cluster           func(ctx context.Context) (string, error)
	Schema            func(ctx context.Context) (string, error)
	Clock             clock.WithTicker
	Logger            *klog.Logger
}

// New returns client-go's informer.
func New(lw cache.ListerWatcher, example runtime.Object, o Options) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformerWithOptions(lw, example, cache.SharedIndexInformerOptions{
		ResyncPeriod:      o.ResyncPeriod,
		Indexers:          o.Indexers,
		ObjectDescription: o.ObjectDescription,
		Identifier:        o.Identifier,
	})
}
