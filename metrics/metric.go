package metrics

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metric is how one number of a status S is reported.
type metric[S any] struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	// value returns NaN for what is not known, which is not reported then: a number
	// that means nothing would spoil sums.
	value func(S) float64
}

// source makes the metrics of one kind of status, which share a prefix and
// labels.
type source[S any] struct {
	prefix string
	labels []string
}

func (s source[S]) desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(s.prefix+name, help, append(s.labels[:len(s.labels):len(s.labels)], labels...), nil)
}

func (s source[S]) gauge(name, help string, value func(S) float64) metric[S] {
	return metric[S]{s.desc(name, help), prometheus.GaugeValue, value}
}

func (s source[S]) counter(name, help string, value func(S) float64) metric[S] {
	return metric[S]{s.desc(name, help), prometheus.CounterValue, value}
}

func describe[S any](metrics []metric[S], descs chan<- *prometheus.Desc) {
	for _, m := range metrics {
		descs <- m.desc
	}
}

func collect[S any](metrics []metric[S], status S, out chan<- prometheus.Metric, labels ...string) {
	for _, m := range metrics {
		if value := m.value(status); !math.IsNaN(value) {
			out <- constant(m.desc, m.kind, value, labels...)
		}
	}
}

// constant is prometheus.MustNewConstMetric without the panic: a mistake fails
// the scrape.
func constant(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) prometheus.Metric {
	m, err := prometheus.NewConstMetric(desc, kind, value, labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return m
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// seconds is a Unix time, 0 for one that has never come.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
