//go:build linux

package powercut

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

// childVariable makes a copy of the test binary run the workload that its first
// argument describes, instead of tests.
const childVariable = "WARMCACHE_POWERCUT_CHILD"

// requireVariable, with any value, makes what needs strace fail where it cannot
// run. See the package comment of crashtest.
const requireVariable = "WARMCACHE_REQUIRE_FAULTS"

var (
	statesFlag = flag.Int("states", 0, "how many states of the disk TestPowerCut opens; 600 by default, 150 with -short")
	seedFlag   = flag.Uint64("seed", 0, "seed of the decisions of TestPowerCut; random by default")
	keepFlag   = flag.String("keep", "", "directory for the traces and the states that fail")
)

func TestMain(m *testing.M) {
	// What a power cut leaves is expected, and tests look at errors instead.
	klog.SetLogger(klog.New(nil))
	if os.Getenv(childVariable) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	if err := runChild(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
