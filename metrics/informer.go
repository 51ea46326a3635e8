package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/reflector"
)

var ofInformer = source[informer.Status]{prefix: "warmcache_informer_", labels: []string{"informer"}}

// informerMetrics are the metrics of an informer, all but those with a label of
// their own and diskMetrics.
var informerMetrics = []metric[informer.Status]{
	ofInformer.gauge("synced", "Whether the informer has synced (HasSynced).",
		func(s informer.Status) float64 { return truth(s.Synced) }),
	ofInformer.gauge("confirmed", "Whether the state is proven to be no older than the server's was when the informer started.",
		func(s informer.Status) float64 { return truth(s.Confirmed) }),
	ofInformer.gauge("persistent", "Whether changes are being written to a file.",
		func(s informer.Status) float64 { return truth(s.Persistent) }),
	ofInformer.gauge("objects", "Objects that the informer has, in memory or in the file.",
		func(s informer.Status) float64 { return float64(s.Objects) }),
	ofInformer.counter("lists_total", "Lists of the whole collection.",
		func(s informer.Status) float64 { return float64(s.Lists) }),
	ofInformer.counter("sparse_lists_total", "Those of the lists that read only the objects that had changed.",
		func(s informer.Status) float64 { return float64(s.SparseLists) }),
	ofInformer.counter("watches_total", "Watches that the server accepted.",
		func(s informer.Status) float64 { return float64(s.Watches) }),
	ofInformer.gauge("last_contact_timestamp_seconds", "Unix time at which the server last answered, in this process or, before it has, when it last vouched for the stored copy; 0 if it never has.",
		func(s informer.Status) float64 { return seconds(s.Contact) }),
	ofInformer.gauge("staleness_seconds", "For how long the server has not vouched for what reads show; +Inf if it never has.", age),
	ofInformer.gauge("resource_version_lag", "How far reads are behind the newest resourceVersion known of the server, counted in resourceVersions, which all writes to the cluster advance.", versionLag),
	ofInformer.gauge("last_request_failed", "Whether the last request to the server failed.",
		func(s informer.Status) float64 { return truth(s.Err != nil) }),
	ofInformer.gauge("stored_bytes", "Size of this informer's objects in the file, as of the last commit.",
		func(s informer.Status) float64 { return float64(s.Durability.Objects.Bytes) }),
	ofInformer.gauge("pending_bytes", "Size of this informer's changes that wait in memory for a commit.",
		func(s informer.Status) float64 { return float64(s.Durability.Pending) }),
	ofInformer.counter("index_errors_total", "Failed calls of index functions.",
		func(s informer.Status) float64 { return float64(s.IndexErrors) }),
}

// phases are the values of the label "phase".
var phases = []reflector.Phase{
	reflector.PhaseStarting,
	reflector.PhaseProbing,
	reflector.PhaseResuming,
	reflector.PhaseListing,
	reflector.PhaseWatching,
	reflector.PhaseStopped,
}

var phaseDesc = ofInformer.desc("phase", "What the informer does: 1 for the phase that it is in, 0 for the others.", "phase")

// collectPhase reports the phase as a set of states: a series for each phase, of
// which one is 1. A phase that is missing above is reported while it lasts.
func collectPhase(current reflector.Phase, out chan<- prometheus.Metric, name string) {
	for _, phase := range phases {
		out <- constant(phaseDesc, prometheus.GaugeValue, truth(phase == current), name, string(phase))
	}
	if !slices.Contains(phases, current) {
		out <- constant(phaseDesc, prometheus.GaugeValue, 1, name, string(current))
	}
}

// outcomes are the values of the label "outcome".
var outcomes = []informer.Outcome{informer.OutcomeResumed, informer.OutcomeReconciled, informer.OutcomeCold}

var startsDesc = ofInformer.desc("starts_total", "Starts that have come to their end, by what came of the stored copy.", "outcome")

// collectStarts reports the start of an informer, which has one, for each outcome.
func collectStarts(current informer.Outcome, out chan<- prometheus.Metric, name string) {
	for _, outcome := range outcomes {
		out <- constant(startsDesc, prometheus.CounterValue, truth(outcome == current), name, string(outcome))
	}
}
