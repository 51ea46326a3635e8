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
	// dir holds the files of the informers: killed is that of the process that
	// was, copied what it looked like then.
	dir, killed, copied string

	// before and after are what the server had when the process was killed, and
	// when all changes had been made; deleted is what was deleted in between.
	before, after state
	deleted       []instance
	// known is what the handler of the killed process knew.
	known  state
	result report
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
	d.killed, d.copied = filepath.Join(d.dir, "killed", "cache.db"), filepath.Join(d.dir, "copied", "cache.db")
	if err := d.inCluster(ctx); err != nil {
		return err
	}
	d.progress.done()
	if d.options.json {
		err = d.result.writeJSON(stdout)
	} else {
		err = d.result.writeTable(stdout)
	}
	return errors.Join(err, d.result.verdict())
}

// inCluster measures between the opening and the closing of the cluster.
func (d *demo) inCluster(ctx context.Context) (err error) {
	d.progress.hint("connecting to the API server")
	if d.cluster, err = openCluster(ctx, d.options.kubeconfig); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{d.fill, d.startCold, d.changeWhileDown, d.startWarm} {
		if err = step(ctx); err != nil {
			break
		}
	}
	if ctx.Err() != nil {
		// Not what it led to, such as a request that was cancelled.
		err = context.Cause(ctx)
	}
	d.progress.step("removing what was created; interrupt again to leave it")
	return errors.Join(err, d.cluster.close())
}

// fill creates the objects.
func (d *demo) fill(ctx context.Context) (err error) {
	n, c := d.options.objects, d.cluster
	d.progress.step("creating %d %s in namespace %s", n, c.kind.gvr.Resource, c.namespace)
	if err := c.create(ctx, n, d.progress); err != nil {
		return err
	}
	d.before, err = c.list(ctx)
	d.result.Server, d.result.Objects = c.name, len(d.before)
	return err
}

// startCold measures the two starts that list, and keeps what the second left.
func (d *demo) startCold(ctx context.Context) error {
	clientgo, err := d.coldStart(ctx, "client-go, cold", childSpec{})
	if err != nil {
		return err
	}
	cold, err := d.coldStart(ctx, "warmcache, cold, to be killed", childSpec{File: d.killed})
	if err != nil {
		return err
	}
	d.result.ClientGo, d.result.Cold, d.known = clientgo.measured, cold.measured, cold.Known
	d.progress.step("killed; its file is complete up to resourceVersion %s", cold.PersistedRV)
	// The lock file, too, as the killed process left it.
	if err := copyPrivate(filepath.Dir(d.copied), filepath.Dir(d.killed)); err != nil {
		return fmt.Errorf("copying what the killed process left: %w", err)
	}
	return nil
}

// copyPrivate copies a directory of files, which os.CopyFS makes readable for
// everybody.
func copyPrivate(to, from string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	files, err := os.ReadDir(to)
	for _, f := range files {
		err = errors.Join(err, os.Chmod(filepath.Join(to, f.Name()), 0o600))
	}
	return errors.Join(err, os.Chmod(to, 0o700))
}

// changeWhileDown makes the changes that the warm starts have to find out about.
func (d *demo) changeWhileDown(ctx context.Context) (err error) {
	d.progress.step("changing, adding and deleting objects")
	if d.deleted, err = d.cluster.change(ctx, planFor(d.options.objects), d.before, d.progress); err != nil {
		return err
	}
	d.after, err = d.cluster.list(ctx)
	return err
}

// startWarm measures the two starts from what the killed process left. Each has
// its own copy: the first would otherwise leave the second nothing to find out.
func (d *demo) startWarm(ctx context.Context) (err error) {
	d.result.Warm, err = d.warmStart(ctx, "warmcache, warm, Confirmed", childSpec{File: d.killed})
	if err != nil {
		return err
	}
	d.result.WarmResumed, err = d.warmStart(ctx, "warmcache, warm, Resumed", childSpec{File: d.copied, Resumed: true})
	return err
}

// coldStart is start for a process that begins with nothing, and so must know
// exactly what the server has.
func (d *demo) coldStart(ctx context.Context, what string, spec childSpec) (*childReport, error) {
	r, err := d.start(ctx, what, spec)
	if err != nil {
		return nil, err
	}
	if wrong := mistakes(d.before, r, nil, nil); len(wrong) > 0 {
		return nil, fmt.Errorf("%s: has %d objects wrong; was something else writing to the namespace?", what, len(wrong))
	}
	return r, nil
}

// warmStart is start for a process that continues what the killed one did.
func (d *demo) warmStart(ctx context.Context, what string, spec childSpec) (warmMeasured, error) {
	r, err := d.start(ctx, what, spec)
	if err != nil {
		return warmMeasured{}, err
	}
	return warmMeasured{
		measured:         r.measured,
		Outcome:          r.Outcome,
		DeletedWhileDown: len(d.deleted),
		Missed:           len(mistakes(d.after, r, d.known, d.deleted)),
	}, nil
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
