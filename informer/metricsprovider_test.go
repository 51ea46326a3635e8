package informer_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
)

// provider remembers what metrics were made and set, as a user's would.
type provider struct {
	mu sync.Mutex
	// made counts metrics by kind and resource.
	made map[string]int
	// values are those of gauges, by kind; seen is how often they were set.
	values map[string]float64
	seen   map[string]int
	// observed are the values of the histogram.
	observed []float64
	// ids are what the metrics were made for.
	ids []cache.InformerNameAndResource
}

func newProvider() *provider {
	return &provider{made: map[string]int{}, values: map[string]float64{}, seen: map[string]int{}}
}

func (p *provider) make(kind string, id cache.InformerNameAndResource) metric {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made[kind]++
	p.ids = append(p.ids, id)
	return metric{p, kind}
}

func (p *provider) NewQueuedItemMetric(id cache.InformerNameAndResource) cache.GaugeMetric {
	return p.make("queued", id)
}

func (p *provider) NewProcessingLatencyMetric(id cache.InformerNameAndResource) cache.HistogramMetric {
	return p.make("latency", id)
}

func (p *provider) NewStoreResourceVersionMetric(id cache.InformerNameAndResource) cache.GaugeMetric {
	return p.make("version", id)
}

type metric struct {
	provider *provider
	kind     string
}

func (m metric) Set(value float64) {
	m.provider.mu.Lock()
	defer m.provider.mu.Unlock()
	m.provider.values[m.kind] = value
	m.provider.seen[m.kind]++
}

func (m metric) Observe(value float64) {
	m.provider.mu.Lock()
	defer m.provider.mu.Unlock()
	m.provider.observed = append(m.provider.observed, value)
}

// read calls fn when nothing changes.
func (p *provider) read(fn func()) {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	fn()
}

// named returns an option that gives informers a name, which the test releases.
func named(t *testing.T, name string) (*cache.InformerName, func(*informer.Options)) {
	t.Helper()
	n, err := cache.NewInformerName(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Release)
	return n, func(o *informer.Options) { o.Identifier = n.WithResource(configMaps) }
}

// stockWithMetrics is client-go's informer with its metrics.
func stockWithMetrics(lw cache.ListerWatcher, o informer.Options) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformerWithOptions(lw, &corev1.ConfigMap{}, cache.SharedIndexInformerOptions{
		Indexers: o.Indexers, Identifier: o.Identifier, InformerMetricsProvider: o.InformerMetricsProvider,
	})
}

// TestInformer_MetricsProvider compares with client-go what a provider is asked for
// and what the metrics say once all is quiet.
func TestInformer_MetricsProvider(t *testing.T) {
	for name, m := range map[string]maker{"client-go": stockWithMetrics, "persistent": persistent, "in memory": inMemory} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.make = m
				p, n := newProvider(), "metrics "+name
				_, identifier := named(t, n)
				w.create("a", "b")
				run := w.start(identifier, func(o *informer.Options) { o.InformerMetricsProvider = p }).synced()
				p.read(func() {
					for _, kind := range []string{"queued", "latency", "version"} {
						if p.made[kind] != 1 {
							t.Errorf("%d metrics %q, want 1", p.made[kind], kind)
						}
					}
					for _, id := range p.ids {
						if id.Name() != n || id.GroupVersionResource() != configMaps {
							t.Errorf("made for %s %v", id.Name(), id.GroupVersionResource())
						}
					}
					if p.seen["queued"] < 2 || len(p.observed) == 0 {
						t.Errorf("queue set %d times, %d batches", p.seen["queued"], len(p.observed))
					}
				})
				w.update("a", "new")
				w.delete("b")
				p.wantIdle(t, run.informer)
				time.Sleep(2 * time.Minute) // a bookmark
				p.wantIdle(t, run.informer)
				run.stop()
			})
		})
	}
}

// wantIdle checks that nothing is queued and that the metric has the store's
// version.
func (p *provider) wantIdle(t *testing.T, inf cache.SharedIndexInformer) {
	t.Helper()
	p.read(func() {
		rv := inf.LastSyncResourceVersion()
		if p.values["queued"] != 0 {
			t.Errorf("%v items queued", p.values["queued"])
		}
		if got := strconv.FormatFloat(p.values["version"], 'f', -1, 64); got != rv {
			t.Errorf("version metric %s, informer %s", got, rv)
		}
	})
}

// TestInformer_MetricsProvider_WarmStart checks that the version of what was loaded
// is shown although nothing has been written yet.
func TestInformer_MetricsProvider_WarmStart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a")
		w.start().synced().kill()
		if err := w.server.Down(); err != nil {
			t.Fatal(err)
		}
		p := newProvider()
		_, identifier := named(t, "warm")
		run := w.start(identifier, func(o *informer.Options) {
			o.InformerMetricsProvider, o.Start = p, informer.Stale(time.Second)
		}).synced()
		if run.status().RV == "" {
			t.Fatal("no version was loaded")
		}
		p.wantIdle(t, run.informer)
		run.stop()
		if err := w.server.Up(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestInformer_MetricsProvider_OnlyReserved checks that nothing is asked for an
// informer that has no name, one that is not the first of its name, and one whose
// name was released.
func TestInformer_MetricsProvider_OnlyReserved(t *testing.T) {
	n, identifier := named(t, "twice")
	var first informer.Options
	identifier(&first)
	released, releasedIdentifier := named(t, "released")
	var late informer.Options
	releasedIdentifier(&late)
	released.Release()
	for name, id := range map[string]cache.InformerNameAndResource{
		"no name": {}, "second": n.WithResource(configMaps), "released": late.Identifier,
	} {
		for kind, m := range map[string]maker{"client-go": stockWithMetrics, "ours": inMemory} {
			t.Run(fmt.Sprint(name, " ", kind), func(t *testing.T) {
				inWorld(t, func(_ *testing.T, w *world) {
					w.make = m
					p := newProvider()
					w.start(func(o *informer.Options) { o.Identifier, o.InformerMetricsProvider = id, p }).synced().stop()
					p.read(func() {
						if len(p.made) != 0 {
							t.Errorf("made %v", p.made)
						}
					})
				})
			})
		}
	}
}

// globalProvider is set for the whole test process, which client-go allows once.
// Other tests name no informer, or set theirs.
var globalProvider = sync.OnceValue(func() *provider {
	p := newProvider()
	cache.SetInformerMetricsProvider(p)
	return p
})

// TestInformer_MetricsProvider_Global checks what is known of the provider that
// client-go has for all informers, which only its own code can see.
func TestInformer_MetricsProvider_Global(t *testing.T) {
	p := globalProvider()
	inWorld(t, func(t *testing.T, w *world) {
		clear(p.made)
		_, identifier := named(t, "global")
		w.create("a")
		run := w.start(identifier).synced()
		defer run.stop()
		p.read(func() {
			if p.made["version"] != 1 || p.made["queued"]+p.made["latency"] != 0 {
				t.Errorf("made %v", p.made)
			}
		})
		p.wantIdle(t, run.informer)
	})
}
