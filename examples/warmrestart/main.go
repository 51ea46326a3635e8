// Command warmrestart shows what a restart costs, with client-go's informers and
// with ours.
//
// It fills an API server with objects and runs informers in processes of their
// own: client-go's, then ours with an empty file. The latter is killed without
// warning once its file is complete. Objects are changed, added and deleted,
// and two more processes start from what the killed one left: one that is in
// sync when it has proven to be up to date (informer.Confirmed), and one that is
// when its watch has been accepted (informer.Resumed).
//
// # Processes
//
//	parent ── embedded API server, or a client of a real one
//	   │  starts and kills
//	   ├── client-go, cold
//	   ├── warmcache, cold ─────────────► file ── copied ──► file
//	   ├── warmcache, warm, Confirmed ◄────┘                  │
//	   └── warmcache, warm, Resumed ◄─────────────────────────┘
//
// A child is this program again, told by an environment variable what to do. It
// says one thing, a JSON object on its standard output, when it has nothing left
// to do: its handler knows what its cache holds, the cache is proven to be
// current, and the file is complete, which informer.StatusOf tells (PersistedRV
// has reached RV and nothing is pending). The parent kills every child with
// SIGKILL once it has said so, and a child whose parent dies ends itself.
//
// # What is compared
//
// All children do the same with the same factory interface; nothing but the
// factory differs. Time begins before the process does and ends when the
// handler's registration has synced. Bytes and lists are counted in the client's
// transport, bytes on the wire. The heap is sampled every few milliseconds,
// until the child reports.
//
// Missed is every object that a handler with a memory longer than its process,
// or the cache, does not have as a fresh list of the server has it, and every
// delete while no process ran that was not delivered; see mistakes.
//
// # Exit status
//
// The exit status is 0 if the two resumed without a list and their handlers
// missed nothing, 1 if not or if something failed, 2 if the demo cannot run as
// it was asked to, and 130 after Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"k8s.io/klog/v2"
)

// The exit statuses. The last is what shells report for SIGINT.
const (
	exitOK          = 0
	exitFailed      = 1
	exitBadInput    = 2
	exitInterrupted = 130
)

func main() {
	if asChild() {
		os.Exit(childMain(os.Stdin, os.Stdout))
	}
	// What client-go logs in this process it returns as errors, too.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr, runProcess))
}

// run is main without the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, children processRunner) int {
	o, err := parseOptions(args)
	if errors.Is(err, flag.ErrHelp) {
		_, err = fmt.Fprintf(stdout, usage, maxObjects, defaultObjects)
	} else if err == nil {
		err = newDemo(o, stderr, children).run(ctx, stdout)
	}
	if err == nil {
		return exitOK
	}
	_, _ = fmt.Fprintln(stderr, "warmrestart:", oneLine(err))
	_, badInput := errors.AsType[inputError](err)
	switch {
	case ctx.Err() != nil:
		return exitInterrupted
	case badInput:
		return exitBadInput
	}
	return exitFailed
}

// oneLine joins the lines of an error, of which joined errors and those of
// credential plugins have several.
func oneLine(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	return strings.Join(lines, "; ")
}
