package metrics_test

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/warmcache/warmcache/factory"
	"github.com/warmcache/warmcache/metrics"
	"github.com/warmcache/warmcache/store"
)

// memory stands for the *bolt.DB of a program.
type memory struct{}

func (memory) Status() store.Status { return store.Status{} }

func ExampleNewCollector() {
	f := factory.New(fake.NewClientset(&corev1.Pod{}), nil)
	defer f.Shutdown()

	collector := metrics.NewCollector(memory{}) // the *bolt.DB that the factory has, too
	if err := collector.Add("pods", f.Core().V1().Pods().Informer()); err != nil {
		fmt.Println(err)
		return
	}
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	if err := registry.Register(collector); err != nil {
		fmt.Println(err)
		return
	}

	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, family := range families {
		if family.GetName() == "warmcache_informer_synced" {
			fmt.Println(family.GetName(), family.GetMetric()[0].GetGauge().GetValue())
		}
	}
	// Output: warmcache_informer_synced 0
}
