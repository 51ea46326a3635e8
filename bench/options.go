package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/warmcache/warmcache/bench/internal/subject"
)

const (
	defaultPods      = 100_000
	defaultSmallPods = 1_000_000
	// minPods lets each round of changes, 1%, change something.
	minPods = 100
	// maxPods take some 20 GB, in the server.
	maxPods = 5_000_000
)

// The suites, in the order in which they run.
const (
	suiteOperations = "operations"
	suiteCache      = "cache"
	suitePods       = "pods"
	suiteSmallPods  = "small-pods"
)

var allSuites = []string{suiteOperations, suiteCache, suitePods, suiteSmallPods}

// options are what the user asked for.
type options struct {
	pods, smallPods int
	subjects        []subject.Kind
	suites          []string
	json, check     bool
	// dir is where files are made; empty is the system's place for temporary ones.
	dir string
	// profiles is a directory; empty means none.
	profiles string
}

const usage = `Usage: bench [flags]

Measures informers and indexers, client-go's and warmcache's side by side.

  -pods N         pods of 5 KB in the suite pods (default %d)
  -small-pods N   pods of 600 bytes in the suite small-pods (default %d)
  -subjects LIST  of client-go, memory and disk (default all)
  -suites LIST    of operations, cache, pods and small-pods (default all)
  -o text|json    print tables (default) or one JSON object
  -check          exit with status 1 if an aim is missed
  -dir DIR        make the files below DIR and not where temporary files go
  -profiles DIR   write a profile of the heap there after each phase

Progress goes to standard error. With the defaults it takes about 20 minutes, 8 GB
of memory and 4 GB of disk.
`

// parseOptions returns flag.ErrHelp if that is what the user wants.
func parseOptions(args []string) (options, error) {
	o := options{pods: defaultPods, smallPods: defaultSmallPods, subjects: subject.Kinds, suites: allSuites}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	// Package flag would print errors together with the usage. One line is
	// enough; the caller prints it.
	flags.SetOutput(io.Discard)
	number := func(n *int) func(string) error {
		return func(s string) (err error) {
			*n, err = parsePods(s)
			return err
		}
	}
	flags.Func("pods", "", number(&o.pods))
	flags.Func("small-pods", "", number(&o.smallPods))
	flags.Func("subjects", "", func(s string) (err error) {
		o.subjects, err = subject.ParseKinds(s)
		return err
	})
	flags.Func("suites", "", func(s string) (err error) {
		o.suites, err = parseSuites(s)
		return err
	})
	flags.Func("o", "", func(s string) error {
		o.json = s == "json"
		if s != "json" && s != "text" {
			return errors.New("want text or json")
		}
		return nil
	})
	flags.BoolVar(&o.check, "check", false, "")
	flags.StringVar(&o.dir, "dir", "", "")
	flags.StringVar(&o.profiles, "profiles", "", "")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return o, err
	} else if err != nil {
		return o, fmt.Errorf("%w; see -h", err)
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; see -h", flags.Arg(0))
	}
	return o, nil
}

func parsePods(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < minPods || n > maxPods {
		return 0, fmt.Errorf("want a number from %d to %d", minPods, maxPods)
	}
	return n, nil
}

func parseSuites(s string) ([]string, error) {
	suites := strings.Split(s, ",")
	for _, name := range suites {
		if !slices.Contains(allSuites, name) {
			return nil, fmt.Errorf("no such suite: %q; there are %v", name, allSuites)
		}
	}
	return suites, nil
}
