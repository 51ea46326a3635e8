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
	collector := metrics.NewCollector(db)
	f, err := factory.New(fake.NewClientset(), db, factory.WithObserver(collector))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Shutdown()

	f.Core().V1().Pods().Informer()

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
		m := family.GetMetric()[0]
		switch family.GetName() {
		case "warmcache_store_healthy":
			fmt.Println(family.GetName(), m.GetGauge().GetValue())
		case "warmcache_informer_synced":
			fmt.Println(family.GetName(), m.GetLabel()[0].GetValue(), m.GetGauge().GetValue())
		}
	}
	// Output:
	// warmcache_informer_synced v1/pods?form=typed 0
	// warmcache_store_healthy 1
}
