// Command bench measures what informers cost, client-go's and ours side by side.
//
//	go run . [-pods N] [-small-pods N] [-subjects LIST] [-suites LIST] [-check] ...
//
// # Suites
//
//   - pods: 100,000 pods of 5 KB go through cold starts, updates, relists and
//     restarts;
//   - small-pods: a million pods of 600 bytes in one file;
//   - operations: single reads of the indexer, against those of client-go's store
//     and against decoding;
//   - cache: how often the cache of decoded objects has what is read.
//
// # Processes
//
// The API server is in this process. Each subject runs in one of its own, which is
// this program again, so that its memory is the informer's alone; see package
// process. Both share the machine: seconds depend on how fast the server is, and are
// only good for comparison. Bytes do not.
//
// All subjects of a suite go through the same phases, one subject after the other.
// What is compared is a phase of a subject with the same phase of client-go. In one
// that begins with a file, client-go begins with nothing, as it always does.
//
// # Exit status
//
// 0 if everything was measured, 1 if not, or if an aim is missed and -check was
// given, 2 if the arguments are wrong, and 130 after Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/warmcache/warmcache/bench/internal/process"
)

// The exit statuses. The last is what shells report for SIGINT.
const (
	exitOK          = 0
	exitFailed      = 1
	exitBadInput    = 2
	exitInterrupted = 130
)

func main() {
	if process.IsChild() {
		os.Exit(process.Child(os.Stdin, os.Stdout))
	}
	// What client-go logs in this process it returns as errors, too.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseOptions(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(stdout, usage, defaultPods, defaultSmallPods)
		return exitOK
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitBadInput
	}
	err = newBench(o, stderr).run(ctx, stdout)
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "bench: interrupted")
		return exitInterrupted
	}
	fmt.Fprintln(stderr, "bench:", err)
	return exitFailed
}
