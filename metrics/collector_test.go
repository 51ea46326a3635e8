package metrics

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/reflector"
	"github.com/warmcache/warmcache/store"
)

// must returns x, for errors that a test does not expect.
func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// fakeStore reports what a test sets.
type fakeStore struct{ status store.Status }

func (s *fakeStore) Status() store.Status { return s.status }

// idle returns an informer that is never run.
func idle() cache.SharedIndexInformer {
	return must(informer.New(&cache.ListWatch{}, &corev1.Pod{}, informer.Options{}))
}

func mustAdd(t *testing.T, c *Collector, name string, inf cache.SharedInformer) {
	t.Helper()
	if err := c.Add(name, inf); err != nil {
		t.Fatal(err)
	}
}

// wantSamples compares the samples of the named metrics with want, a line for each.
func wantSamples(t *testing.T, c prometheus.Collector, want string, names ...string) {
	t.Helper()
	var lines []string
	for line := range strings.Lines(want) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	if diff := cmp.Diff(lines, samples(t, c, names...)); diff != "" {
		t.Errorf("metrics differ (-want +got):\n%s", diff)
	}
}

// samples returns what a scrape has of the named metrics, or of all, in order.
func samples(t *testing.T, c prometheus.Collector, names ...string) (lines []string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if len(names) > 0 && !slices.Contains(names, family.GetName()) {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := family.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue() // one of them is nil
			lines = append(lines, fmt.Sprintf("%s %.15g", name, value))
		}
	}
	slices.Sort(lines)
	return lines
}

// TestNewCollector_NilPointer has the variable of a program whose file is optional.
func TestNewCollector_NilPointer(t *testing.T) {
	var db *fakeStore
	if got := samples(t, NewCollector(db)); len(got) != 0 {
		t.Errorf("a store that is not there is reported: %v", got)
	}
}

func TestCollector_Store_ReportsItsStatus(t *testing.T) {
	c := NewCollector(&fakeStore{store.Status{
		Persistent:    true,
		Committed:     time.UnixMilli(1_700_000_000_250),
		Commits:       7,
		CommitTimes:   times(2*time.Millisecond, 4*time.Second, time.Hour),
		FailedCommits: 2,
		PendingBytes:  300,
		FileBytes:     65536,
		FreeBytes:     4096,
		Quarantines:   1,
		Quarantined:   "/var/lib/secret-path",
		Scrub: store.ScrubStatus{
			Passes: 3, Completed: time.Unix(1_700_000_100, 0), Problems: 4, Checked: 8192, Total: 61440,
		},
	}})
	const want = `
# HELP warmcache_store_persistent Whether there is a file (1), or everything is in memory only (0).
# TYPE warmcache_store_persistent gauge
warmcache_store_persistent 1
# HELP warmcache_store_healthy Whether the last commit to the file succeeded (1) or failed (0); 1 if there is no file.
# TYPE warmcache_store_healthy gauge
warmcache_store_healthy 1
# HELP warmcache_store_pending_bytes Size of the changes that wait in memory for a commit.
# TYPE warmcache_store_pending_bytes gauge
warmcache_store_pending_bytes 300
# HELP warmcache_store_commits_total Commits that wrote something.
# TYPE warmcache_store_commits_total counter
warmcache_store_commits_total 7
# HELP warmcache_store_commit_failures_total Commits that failed, retries included.
# TYPE warmcache_store_commit_failures_total counter
warmcache_store_commit_failures_total 2
# HELP warmcache_store_commit_duration_seconds How long commits took that wrote something and succeeded.
# TYPE warmcache_store_commit_duration_seconds histogram
warmcache_store_commit_duration_seconds_bucket{le="0.001"} 0
warmcache_store_commit_duration_seconds_bucket{le="0.003"} 1
warmcache_store_commit_duration_seconds_bucket{le="0.01"} 1
warmcache_store_commit_duration_seconds_bucket{le="0.03"} 1
warmcache_store_commit_duration_seconds_bucket{le="0.1"} 1
warmcache_store_commit_duration_seconds_bucket{le="0.3"} 1
warmcache_store_commit_duration_seconds_bucket{le="1"} 1
warmcache_store_commit_duration_seconds_bucket{le="3"} 1
warmcache_store_commit_duration_seconds_bucket{le="10"} 2
warmcache_store_commit_duration_seconds_bucket{le="30"} 2
warmcache_store_commit_duration_seconds_bucket{le="+Inf"} 3
warmcache_store_commit_duration_seconds_sum 3604.002
warmcache_store_commit_duration_seconds_count 3
# HELP warmcache_store_last_commit_timestamp_seconds Unix time of the last commit that wrote something; 0 if there was none.
# TYPE warmcache_store_last_commit_timestamp_seconds gauge
warmcache_store_last_commit_timestamp_seconds 1.70000000025e+09
# HELP warmcache_store_file_bytes Size of the file.
# TYPE warmcache_store_file_bytes gauge
warmcache_store_file_bytes 65536
# HELP warmcache_store_file_free_bytes Part of the file that is unused and is filled before the file grows.
# TYPE warmcache_store_file_free_bytes gauge
warmcache_store_file_free_bytes 4096
# HELP warmcache_store_quarantines_total Files that could not be used and were moved aside.
# TYPE warmcache_store_quarantines_total counter
warmcache_store_quarantines_total 1
# HELP warmcache_store_scrub_passes_total Completed passes of the search for damage.
# TYPE warmcache_store_scrub_passes_total counter
warmcache_store_scrub_passes_total 3
# HELP warmcache_store_scrub_problems_total Damage that the search for damage has found.
# TYPE warmcache_store_scrub_problems_total counter
warmcache_store_scrub_problems_total 4
# HELP warmcache_store_scrub_last_completed_timestamp_seconds Unix time at which the last pass of the search for damage was completed; 0 if none was.
# TYPE warmcache_store_scrub_last_completed_timestamp_seconds gauge
warmcache_store_scrub_last_completed_timestamp_seconds 1.7000001e+09
# HELP warmcache_store_scrub_checked_bytes What the current pass of the search for damage has checked.
# TYPE warmcache_store_scrub_checked_bytes gauge
warmcache_store_scrub_checked_bytes 8192
# HELP warmcache_store_scrub_pass_bytes What the current pass of the search for damage has to check in all; 0 between passes.
# TYPE warmcache_store_scrub_pass_bytes gauge
warmcache_store_scrub_pass_bytes 61440
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// A failed commit shows in the next scrape, and so does the recovery.
func TestCollector_Store_CommitFailsAndRecovers(t *testing.T) {
	db := &fakeStore{store.Status{Persistent: true, Commits: 1}}
	c := NewCollector(db)
	names := []string{"warmcache_store_healthy", "warmcache_store_commits_total", "warmcache_store_commit_failures_total"}

	db.status.Err, db.status.FailedCommits = errors.New("no space left on device"), 1
	wantSamples(t, c, `
		warmcache_store_healthy 0
		warmcache_store_commits_total 1
		warmcache_store_commit_failures_total 1`, names...)

	db.status.Err, db.status.Commits = nil, 2
	wantSamples(t, c, `
		warmcache_store_healthy 1
		warmcache_store_commits_total 2
		warmcache_store_commit_failures_total 1`, names...)
}

// A store without a file has an error, which says why, and nothing to alert on
// but that it is not persistent.
func TestCollector_Store_MemoryOnlyIsHealthy(t *testing.T) {
	wantSamples(t, NewCollector(&fakeStore{store.Status{Err: store.ErrLocked}}), `
		warmcache_store_persistent 0
		warmcache_store_healthy 1`, "warmcache_store_persistent", "warmcache_store_healthy")
}

// Zero is not a time of the year 1.
func TestCollector_Times_ZeroIfNever(t *testing.T) {
	c := NewCollector(&fakeStore{})
	mustAdd(t, c, "pods", idle())
	wantSamples(t, c, `
		warmcache_store_last_commit_timestamp_seconds 0
		warmcache_store_scrub_last_completed_timestamp_seconds 0
		warmcache_informer_last_contact_timestamp_seconds{informer="pods"} 0`,
		"warmcache_store_last_commit_timestamp_seconds",
		"warmcache_store_scrub_last_completed_timestamp_seconds",
		"warmcache_informer_last_contact_timestamp_seconds")
}

func TestCollector_Lint(t *testing.T) {
	c := NewCollector(&fakeStore{})
	mustAdd(t, c, "pods", idle())
	problems, err := testutil.CollectAndLint(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func times(took ...time.Duration) (d store.Durations) {
	for _, t := range took {
		d.Add(t)
	}
	return d
}

// The package comment promises these numbers, where a histogram is many and the lag
// of an informer that has not started is not known.
func TestCollector_NumberOfSeries(t *testing.T) {
	c := NewCollector(&fakeStore{})
	for informers := range 3 {
		if got, want := testutil.CollectAndCount(c), 15+22*informers; got != want {
			t.Errorf("%d informers: %d series, want %d", informers, got, want)
		}
		mustAdd(t, c, fmt.Sprint(informers), idle())
	}
}

func TestCollector_NoStore_ReportsInformersOnly(t *testing.T) {
	c := NewCollector(nil)
	mustAdd(t, c, "pods", idle())
	if got := testutil.CollectAndCount(c); got != 22 {
		t.Errorf("%d series, want 22", got)
	}
}

// A pedantic registry checks that what is collected was described.
func TestCollector_Describe_IsWhatIsCollected(t *testing.T) {
	c := NewCollector(&fakeStore{})
	mustAdd(t, c, "pods", idle())
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	if _, err := registry.Gather(); err != nil {
		t.Error(err)
	}
	if err := registry.Register(NewCollector(&fakeStore{})); !errors.As(err, &prometheus.AlreadyRegisteredError{}) {
		t.Errorf("another store under the same names: %v, want AlreadyRegisteredError", err)
	}
}

func TestCollector_TwoStores_TellThemApart(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	for _, name := range []string{"east", "west"} {
		if err := prometheus.WrapRegistererWith(prometheus.Labels{"store": name}, registry).Register(NewCollector(&fakeStore{})); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := testutil.GatherAndCount(registry, "warmcache_store_healthy"); n != 2 || err != nil {
		t.Errorf("%d series, %v; want one for each store", n, err)
	}
}

// wrapped is an informer that a user has wrapped.
type wrapped struct{ cache.SharedIndexInformer }

func TestCollector_Add_Errors(t *testing.T) {
	stock := cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Pod{}, 0, nil)
	c := NewCollector(nil)
	mustAdd(t, c, "pods", idle())
	for _, test := range []struct {
		name     string
		informer cache.SharedInformer
		want     error
	}{
		{"stock", stock, ErrForeignInformer},
		{"nothing", nil, ErrForeignInformer},
		{"", idle(), ErrInvalidName},
		{"\xff", idle(), ErrInvalidName},
		{"pods", idle(), ErrNameInUse},
		{"wrapped", wrapped{idle()}, nil},
		{"späti/☃ \"quoted\"\n", idle(), nil},
	} {
		if err := c.Add(test.name, test.informer); !errors.Is(err, test.want) {
			t.Errorf("Add(%q): %v, want %v", test.name, err, test.want)
		}
	}
	if got := testutil.CollectAndCount(c, "warmcache_informer_synced"); got != 3 {
		t.Errorf("%d informers are reported, want the three that were added", got)
	}
}

func TestCollector_Remove_EndsTheReport(t *testing.T) {
	c := NewCollector(nil)
	mustAdd(t, c, "pods", idle())
	mustAdd(t, c, "nodes", idle())
	c.Remove("pods")
	c.Remove("never added")
	wantSamples(t, c, `warmcache_informer_objects{informer="nodes"} 0`, "warmcache_informer_objects")
	mustAdd(t, c, "pods", idle())
}

func TestCollector_ScrapesDuringChanges(t *testing.T) {
	c := NewCollector(&fakeStore{})
	var changes sync.WaitGroup
	for i := range 4 {
		changes.Go(func() {
			for range 50 {
				if err := c.Add(fmt.Sprint(i), idle()); err != nil {
					t.Error(err)
				}
				c.Remove(fmt.Sprint(i))
			}
		})
	}
	for range 50 {
		if n := testutil.CollectAndCount(c, "warmcache_store_healthy"); n != 1 {
			t.Errorf("%d series, want 1", n)
		}
	}
	changes.Wait()
}

// phaseCollector reports one phase.
type phaseCollector reflector.Phase

func (phaseCollector) Describe(descs chan<- *prometheus.Desc) { descs <- phaseDesc }
func (p phaseCollector) Collect(out chan<- prometheus.Metric) {
	collectPhase(reflector.Phase(p), out, "pods")
}

func TestCollectPhase_OneOfASet(t *testing.T) {
	for _, current := range append(slices.Clone(phases), "Dreaming") { // the last is unknown here
		want := fmt.Sprintf("warmcache_informer_phase{informer=\"pods\",phase=%q} 1\n", current)
		for _, phase := range phases {
			if phase != current {
				want += fmt.Sprintf("warmcache_informer_phase{informer=\"pods\",phase=%q} 0\n", phase)
			}
		}
		wantSamples(t, phaseCollector(current), want)
	}
}

// docs/operations.md is where users look metrics up.
func TestDocs_ListEveryMetric(t *testing.T) {
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := regexp.MustCompile(`warmcache_(store|informer)_[a-z_]+`).FindAllString(string(text), -1)
	descs := make(chan *prometheus.Desc, 100)
	NewCollector(&fakeStore{}).Describe(descs)
	close(descs)
	var reported []string
	for desc := range descs {
		reported = append(reported, regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(desc.String())[1])
	}
	for i, name := range documented {
		documented[i] = strings.TrimSuffix(name, "_bucket")
	}
	slices.Sort(documented)
	slices.Sort(reported)
	if diff := cmp.Diff(slices.Compact(reported), slices.Compact(documented)); diff != "" {
		t.Errorf("docs/operations.md differs from what is reported (-reported +documented):\n%s", diff)
	}
}
