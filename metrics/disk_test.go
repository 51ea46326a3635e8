package metrics

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/warmcache/warmcache/indexer"
	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/reflector"
	"github.com/warmcache/warmcache/store"
)

// reported is a collector of the status of an informer.
type reported struct{ informer.Status }

func (reported) Describe(descs chan<- *prometheus.Desc) { NewCollector(nil).Describe(descs) }

func (r reported) Collect(out chan<- prometheus.Metric) { collectInformer(r.Status, out, "pods") }

// onDisk returns the status of an informer whose objects are in the file.
func onDisk() informer.Status {
	s := informer.Status{Residency: informer.Disk, Phase: reflector.PhaseWatching}
	s.Cache.Hits, s.Cache.Misses, s.Cache.Evictions = 70, 30, 20
	s.Cache.Objects, s.Cache.Bytes, s.Cache.Budget = 10, 5000, 1<<20
	return s
}

// diskNames are the names of all metrics in disk residency.
func diskNames() (names []string) {
	for _, name := range strings.Fields(`cache_hits_total cache_misses_total cache_evictions_total cache_objects cache_bytes
		cache_budget_bytes read_errors_total readable throttled`) {
		names = append(names, "warmcache_informer_"+name)
	}
	return names
}

func TestCollector_Disk_ReportsItsCache(t *testing.T) {
	const want = `
# HELP warmcache_informer_cache_hits_total Reads of one object, by its key, that the cache of decoded objects answered.
# TYPE warmcache_informer_cache_hits_total counter
warmcache_informer_cache_hits_total{informer="pods"} 70
# HELP warmcache_informer_cache_misses_total Reads of one object, by its key, that had to look into the file, also for objects that do not exist.
# TYPE warmcache_informer_cache_misses_total counter
warmcache_informer_cache_misses_total{informer="pods"} 30
# HELP warmcache_informer_cache_evictions_total Objects that had to leave the cache of decoded objects for others.
# TYPE warmcache_informer_cache_evictions_total counter
warmcache_informer_cache_evictions_total{informer="pods"} 20
# HELP warmcache_informer_cache_objects Objects in the cache of decoded objects.
# TYPE warmcache_informer_cache_objects gauge
warmcache_informer_cache_objects{informer="pods"} 10
# HELP warmcache_informer_cache_bytes Estimated size in memory of the cache of decoded objects.
# TYPE warmcache_informer_cache_bytes gauge
warmcache_informer_cache_bytes{informer="pods"} 5000
# HELP warmcache_informer_cache_budget_bytes Size that the cache of decoded objects may have.
# TYPE warmcache_informer_cache_budget_bytes gauge
warmcache_informer_cache_budget_bytes{informer="pods"} 1.048576e+06
# HELP warmcache_informer_read_errors_total Reads that failed because objects could not be read from the file.
# TYPE warmcache_informer_read_errors_total counter
warmcache_informer_read_errors_total{informer="pods"} 0
# HELP warmcache_informer_readable Whether objects can be read from the file (1), or reads fail or wait until they have been listed again (0).
# TYPE warmcache_informer_readable gauge
warmcache_informer_readable{informer="pods"} 1
# HELP warmcache_informer_throttled Whether the watch is not read, because more waits for a disk that fails than the budget allows.
# TYPE warmcache_informer_throttled gauge
warmcache_informer_throttled{informer="pods"} 0
`
	if err := testutil.CollectAndCompare(reported{onDisk()}, strings.NewReader(want), diskNames()...); err != nil {
		t.Error(err)
	}
}

func TestCollector_Disk_Fails(t *testing.T) {
	s := onDisk()
	s.ReadErr, s.ReadErrors, s.Throttled = errors.New("a page is damaged"), 4, true
	wantSamples(t, reported{s}, `
		warmcache_informer_read_errors_total{informer="pods"} 4
		warmcache_informer_readable{informer="pods"} 0
		warmcache_informer_throttled{informer="pods"} 1`,
		"warmcache_informer_read_errors_total", "warmcache_informer_readable", "warmcache_informer_throttled")
}

// An informer in memory has no cache, whose hits would be 0 of 0.
func TestCollector_Disk_NotInMemory(t *testing.T) {
	s := onDisk()
	s.Residency = informer.Memory
	wantSamples(t, reported{s}, "", diskNames()...)
}

// TestCollector_Disk_Informer has an informer that runs.
func TestCollector_Disk_Informer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.prepare(func(o *informer.Options) { o.Residency, o.MemoryBudget = informer.Disk, 2<<20 })
		wantSamples(t, p.collector, "", diskNames()...) // there is no cache before it runs
		p.start()
		defer p.stop()
		before, _ := informer.StatusOf(p.informer)
		for range 3 {
			if _, exists, err := p.informer.GetStore().GetByKey("web/a"); !exists || err != nil {
				t.Errorf("%v, %v", exists, err)
			}
		}
		st, _ := informer.StatusOf(p.informer)
		if n := st.Cache.Hits + st.Cache.Misses - before.Cache.Hits - before.Cache.Misses; n != 3 || st.Cache.Hits == before.Cache.Hits {
			t.Errorf("3 reads: %+v, before %+v", st.Cache, before.Cache)
		}
		p.want("Watching", fmt.Sprintf(`
			objects 3
			cache_hits_total %d
			cache_misses_total %d
			cache_evictions_total 0
			cache_objects %d
			cache_bytes %d
			cache_budget_bytes 2097152
			read_errors_total 0
			readable 1
			throttled 0`, st.Cache.Hits, st.Cache.Misses, st.Cache.Objects, st.Cache.Bytes))
	})
}

// TestCollector_Disk_Unreadable loses the file while the server is out of reach.
func TestCollector_Disk_Unreadable(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.prepare(func(o *informer.Options) { o.Residency = informer.Disk }).start()
		defer p.stop()
		if err := w.server.Down(); err != nil {
			t.Fatal(err)
		}
		other, err := p.db.Collection(store.Identity{Version: "v1", Resource: "nodes", Form: store.FormTyped}, "test")
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		other.Quarantine(errors.New("a record is damaged"))
		time.Sleep(time.Minute)
		if _, _, err := p.informer.GetStore().GetByKey("web/missing"); !errors.Is(err, indexer.ErrUnreadable) {
			t.Errorf("read: %v", err)
		}
		p.want("Listing", `readable 0`)

		if err := w.server.Up(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if _, exists, err := p.informer.GetStore().GetByKey("web/a"); !exists || err != nil {
			t.Errorf("read: %v, %v", exists, err)
		}
		p.want("Watching", `
			readable 1
			objects 3`)
	})
}

func TestCollector_Disk_NumberOfSeries(t *testing.T) {
	if got := testutil.CollectAndCount(reported{onDisk()}); got != 22+9 {
		t.Errorf("%d series, want %d", got, 22+9)
	}
}

func TestCollector_Disk_Lint(t *testing.T) {
	problems, err := testutil.CollectAndLint(reported{onDisk()})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
