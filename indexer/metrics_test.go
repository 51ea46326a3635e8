package indexer

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// versions is a provider that keeps what the version of the store was set to.
type versions struct {
	cache.InformerMetricsProvider
	values []float64
}

func (v *versions) NewStoreResourceVersionMetric(cache.InformerNameAndResource) cache.GaugeMetric {
	return v
}

func (v *versions) Set(value float64) { v.values = append(v.values, value) }

// TestIndexer_Metrics_Version checks that the metric has the versions of the state
// and never that of an object in the middle of a list.
func TestIndexer_Metrics_Version(t *testing.T) {
	name, err := cache.NewInformerName(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer name.Release()
	v := &versions{}
	x := New(Options{Metrics: v, Identifier: name.WithResource(schema.GroupVersionResource{Resource: "pods"})})
	for _, u := range []Update{
		{Changes: []Change{{Key: "ns/a", Object: pod("a", "3", "")}}, Incomplete: true},
		{Changes: []Change{{Key: "ns/b", Object: pod("b", "1", "")}}, Complete: true, RV: "10"},
		{Changes: []Change{{Key: "ns/a"}}, RV: "11"},
		{RV: "12"},
	} {
		if _, err := x.Apply(u); err != nil {
			t.Fatal(err)
		}
	}
	if want := []float64{10, 11, 12}; !slices.Equal(v.values, want) {
		t.Errorf("versions %v, want %v", v.values, want)
	}
}
