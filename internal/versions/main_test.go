package versions

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

// runTests runs the tests with a directory for what they build.
func runTests(m *testing.M) int {
	var err error
	if built, err = os.MkdirTemp("", "versions"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(built) }()
	return m.Run()
}
