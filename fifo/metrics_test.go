package fifo

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// samples are the values that metrics were given, and a provider of these.
type samples struct {
	cache.InformerMetricsProvider
	queued, latency []float64
}

type setter struct{ values *[]float64 }

func (s setter) Set(value float64)     { *s.values = append(*s.values, value) }
func (s setter) Observe(value float64) { *s.values = append(*s.values, value) }

func (s *samples) NewQueuedItemMetric(cache.InformerNameAndResource) cache.GaugeMetric {
	return setter{&s.queued}
}

func (s *samples) NewProcessingLatencyMetric(cache.InformerNameAndResource) cache.HistogramMetric {
	return setter{&s.latency}
}

// take returns what the gauge was set to since the last call, without repetitions.
func (s *samples) take() []float64 {
	taken := slices.Compact(s.queued)
	s.queued = nil
	return taken
}

func newMeasured(t *testing.T) (*fixture, *samples) {
	t.Helper()
	name, err := cache.NewInformerName(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(name.Release)
	s, k := &samples{}, newKnown()
	q := New(Options{Known: k, Metrics: s, Identifier: name.WithResource(schema.GroupVersionResource{Resource: "pods"})})
	return &fixture{T: t, Queue: q, known: k}, s
}

func (s *samples) want(t *testing.T, doing string, want ...float64) {
	t.Helper()
	if got := s.take(); !slices.Equal(got, want) {
		t.Errorf("%s: queued %v, want %v", doing, got, want)
	}
}

// TestQueue_Metrics_Queued follows the number of items through everything that
// changes it.
func TestQueue_Metrics_Queued(t *testing.T) {
	f, s := newMeasured(t)
	f.must(f.Add(object("a", "1")))
	f.must(f.Update(object("a", "2")))
	f.must(f.Delete(object("b", "3")))
	s.want(t, "pushing", 1, 2, 3)
	f.pop()
	s.want(t, "popping a batch", 0)
	f.list("4", object("a", "2"), object("c", "4"), object("d", "4"))
	f.Resync()
	s.want(t, "a list and a resync, one item each", 1, 2)
	f.drain()
	s.want(t, "expanding", 1, 0)
	f.must(f.Add(object("e", "5")))
	f.must(f.Add(object("f", "6")))
	f.fail(errors.New("broken"))
	s.want(t, "failing", 1, 2, 0)
	f.list("7")
	f.must(f.Add(object("g", "8")))
	f.Close()
	s.want(t, "closing", 1, 2, 0)
}

// TestQueue_Metrics_Latency checks that each batch counts once, in seconds, also
// one that fails, and that waiting does not.
func TestQueue_Metrics_Latency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newMeasured(t)
		process := func(takes time.Duration, err error) {
			go func() {
				time.Sleep(time.Minute)
				_ = f.Add(object("a", "1"))
				_ = f.Add(object("b", "2"))
			}()
			if got := f.PopBatch(func(Batch) error { time.Sleep(takes); return err }); !errors.Is(got, err) {
				t.Error(got)
			}
			f.drain()
		}
		process(1500*time.Millisecond, nil)
		process(2*time.Second, errors.New("broken"))
		got := slices.DeleteFunc(s.latency, func(v float64) bool { return v == 0 })
		if !slices.Equal(got, []float64{1.5, 2}) {
			t.Errorf("latencies %v", got)
		}
	})
}
