package fifo

import "k8s.io/client-go/tools/cache"

// metrics are those that client-go's queue has (tools/cache/informer_metrics.go),
// with the same meaning: queued is the number of items that wait, of which a list
// is one, and latency the seconds that the consumer took for a batch.
type metrics struct {
	queued  cache.GaugeMetric
	latency cache.HistogramMetric
}

// newMetrics asks for metrics only if the identifier is reserved: another informer
// has those of this name and resource, or nobody wants any.
func newMetrics(id cache.InformerNameAndResource, provider cache.InformerMetricsProvider) metrics {
	if provider == nil || !id.Reserved() {
		return metrics{queued: noMetric{}, latency: noMetric{}}
	}
	return metrics{
		queued:  provider.NewQueuedItemMetric(id),
		latency: provider.NewProcessingLatencyMetric(id),
	}
}

// noMetric is a metric that nobody wants.
type noMetric struct{}

func (noMetric) Set(float64)     {}
func (noMetric) Observe(float64) {}
