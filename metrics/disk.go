package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmcache/warmcache/informer"
)

// diskMetrics are the metrics of an informer whose objects stay in the file. Others
// have no cache in front of one, and no reads that can fail.
var diskMetrics = []metric[informer.Status]{
	ofInformer.counter("cache_hits_total", "Reads of one object, by its key, that the cache of decoded objects answered.",
		func(s informer.Status) float64 { return float64(s.Cache.Hits) }),
	ofInformer.counter("cache_misses_total", "Reads of one object, by its key, that had to look into the file, also for objects that do not exist.",
		func(s informer.Status) float64 { return float64(s.Cache.Misses) }),
	ofInformer.counter("cache_evictions_total", "Objects that had to leave the cache of decoded objects for others.",
		func(s informer.Status) float64 { return float64(s.Cache.Evictions) }),
	ofInformer.gauge("cache_objects", "Objects in the cache of decoded objects.",
		func(s informer.Status) float64 { return float64(s.Cache.Objects) }),
	ofInformer.gauge("cache_bytes", "Estimated size in memory of the cache of decoded objects.",
		func(s informer.Status) float64 { return float64(s.Cache.Bytes) }),
	ofInformer.gauge("cache_budget_bytes", "Size that the cache of decoded objects may have.",
		func(s informer.Status) float64 { return float64(s.Cache.Budget) }),
	ofInformer.counter("read_errors_total", "Reads that failed because objects could not be read from the file.",
		func(s informer.Status) float64 { return float64(s.ReadErrors) }),
	ofInformer.gauge("readable", "Whether objects can be read from the file (1), or reads fail or wait until they have been listed again (0).",
		func(s informer.Status) float64 { return truth(s.ReadErr == nil) }),
	ofInformer.gauge("throttled", "Whether the watch is not read, because more waits for a disk that fails than the budget allows.",
		func(s informer.Status) float64 { return truth(s.Throttled) }),
}

func collectDisk(s informer.Status, out chan<- prometheus.Metric, name string) {
	if s.Residency == informer.Disk {
		collect(diskMetrics, s, out, name)
	}
}
