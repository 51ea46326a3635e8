package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// demo is one run of the program.
type demo struct {
	options  options
	progress *progress
	children processRunner

	cluster *cluster
	// dir holds the files of the informers.
	dir string
}

func newDemo(o options, stderr io.Writer, children processRunner) *demo {
	return &demo{options: o, progress: newProgress(stderr), children: children}
}

// run runs the demo, prints its result to stdout and removes everything it has
// made, also after an error. The result is printed before a verdict that is an
// error.
func (d *demo) run(ctx context.Context, stdout io.Writer) (err error) {
	defer d.progress.done()
	if d.dir, err = os.MkdirTemp("", "warmrestart-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	result, err := d.inCluster(ctx)
	if err != nil {
		return err
	}
	d.progress.done()
	if d.options.json {
		err = result.writeJSON(stdout)
	} else {
		err = result.writeTable(stdout)
	}
	return errors.Join(err, result.verdict())
}

// inCluster measures between the opening and the closing of the cluster.
func (d *demo) inCluster(ctx context.Context) (result *report, err error) {
	d.progress.hint("connecting to the API server")
	if d.cluster, err = openCluster(ctx, d.options.kubeconfig); err != nil {
		return nil, err
	}
	result, err = d.measure(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx) // whatever else it led to
	}
	d.progress.step("removing what was created")
	return result, errors.Join(err, d.cluster.close())
}

// measure is the demo proper.
func (d *demo) measure(ctx context.Context) (*report, error) {
	n := d.options.objects
	d.progress.step("creating %d %s in namespace %s", n, d.cluster.kind.gvr.Resource, d.cluster.namespace)
	if err := d.cluster.create(ctx, n, d.progress); err != nil {
		return nil, err
	}
	before, err := d.cluster.list(ctx)
	if err != nil {
		return nil, err
	}
	result := &report{Server: d.cluster.name, Objects: len(before)}
	clientgo, err := d.coldStart(ctx, "client-go, cold", childSpec{}, before)
	if err != nil {
		return nil, err
	}
	file, copied := filepath.Join(d.dir, "killed", "cache.db"), filepath.Join(d.dir, "copied", "cache.db")
	cold, err := d.coldStart(ctx, "warmcache, cold, to be killed", childSpec{File: file}, before)
	if err != nil {
		return nil, err
	}
	result.ClientGo, result.Cold = clientgo.measured, cold.measured
	if err := os.CopyFS(filepath.Dir(copied), os.DirFS(filepath.Dir(file))); err != nil {
		return nil, fmt.Errorf("copying what the killed process left: %w", err)
	}

	d.progress.step("killed at resourceVersion %s; changing, adding and deleting objects", cold.PersistedRV)
	deleted, err := d.cluster.change(ctx, planFor(n), before, d.progress)
	if err != nil {
		return nil, err
	}
	after, err := d.cluster.list(ctx)
	if err != nil {
		return nil, err
	}
	judge := func(r *childReport) warmMeasured {
		return warmMeasured{
			measured:         r.measured,
			Outcome:          r.Outcome,
			DeletedWhileDown: len(deleted),
			Missed:           len(mistakes(after, r, cold.Known, deleted)),
		}
	}
	confirmed, err := d.start(ctx, "warmcache, warm, Confirmed", childSpec{File: file})
	if err != nil {
		return nil, err
	}
	resumed, err := d.start(ctx, "warmcache, warm, Resumed", childSpec{File: copied, Resumed: true})
	if err != nil {
		return nil, err
	}
	result.Warm, result.WarmResumed = judge(confirmed), judge(resumed)
	return result, nil
}

// coldStart is start for a process that begins with nothing, and so must know
// exactly what the server has.
func (d *demo) coldStart(ctx context.Context, what string, spec childSpec, want state) (*childReport, error) {
	r, err := d.start(ctx, what, spec)
	if err != nil {
		return nil, err
	}
	if wrong := mistakes(want, r, nil, nil); len(wrong) > 0 {
		return nil, fmt.Errorf("%s: has %d objects wrong; was something else writing to the namespace?", what, len(wrong))
	}
	return r, nil
}

// start runs one process.
func (d *demo) start(ctx context.Context, what string, spec childSpec) (*childReport, error) {
	spec.Host, spec.Kubeconfig, spec.Namespace = d.cluster.host, d.cluster.kubeconfig, d.cluster.namespace
	spec.Verbosity = d.options.verbosity
	d.progress.step("%s", what)
	stop := d.tick(what)
	defer stop()
	r, err := d.children(ctx, spec, d.progress)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return r, nil
}

// tick shows that time passes, until stop is called.
func (d *demo) tick(what string) (stop func()) {
	done, start := make(chan struct{}), time.Now()
	go func() {
		ticker := time.NewTicker(redraw)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				d.progress.detail("%s: %.1f s", what, time.Since(start).Seconds())
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}
