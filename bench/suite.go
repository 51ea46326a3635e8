package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/warmcache/warmcache/bench/internal/cluster"
	"github.com/warmcache/warmcache/bench/internal/process"
	"github.com/warmcache/warmcache/bench/internal/report"
	"github.com/warmcache/warmcache/bench/internal/subject"
)

// course is a subject on its way through the phases of a suite.
type course struct {
	ctx     context.Context
	cluster *cluster.Cluster
	kind    subject.Kind
	// dir is where it keeps its files.
	dir string
	// profiles is the beginning of their names; empty for none.
	profiles string
	log      *progress
	result   *report.Suite
}

// suite sends each subject through the phases, with this many pods.
func (b *bench) suite(ctx context.Context, shape cluster.Shape, pods int, phases func(*course) error) error {
	b.log.step("filling a server with %d %s pods", pods, shape.Name)
	c, err := cluster.New(shape, pods, func(done int) {
		if done%(1+pods/10) == 0 {
			b.log.step("%d", done)
		}
	})
	if err != nil {
		return err
	}
	result := &report.Suite{Shape: shape.Name, Pods: pods}
	b.result.Suites = append(b.result.Suites, result)
	for _, kind := range b.options.subjects {
		course := &course{ctx: ctx, cluster: c, kind: kind, log: b.log, result: result}
		course.dir = filepath.Join(b.dir, shape.Name+"-"+string(kind))
		if b.options.profiles != "" {
			course.profiles = filepath.Join(b.options.profiles, shape.Name+"-"+string(kind))
		}
		err := phases(course)
		// Files are large, and the next subject has its own.
		if err = errors.Join(err, os.RemoveAll(course.dir)); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", kind, err), c.Close())
		}
	}
	return c.Close()
}

// start says how a process of a course differs from others.
type start struct {
	// file is its name; processes of the same go on from each other.
	file string
	// paged has it list in pages.
	paged bool
	// readsOnly has it without a handler, synced once its watch goes on.
	readsOnly bool
}

// with runs a process and what is to be done with it.
func (c *course) with(s start, do func(*process.Process) error) error {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	p, err := process.Start(c.ctx, subject.Spec{
		Kind: c.kind, Host: c.cluster.URL(), File: filepath.Join(c.dir, s.file),
		Resumed: s.readsOnly, NoHandler: s.readsOnly,
	}, process.Options{Paged: s.paged, Profile: c.profiles, Log: c.log})
	if err != nil {
		return err
	}
	return errors.Join(do(p), p.Stop())
}

// run is with for a process that does nothing but start.
func (c *course) run(phase string, lists int64, s start) error {
	return c.with(s, func(p *process.Process) error { return c.sync(phase, lists, p) })
}

// sync measures a start. What makes another number of lists is another measurement,
// except that client-go always makes one.
func (c *course) sync(phase string, lists int64, p *process.Process) error {
	r, err := p.Sync(phase)
	if c.kind == subject.ClientGo {
		lists = 1
	}
	return c.record(phase, r, err, lists, c.cluster.Pods())
}

// record keeps a report, or says in which phase it is not what it should be.
func (c *course) record(phase string, r process.Report, err error, lists int64, objects int) error {
	switch {
	case err != nil:
	case r.Lists != lists:
		err = fmt.Errorf("%d lists were made, not %d", r.Lists, lists)
	case r.Objects != objects:
		err = fmt.Errorf("there are %d objects, not %d", r.Objects, objects)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", phase, err)
	}
	c.log.step("%s: %s took %.2f s, RssAnon up to %.0f MB", c.kind, phase, r.Seconds, float64(r.Peak.Anon)/1e6)
	c.result.Runs = append(c.result.Runs, report.Run{Phase: phase, Subject: string(c.kind), Report: r})
	return nil
}
