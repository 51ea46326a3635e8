package store

import (
	"testing"
	"time"
)

func TestDurations_CountsByUpperBound(t *testing.T) {
	var d Durations
	for _, took := range []time.Duration{0, time.Millisecond, time.Millisecond + 1, time.Second, time.Hour} {
		d.Add(took)
	}
	if d.Count != 5 || d.Total != time.Hour+time.Second+2*time.Millisecond+1 {
		t.Errorf("%d in %s", d.Count, d.Total)
	}
	var last time.Duration
	counts := map[time.Duration]int64{}
	for bound, n := range d.AtMost() {
		if bound <= last || n < counts[last] {
			t.Errorf("%d took at most %s after %d at most %s", n, bound, counts[last], last)
		}
		last, counts[bound] = bound, n
	}
	for bound, want := range map[time.Duration]int64{
		time.Millisecond: 2, 3 * time.Millisecond: 3, 300 * time.Millisecond: 3, time.Second: 4, 30 * time.Second: 4,
	} {
		if counts[bound] != want {
			t.Errorf("%d took at most %s, want %d", counts[bound], bound, want)
		}
	}
	for range d.AtMost() {
		break // a consumer may stop
	}
}
