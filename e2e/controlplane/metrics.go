package controlplane

import (
	"bytes"
	"context"
	"fmt"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metric adds up a metric of the API server over all series that carry the given
// labels: the values of a counter or gauge, the sums of a histogram or summary.
// It is 0 if there is no such series, as for a counter that nothing has counted.
func (a *APIServer) Metric(ctx context.Context, name string, labels map[string]string) (float64, error) {
	text, err := a.get(ctx, "/metrics")
	if err != nil {
		return 0, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return 0, fmt.Errorf("parsing the API server's metrics: %w", err)
	}
	sum := 0.0
	for _, series := range families[name].GetMetric() {
		if carries(series, labels) {
			sum += metricValue(series)
		}
	}
	return sum, nil
}

func carries(series *dto.Metric, labels map[string]string) bool {
	found := 0
	for _, pair := range series.GetLabel() {
		if value, wanted := labels[pair.GetName()]; wanted && value == pair.GetValue() {
			found++
		}
	}
	return found == len(labels)
}

// metricValue relies on a series having exactly one of the four kinds of value;
// the getters of the others return 0.
func metricValue(series *dto.Metric) float64 {
	return series.GetCounter().GetValue() + series.GetGauge().GetValue() +
		series.GetHistogram().GetSampleSum() + series.GetSummary().GetSampleSum()
}
