package damage

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

// childVariable makes a copy of the test binary a child.
const childVariable = "WARMCACHE_DAMAGE_CHILD"

var (
	casesFlag   = flag.Int("cases", 0, "how many damaged files TestFile uses, and TestOwner and TestLive their part of; 1500 by default, 300 with -short")
	seedFlag    = flag.Uint64("seed", 0, "seed of the cases; random by default")
	caseFlag    = flag.Int("case", -1, "run only this case")
	samplesFlag = flag.String("samples", "", "directory with the samples that a failed run has kept")
)

// patience is how long a case may take. It takes milliseconds.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	// What damage provokes is expected, and tests look at errors instead.
	klog.SetLogger(klog.New(nil))
	if os.Getenv(childVariable) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	if err := serve(os.Args[1], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
