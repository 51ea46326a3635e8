package meter

import (
	"runtime/metrics"
	"time"
)

// heapObjects is what runtime.MemStats calls HeapAlloc: live objects, and dead
// ones that have not been swept yet. Unlike ReadMemStats, reading it does not
// stop the world.
const heapObjects = "/memory/classes/heap/objects:bytes"

// WatchHeap samples the heap of this process every interval. The function it
// returns takes a last sample, ends the sampling and returns the highest one in
// bytes. It must be called once.
func WatchHeap(interval time.Duration) (peak func() int64) {
	stop, result := make(chan struct{}), make(chan int64)
	go func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		highest := heapNow()
		for {
			select {
			case <-ticker.C:
				highest = max(highest, heapNow())
			case <-stop:
				result <- max(highest, heapNow())
				return
			}
		}
	}()
	return func() int64 {
		close(stop)
		return <-result
	}
}

func heapNow() int64 {
	sample := []metrics.Sample{{Name: heapObjects}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
