// Command buildservers builds the servers that the tests use, so that the first
// test does not spend its time limit on that, and prints where they are.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/warmcache/warmcache/e2e/controlplane"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	bin, err := controlplane.Build(ctx, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1) //nolint:gocritic // Nothing is left to clean up.
	}
	fmt.Println(bin.Etcd)
	fmt.Println(bin.APIServer)
}
