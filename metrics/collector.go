package metrics

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/isnil"
	"github.com/warmcache/warmcache/store"
)

// Store is what a collector needs of a store; *bolt.DB is one.
type Store interface {
	// Status describes the store. It must be safe for concurrent use and not
	// wait for the disk.
	Status() store.Status
}

// Collector is a prometheus.Collector of one store and any number of informers.
// All methods are safe for concurrent use, also while it is registered.
type Collector struct {
	store Store

	// mu is not held while a status is read.
	mu struct {
		sync.RWMutex
		// informers are those that were added, by name.
		informers map[string]cache.SharedInformer
		// observed are those without a name, in the order of Observe.
		observed []*observed
	}
}

var _ prometheus.Collector = (*Collector)(nil)

// NewCollector returns a collector that reports db, and the informers that Add and
// Observe give it. With a nil db it reports informers only.
func NewCollector(db Store) *Collector {
	if isnil.Value(db) {
		db = nil // a *bolt.DB that was never opened
	}
	c := &Collector{store: db}
	c.mu.informers = map[string]cache.SharedInformer{}
	return c
}

// Add reports an informer from now on, with name as its label "informer". The
// name is the caller's choice and should outlive deploys, such as "pods" or
// "pods/kube-system"; it must be unique in the collector. The informer need not
// have been started, and one that has stopped is reported until it is removed.
//
// Errors: ErrForeignInformer, ErrInvalidName, ErrNameInUse. A client-go informer
// is an error rather than ignored, because what is not reported looks healthy.
func (c *Collector) Add(name string, inf cache.SharedInformer) error {
	if name == "" || !utf8.ValidString(name) {
		return fmt.Errorf("%w: %q", ErrInvalidName, name)
	}
	if inf == nil {
		return fmt.Errorf("%w: %q is nil", ErrForeignInformer, name)
	}
	if _, ok := informer.StatusOf(inf); !ok {
		return fmt.Errorf("%w: %q is a %T", ErrForeignInformer, name, inf)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, taken := c.mu.informers[name]
	if taken || slices.ContainsFunc(c.mu.observed, func(o *observed) bool { return o.settled && o.label == name }) {
		return fmt.Errorf("%w: %q", ErrNameInUse, name)
	}
	c.mu.informers[name] = inf
	return nil
}

// Remove ends the report of the informer that was added with this name, if there is
// one. A scrape that has begun may still have it.
func (c *Collector) Remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.informers, name)
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	if c.store != nil {
		describe(storeMetrics, descs)
		descs <- commitDesc
	}
	describe(informerMetrics, descs)
	describe(diskMetrics, descs)
	describe(auditMetrics, descs)
	descs <- auditsDesc
	descs <- differencesDesc
	descs <- phaseDesc
	descs <- startsDesc
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	if c.store != nil {
		status := c.store.Status()
		collect(storeMetrics, status, out)
		out <- commitTimes(status.CommitTimes)
	}
	for name, inf := range c.informers() {
		if status, ok := informer.StatusOf(inf); ok {
			collectInformer(status, out, name)
		}
	}
	for _, o := range c.observations() {
		collectInformer(o.status, out, o.name)
	}
}

func collectInformer(status informer.Status, out chan<- prometheus.Metric, name string) {
	collect(informerMetrics, status, out, name)
	collectDisk(status, out, name)
	collectAudit(status.Audit, out, name)
	collectPhase(status.Phase, out, name)
	collectStarts(status.Outcome, out, name)
}

func (c *Collector) informers() map[string]cache.SharedInformer {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return maps.Clone(c.mu.informers)
}
