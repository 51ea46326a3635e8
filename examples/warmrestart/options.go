package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
)

const (
	// defaultObjects makes the difference plain and still fits on a laptop.
	defaultObjects = 30_000
	// maxObjects would take 5 GB of memory, in each of two processes.
	maxObjects = 1_000_000
)

// inputError says why the demo cannot run as it was asked to.
type inputError struct{ error }

// Unwrap returns the cause.
func (e inputError) Unwrap() error { return e.error }

// badInput returns an inputError.
func badInput(format string, args ...any) error { return inputError{fmt.Errorf(format, args...)} }

// options are what the user asked for.
type options struct {
	objects int
	// kubeconfig is a path; empty means the embedded server.
	kubeconfig string
	json       bool
	// verbosity is klog's, of the processes with the informers.
	verbosity int
}

const usage = `Usage: warmrestart [-objects N] [-kubeconfig PATH] [-o text|json] [-v LEVEL]

Measures what a restart of an informer costs: with client-go's, with ours and an
empty file, and with ours after a crash, while objects changed and went away.

  -objects N        objects to watch, 0 to %d (default %d)
  -kubeconfig PATH  use this cluster instead of an API server inside this
                    process. Needs permission to create namespaces; ConfigMaps
                    of 5 KB are created in a new one, which is removed at the end
  -o text|json      print a table (default) or one JSON object
  -v LEVEL          log level of the informers, on standard error; 2 shows the
                    phases of a start

Exit status: 0 if the warm starts resumed without a list and nothing was missed,
1 if not, 2 if the demo cannot run as it was asked to.
`

// parseOptions returns flag.ErrHelp if that is what the user wants.
func parseOptions(args []string) (options, error) {
	o := options{objects: defaultObjects}
	flags := flag.NewFlagSet("warmrestart", flag.ContinueOnError)
	// Package flag would print errors together with the usage. One line is
	// enough; the caller prints it.
	flags.SetOutput(io.Discard)
	flags.Func("objects", "", func(s string) (err error) {
		o.objects, err = parseObjects(s)
		return err
	})
	flags.Func("o", "", func(s string) error {
		o.json = s == "json"
		if s != "json" && s != "text" {
			return errors.New("want text or json")
		}
		return nil
	})
	flags.Func("kubeconfig", "", func(s string) error {
		o.kubeconfig = s
		if s == "" {
			// An unset variable, perhaps. It must not mean the default.
			return errors.New("want a path")
		}
		return nil
	})
	flags.IntVar(&o.verbosity, "v", 0, "")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return options{}, err
	case err != nil:
		return options{}, badInput("%w; see -h", err)
	case flags.NArg() > 0:
		return options{}, badInput("unexpected argument %q; see -h", flags.Arg(0))
	}
	return o, nil
}

func parseObjects(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > maxObjects {
		return 0, fmt.Errorf("want a number from 0 to %d", maxObjects)
	}
	return n, nil
}
