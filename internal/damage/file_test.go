package damage

import "testing"

// cases is how many damaged files there are. The other campaigns have their part
// of them, so that one number repeats them all.
func cases() int {
	switch {
	case *casesFlag > 0:
		return *casesFlag
	case testing.Short():
		return 300
	}
	return 1500
}

// TestFile uses damaged files.
func TestFile(t *testing.T) { run(t, "file", cases()) }
