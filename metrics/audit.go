package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmcache/warmcache/audit"
	"github.com/warmcache/warmcache/informer"
)

// auditMetrics are the metrics without labels of their own of an informer that is
// audited. One that is not has nothing that could be old.
var auditMetrics = []metric[informer.AuditStatus]{
	ofAudit.counter("objects_total", "Objects that audits have listed.",
		func(s informer.AuditStatus) float64 { return float64(s.Objects) }),
	ofAudit.gauge("last_success_timestamp_seconds", "Unix time of the end of the last audit that has found no difference, or whose differences were repaired; 0 if none has.",
		func(s informer.AuditStatus) float64 { return seconds(s.Succeeded) }),
}

var (
	ofAudit = source[informer.AuditStatus]{prefix: ofInformer.prefix + "audit_", labels: ofInformer.labels}

	auditsDesc      = ofInformer.desc("audits_total", "Audits that have ended, by their result.", "result")
	differencesDesc = ofAudit.desc("differences_total", "Differences between the cache and the server that audits have found, by kind.", "kind")
)

// results are the values of the label "result".
var results = []audit.Result{audit.Verified, audit.Repaired, audit.Failed}

func collectAudit(s *informer.AuditStatus, out chan<- prometheus.Metric, name string) {
	if s == nil {
		return
	}
	collect(auditMetrics, *s, out, name)
	for _, result := range results {
		out <- constant(auditsDesc, prometheus.CounterValue, float64(s.Runs[result]), name, string(result))
	}
	for kind, n := range map[string]int{"missing": s.Missing, "extra": s.Extra, "different": s.Different} {
		out <- constant(differencesDesc, prometheus.CounterValue, float64(n), name, kind)
	}
}
