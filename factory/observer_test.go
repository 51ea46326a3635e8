package factory

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// observers remembers what it is told of.
type observers struct{ informers []cache.SharedIndexInformer }

func (o *observers) Observe(inf cache.SharedIndexInformer) { o.informers = append(o.informers, inf) }

func TestWithObserver_IsToldOfEachInformerOnce(t *testing.T) {
	var one, other observers
	f := must(New(fake.NewClientset(), newStore(), WithObserver(&one), WithObserver(&other)))
	pods := f.InformerFor(&corev1.Pod{}, nil)
	f.Core().V1().Pods().Informer() // the same in another wrapper
	failing := f.InformerFor(&unlisted{}, nil)
	f.InformerFor(&corev1.Node{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Node{}, 0, nil)
	})
	for name, o := range map[string]observers{"one": one, "other": other} {
		if len(o.informers) != 2 || o.informers[0] != pods || o.informers[1] != failing {
			t.Errorf("%s was told of %v, want %v", name, o.informers, []cache.SharedIndexInformer{pods, failing})
		}
	}
}

// unlisted is of a type that no clientset has.
type unlisted struct{ corev1.Pod }

func TestWithObserver_Nil(t *testing.T) {
	var none *observers
	for name, o := range map[string]Observer{"nil": nil, "a nil pointer": none} {
		_, err := New(fake.NewClientset(), nil, WithObserver(o))
		if !errors.Is(err, ErrInvalidOptions) || !strings.Contains(err.Error(), "WithObserver") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// noMetrics is a provider of metrics that nobody reads.
type noMetrics struct{}

func (noMetrics) NewQueuedItemMetric(cache.InformerNameAndResource) cache.GaugeMetric {
	return noMetric{}
}

func (noMetrics) NewProcessingLatencyMetric(cache.InformerNameAndResource) cache.HistogramMetric {
	return noMetric{}
}

func (noMetrics) NewStoreResourceVersionMetric(cache.InformerNameAndResource) cache.GaugeMetric {
	return noMetric{}
}

type noMetric struct{}

func (noMetric) Set(float64)     {}
func (noMetric) Observe(float64) {}

func TestWithInformerMetricsProvider(t *testing.T) {
	provider := noMetrics{}
	cache.ResetInformerNamesForTesting()
	f := must(New(fake.NewClientset(), nil, WithInformerMetricsProvider(provider), WithInformerName(must(cache.NewInformerName("test")))))
	defer f.Shutdown()
	calls := record(f)
	f.Core().V1().Pods().Informer()
	if got := only(t, calls).options.InformerMetricsProvider; got != cache.InformerMetricsProvider(provider) {
		t.Errorf("got %v", got)
	}
}
