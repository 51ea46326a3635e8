// Package metrics reports stores and informers to Prometheus: whether the file
// can be written, what waits for it, what was moved aside, and for each informer
// how current and how durable its state is. docs/operations.md lists the metrics
// and says what to alert on.
//
//	collector := metrics.NewCollector(db)
//	err := collector.Add("pods", factory.Core().V1().Pods().Informer())
//	err = prometheus.Register(collector)
//
// Register it where the program has its metrics: in controller-runtime that is
// metrics.Registry, with Kubernetes' component-base legacyregistry.RawRegister. A
// program with several files makes a collector for each and tells them apart:
//
//	prometheus.WrapRegistererWith(prometheus.Labels{"store": "east"}, registry)
//
// # Promises
//
//   - Nothing is counted here: a scrape reads the status of the store and then of
//     each informer. The metrics of the store, and those of one informer, are as
//     consistent as its status; different ones are read at different moments.
//   - There are 14 time series of the store and 16 of each informer, whatever the
//     cluster holds.
//   - No metric has a value from an object, a key, a selector, a path or an error.
//   - A time that has never come is 0, so that an age computed from it is large:
//     what was never confirmed is as stale as can be.
//   - Counters start at zero with the store or informer. rate and increase deal
//     with that.
//
// There is no metric of resourceVersions. How far two of them are apart says how
// much was written to the whole cluster, not how much is missing here; the time
// of the last contact and the pending bytes say that.
package metrics
