// Package migrations upgrades the on-disk format of a cache file.
//
// A format version is a promise about buckets, keys and encodings; docs/format.md
// describes the current one. Every change of any of them gets the next number,
// a reason in the list below, and a Step with a file and a test of its own. Steps
// and numbers are never removed or reused.
//
//	1  the first format
//
// Upgrades run when a file is opened: a backup copy first, then each step in a
// transaction of its own that also writes the new version. A crash between two
// steps leaves a file of the version in between, and the next run goes on from
// there. There are no downgrades; a file of a newer version gives
// store.ErrNewerFormat.
package migrations

import (
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/warmcache/warmcache/store"
)

// Current is the format version that this version of the library writes.
const Current = 1

// Steps are all steps of the library. There are none yet.
var Steps Registry

// Step upgrades a file from version To-1 to version To.
type Step struct {
	To int
	// Reason says in a few words what changes, for logs.
	Reason string
	// Run makes the change. It does not write the version.
	Run func(tx *bbolt.Tx) error
}

// Registry is a set of steps in any order.
type Registry []Step

// ErrNoPath means that a step is missing: the file is too old for this version
// of the library.
var ErrNoPath = errors.New("no upgrade path")

// Plan returns the steps from one version to another, in order. It returns an
// error wrapping store.ErrNewerFormat if from is beyond to, and ErrNoPath if a
// step is missing.
func (r Registry) Plan(from, to int) ([]Step, error) {
	if from > to {
		return nil, fmt.Errorf("%w: format %d, want at most %d", store.ErrNewerFormat, from, to)
	}
	var plan []Step
	for version := from + 1; version <= to; version++ {
		step, err := r.step(version)
		if err != nil {
			return nil, err
		}
		plan = append(plan, step)
	}
	return plan, nil
}

func (r Registry) step(to int) (Step, error) {
	for _, step := range r {
		if step.To == to {
			return step, nil
		}
	}
	return Step{}, fmt.Errorf("%w: nothing upgrades to format %d", ErrNoPath, to)
}

// File is what an upgrade needs of a file that is open for writing.
type File interface {
	// Version returns the format version in the file.
	Version() (int, error)
	// Backup makes a durable copy of the file, which has the given version. It
	// replaces a copy that an earlier run has left.
	Backup(version int) error
	// Update runs fn and writes the version in one transaction.
	Update(version int, fn func(tx *bbolt.Tx) error) error
}

// Runner upgrades files.
type Runner struct {
	// Steps to choose from.
	Steps Registry
	// Progress, if not nil, is called before each step with its place in the
	// plan, counting from 1.
	Progress func(step Step, n, of int)
}

// Run upgrades the file to the given version. It changes nothing, and makes no
// backup, if the file has that version already. After an error the file has the
// version of the last step that succeeded.
func (r *Runner) Run(file File, to int) error {
	from, err := file.Version()
	if err != nil {
		return err
	}
	plan, err := r.Steps.Plan(from, to)
	if err != nil || len(plan) == 0 {
		return err
	}
	if err := file.Backup(from); err != nil {
		return fmt.Errorf("back up before upgrading from format %d: %w", from, err)
	}
	for i, step := range plan {
		if r.Progress != nil {
			r.Progress(step, i+1, len(plan))
		}
		if err := file.Update(step.To, step.Run); err != nil {
			return fmt.Errorf("upgrade to format %d: %w", step.To, err)
		}
	}
	return nil
}
