// Package parallel spreads independent work over the processors.
package parallel

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// grain is how many items a worker takes at a time, and what it takes to make a
// second worker worth starting.
const grain = 16

// For calls fn for every i in [0, n), on as many goroutines as there are
// processors, and returns when all calls have.
func For(n int, fn func(i int)) {
	workers := min(runtime.GOMAXPROCS(0), (n+grain-1)/grain)
	if workers <= 1 {
		for i := range n {
			fn(i)
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				end := int(next.Add(grain))
				start := end - grain
				if start >= n {
					return
				}
				for i := start; i < min(end, n); i++ {
					fn(i)
				}
			}
		})
	}
	wg.Wait()
}
