package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/warmcache/warmcache/audit"
	"github.com/warmcache/warmcache/informer"
)

// auditNames are the names of all metrics of audits.
var auditNames = []string{
	"warmcache_informer_audits_total", "warmcache_informer_audit_differences_total",
	"warmcache_informer_audit_objects_total", "warmcache_informer_audit_last_success_timestamp_seconds",
}

func TestCollector_Audit(t *testing.T) {
	s := informer.Status{Audit: &informer.AuditStatus{
		Runs:    map[audit.Result]int{audit.Verified: 5, audit.Failed: 2},
		Objects: 700, Missing: 1, Extra: 2, Different: 3, Succeeded: time.Unix(1_700_000_000, 0),
	}}
	wantSamples(t, reported{s}, `
		warmcache_informer_audits_total{informer="pods",result="verified"} 5
		warmcache_informer_audits_total{informer="pods",result="repaired"} 0
		warmcache_informer_audits_total{informer="pods",result="failed"} 2
		warmcache_informer_audit_differences_total{informer="pods",kind="missing"} 1
		warmcache_informer_audit_differences_total{informer="pods",kind="extra"} 2
		warmcache_informer_audit_differences_total{informer="pods",kind="different"} 3
		warmcache_informer_audit_objects_total{informer="pods"} 700
		warmcache_informer_audit_last_success_timestamp_seconds{informer="pods"} 1700000000`, auditNames...)
}

// Before the first audit has succeeded its age is large, and the counters are there.
func TestCollector_Audit_NoneYet(t *testing.T) {
	wantSamples(t, reported{informer.Status{Audit: &informer.AuditStatus{}}}, `
		warmcache_informer_audits_total{informer="pods",result="verified"} 0
		warmcache_informer_audits_total{informer="pods",result="repaired"} 0
		warmcache_informer_audits_total{informer="pods",result="failed"} 0
		warmcache_informer_audit_differences_total{informer="pods",kind="missing"} 0
		warmcache_informer_audit_differences_total{informer="pods",kind="extra"} 0
		warmcache_informer_audit_differences_total{informer="pods",kind="different"} 0
		warmcache_informer_audit_objects_total{informer="pods"} 0
		warmcache_informer_audit_last_success_timestamp_seconds{informer="pods"} 0`, auditNames...)
}

func TestCollector_Audit_NotIfThereIsNone(t *testing.T) {
	wantSamples(t, reported{informer.Status{}}, "", auditNames...)
}

func TestCollector_Audit_NumberOfSeries(t *testing.T) {
	if got := testutil.CollectAndCount(reported{informer.Status{Audit: &informer.AuditStatus{}}}, auditNames...); got != 8 {
		t.Errorf("%d series, want 8", got)
	}
}
