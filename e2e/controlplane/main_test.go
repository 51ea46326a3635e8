package controlplane

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// helperEnv makes the test binary play a server instead of running tests.
const helperEnv = "WARMCACHE_CONTROLPLANE_HELPER"

var sharedOnce sync.Once

// sharedPlane is for tests that stop nothing. Use shared to get it.
var sharedPlane struct {
	*ControlPlane
	err error
}

func TestMain(m *testing.M) {
	if role := os.Getenv(helperEnv); role != "" {
		os.Exit(runHelper(role))
	}
	code := m.Run()
	if cp := sharedPlane.ControlPlane; cp != nil {
		if err := cp.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func shared(t *testing.T) *ControlPlane {
	t.Helper()
	sharedOnce.Do(func() {
		sharedPlane.ControlPlane, sharedPlane.err = Start(context.Background(), Options{})
	})
	if sharedPlane.err != nil {
		t.Fatal(sharedPlane.err)
	}
	return sharedPlane.ControlPlane
}

func start(t *testing.T, opts Options) *ControlPlane {
	t.Helper()
	cp, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cp
}

// runHelper plays the role that a test gave its child.
func runHelper(role string) int {
	switch role {
	case "parent": // Starts a child that waits forever, says so, and waits.
		err := os.Setenv(helperEnv, "wait")
		if err == nil {
			_, err = startProcess(os.Args[0], nil, os.Stdout)
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("started")
		select {}
	case "wait":
		select {}
	case "listen": // Listens on the address given, as a server does.
		if _, err := net.Listen("tcp", os.Args[1]); err != nil {
			fmt.Println(err)
			return 1
		}
		select {}
	}
	fmt.Println("unknown role", role)
	return 1
}

func gone(pid int) bool {
	return syscall.Kill(pid, 0) == syscall.ESRCH
}
