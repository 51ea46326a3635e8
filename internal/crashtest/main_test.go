package crashtest

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

// childVariable tells a copy of the test binary what to do with its first
// argument, instead of running tests.
const childVariable = "WARMCACHE_CRASHTEST_CHILD"

var children = map[string]func(argument string) error{
	"informers":     runInformers,
	"hold":          holdFile,
	"open":          openUnprivileged,
	"open-once":     openOnce,
	"die-in-delete": dieInDelete,
}

var (
	killsFlag  = flag.Int("kills", 0, "how often each TestKill kills its child; 200 by default, 100 in disk residency, a fifth with -short")
	faultsFlag = flag.Int("faults", 0, "how often TestDiskFault_ChurnAndClose lets the disk fail; 28 by default, 10 with -short")
	seedFlag   = flag.Uint64("seed", 0, "seed of the decisions of TestKill and TestDiskFault; random by default")
)

// patience is how long a test waits for what has to happen.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	child := children[os.Getenv(childVariable)]
	if child == nil {
		// What tests provoke is expected, and tests look at errors instead.
		klog.SetLogger(klog.New(nil))
		goleak.VerifyTestMain(m)
		return
	}
	if err := child(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
