package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmcache/warmcache/store"
)

var ofStore = source[store.Status]{prefix: "warmcache_store_"}

// storeMetrics are the metrics of a store.
var storeMetrics = []metric[store.Status]{
	ofStore.gauge("persistent", "Whether there is a file (1), or everything is in memory only (0).",
		func(s store.Status) float64 { return truth(s.Persistent) }),
	ofStore.gauge("healthy", "Whether the last commit to the file succeeded (1) or failed (0); 1 if there is no file.",
		func(s store.Status) float64 { return truth(s.Err == nil || !s.Persistent) }),
	ofStore.gauge("pending_bytes", "Size of the changes that wait in memory for a commit.",
		func(s store.Status) float64 { return float64(s.PendingBytes) }),
	ofStore.counter("commits_total", "Commits that wrote something.",
		func(s store.Status) float64 { return float64(s.Commits) }),
	ofStore.counter("commit_failures_total", "Commits that failed, retries included.",
		func(s store.Status) float64 { return float64(s.FailedCommits) }),
	ofStore.gauge("last_commit_timestamp_seconds", "Unix time of the last commit that wrote something; 0 if there was none.",
		func(s store.Status) float64 { return seconds(s.Committed) }),
	ofStore.gauge("file_bytes", "Size of the file.",
		func(s store.Status) float64 { return float64(s.FileBytes) }),
	ofStore.gauge("file_free_bytes", "Part of the file that is unused and is filled before the file grows.",
		func(s store.Status) float64 { return float64(s.FreeBytes) }),
	ofStore.counter("quarantines_total", "Files that could not be used and were moved aside.",
		func(s store.Status) float64 { return float64(s.Quarantines) }),
	ofStore.counter("scrub_passes_total", "Completed passes of the search for damage.",
		func(s store.Status) float64 { return float64(s.Scrub.Passes) }),
	ofStore.counter("scrub_problems_total", "Damage that the search for damage has found.",
		func(s store.Status) float64 { return float64(s.Scrub.Problems) }),
	ofStore.gauge("scrub_last_completed_timestamp_seconds", "Unix time at which the last pass of the search for damage was completed; 0 if none was.",
		func(s store.Status) float64 { return seconds(s.Scrub.Completed) }),
	ofStore.gauge("scrub_checked_bytes", "What the current pass of the search for damage has checked.",
		func(s store.Status) float64 { return float64(s.Scrub.Checked) }),
	ofStore.gauge("scrub_pass_bytes", "What the current pass of the search for damage has to check in all; 0 between passes.",
		func(s store.Status) float64 { return float64(s.Scrub.Total) }),
}

var commitDesc = ofStore.desc("commit_duration_seconds", "How long commits took that wrote something and succeeded.")

// commitTimes makes a histogram of what the store has counted.
func commitTimes(d store.Durations) prometheus.Metric {
	buckets := map[float64]uint64{}
	for bound, n := range d.AtMost() {
		buckets[bound.Seconds()] = uint64(n)
	}
	m, err := prometheus.NewConstHistogram(commitDesc, uint64(d.Count), d.Total.Seconds(), buckets)
	if err != nil {
		return prometheus.NewInvalidMetric(commitDesc, err)
	}
	return m
}
