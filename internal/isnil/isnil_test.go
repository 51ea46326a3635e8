package isnil

import "testing"

func TestValue(t *testing.T) {
	var none *int
	for _, test := range []struct {
		x    any
		want bool
	}{{nil, true}, {none, true}, {error(nil), true}, {new(int), false}, {0, false}, {struct{}{}, false}, {[]int(nil), false}} {
		if got := Value(test.x); got != test.want {
			t.Errorf("Value(%#v) = %v", test.x, got)
		}
	}
}
