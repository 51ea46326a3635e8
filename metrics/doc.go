// Package metrics reports stores and informers to Prometheus: whether the file
// can be written, what waits for it, what was moved aside, and for each informer
// how current and how durable its state is. docs/operations.md lists the metrics
// and says what to alert on.
//
//	collector := metrics.NewCollector(db)
//	f, err := factory.New(clientset, db, factory.WithObserver(collector))
//	err = prometheus.Register(collector)
//
// Observe, which a factory calls, names an informer by what it lists; Add takes a
// name of the caller's choice.
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
//   - There are 14 metrics and one histogram of the store, and up to 23 time series
//     of each informer, 9 more if it is in disk residency and 8 more if it is audited,
//     whatever the cluster holds.
//   - No metric has a value from an object, a key, a path or an error. A selector is
//     part of an identity, and so of the names that Observe gives.
//   - What is not known is not reported, rather than as a number that means nothing.
//   - A time that has never come is 0, so that an age computed from it is large:
//     what was never confirmed is as stale as can be.
//   - Counters start at zero with the store or informer. rate and increase deal
//     with that.
//
// Of resourceVersions there is only how far reads are behind what is known of the
// server. Zero means that they are not. How large it is says how much was written to
// the whole cluster, not how much is missing here: it is an upper bound of that, and
// usually much too high. How old the state may be is what staleness says.
package metrics
