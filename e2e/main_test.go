package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/warmcache/warmcache/e2e/controlplane"
)

// plane is the control plane that all tests share. They run one after the other.
var plane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	if config := os.Getenv(childEnv); config != "" {
		os.Exit(runChild(config))
	}
	if config := os.Getenv(managersEnv); config != "" {
		os.Exit(runManagers(config))
	}
	if config := os.Getenv(measuredEnv); config != "" {
		os.Exit(runMeasured(config))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if plane, err = controlplane.Start(context.Background(), controlplane.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := plane.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Only now: clients keep connections until the server closes them.
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
