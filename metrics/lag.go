package metrics

import (
	"math"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/warmcache/warmcache/informer"
)

// versionLag is how far reads are behind the newest version that is known of the
// server, 0 if they are not, or NaN if that cannot be known: nothing was loaded or
// read yet, or the versions are none that can be compared.
func versionLag(s informer.Status) float64 {
	newest := s.ServerRV
	if order, err := resourceversion.CompareResourceVersion(s.ReadRV, newest); err == nil && order > 0 {
		newest = s.ReadRV
	}
	order, err := resourceversion.CompareResourceVersion(s.RV, newest)
	switch {
	case err != nil:
		return math.NaN()
	case order >= 0:
		return 0
	}
	from, fromErr := strconv.ParseUint(s.RV, 10, 64)
	to, toErr := strconv.ParseUint(newest, 10, 64)
	if fromErr != nil || toErr != nil {
		return math.NaN() // longer than any version of etcd
	}
	return float64(to - from)
}

// age is for how many seconds the server has not vouched for the state; without end
// if it never has.
func age(s informer.Status) float64 {
	if s.Contact.IsZero() {
		return math.Inf(1)
	}
	return s.Staleness.Round(time.Millisecond).Seconds()
}
