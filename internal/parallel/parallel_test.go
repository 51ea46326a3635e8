package parallel

import (
	"sync/atomic"
	"testing"
)

func TestFor_CallsEachOnce(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 17, 1000, 1023} {
		calls := make([]atomic.Int32, n)
		For(n, func(i int) { calls[i].Add(1) })
		for i := range calls {
			if got := calls[i].Load(); got != 1 {
				t.Errorf("For(%d): %d calls for %d", n, got, i)
			}
		}
	}
}
