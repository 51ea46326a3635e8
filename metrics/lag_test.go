package metrics

import (
	"math"
	"testing"
	"time"

	"github.com/warmcache/warmcache/informer"
)

func TestVersionLag(t *testing.T) {
	unknown := math.NaN()
	for _, c := range []struct {
		name               string
		applied, read, was string
		want               float64
	}{
		{"caught up", "10", "10", "7", 0},
		{"at the probe", "10", "", "10", 0},
		{"behind the probe", "10", "12", "25", 15},
		{"behind what was read", "10", "25", "12", 15},
		{"of other lengths", "9", "9", "10", 1},
		{"the server was restored", "10", "10", "4", 0},
		{"nothing was loaded", "", "", "10", unknown},
		{"the server has not answered", "10", "", "", unknown},
		{"without versions", "0", "0", "0", unknown},
		{"not comparable", "x", "x", "x", unknown},
		{"longer than a number", "10", "123456789012345678901234567890", "12", unknown},
	} {
		got := versionLag(informer.Status{RV: c.applied, ReadRV: c.read, ServerRV: c.was})
		if got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestAge(t *testing.T) {
	for _, c := range []struct {
		name   string
		status informer.Status
		want   float64
	}{
		{"never", informer.Status{Staleness: time.Second}, math.Inf(1)},
		{"now", informer.Status{Contact: time.Unix(1, 0)}, 0},
		{"some time ago", informer.Status{Contact: time.Unix(1, 0), Staleness: 1500*time.Millisecond + 7}, 1.5},
	} {
		if got := age(c.status); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
