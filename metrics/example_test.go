package metrics_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/warmcache/warmcache/factory"
	"github.com/warmcache/warmcache/metrics"
	"github.com/warmcache/warmcache/store/bolt"
)

func ExampleNewCollector() {
	dir, err := os.MkdirTemp("", "warmcache-example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := bolt.Open(filepath.Join(dir, "cache.db"), bolt.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	f, err := factory.New(fake.NewClientset(), db)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Shutdown()

	collector := metrics.NewCollector(db)
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
		switch family.GetName() {
		case "warmcache_store_healthy", "warmcache_informer_synced":
			fmt.Println(family.GetName(), family.GetMetric()[0].GetGauge().GetValue())
		}
	}
	// Output:
	// warmcache_informer_synced 0
	// warmcache_store_healthy 1
}
