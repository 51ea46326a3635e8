package factory

import "k8s.io/client-go/tools/cache"

// Observer is told of informers. *metrics.Collector is one.
type Observer interface {
	// Observe is called once for each informer, when it has been made and before
	// anybody else has it. It must not use the factory, which is locked meanwhile.
	Observe(inf cache.SharedIndexInformer)
}

// WithObserver tells o of every informer that the factory makes, also of one that
// cannot work; not of those that a caller's function makes. It adds to what earlier
// options of this name set.
func WithObserver(o Observer) Option {
	return option("WithObserver", func(c *config) { c.observers = append(c.observers, o) })
}

// WithInformerMetricsProvider makes client-go's metrics of the informers that
// WithInformerName names. client-go's factories always use the provider of
// cache.SetInformerMetricsProvider, which client-go keeps to itself; see
// informer.Options.
func WithInformerMetricsProvider(provider cache.InformerMetricsProvider) Option {
	return option("WithInformerMetricsProvider", func(c *config) { c.metricsProvider = provider })
}

// observe tells the observers of an informer.
func (c *config) observe(inf cache.SharedIndexInformer) {
	for _, o := range c.observers {
		o.Observe(inf)
	}
}
