package policy

import (
	"strconv"

	"github.com/warmcache/warmcache/internal/objectcache"
)

// objectBytes is the size of each object: so much that what a cache charges besides
// makes no difference.
const objectBytes = 1 << 30

// Ours returns the hit rate of the cache that disk residency has, which is S3-FIFO.
func Ours(reads []int, capacity int) float64 {
	c, hits := objectcache.New[int](int64(capacity)*objectBytes+objectBytes/2), 0
	for _, object := range reads {
		key := strconv.Itoa(object)
		if _, found := c.Get(key); found {
			hits++
			continue
		}
		c.Fill(c.Ticket(), key, object, objectBytes, 0)
	}
	return rate(hits, len(reads))
}
