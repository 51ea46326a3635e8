package damage

import "testing"

// cases is how many cases a campaign has, which says how many it wants by default.
func cases(bounded int) int {
	switch {
	case *casesFlag > 0:
		return *casesFlag
	case testing.Short():
		return bounded / 5
	}
	return bounded
}

// TestFile uses damaged files.
func TestFile(t *testing.T) { run(t, "file", cases(1500)) }
