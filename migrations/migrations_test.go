package migrations_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"github.com/warmcache/warmcache/migrations"
	"github.com/warmcache/warmcache/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeFile records what an upgrade does to it.
type fakeFile struct {
	version int
	log     []string
	// backupErr fails the backup.
	backupErr error
}

func (f *fakeFile) Version() (int, error) { return f.version, nil }

func (f *fakeFile) Backup(version int) error {
	f.log = append(f.log, fmt.Sprintf("backup of %d", version))
	return f.backupErr
}

func (f *fakeFile) Update(version int, fn func(*bbolt.Tx) error) error {
	if err := fn(nil); err != nil {
		return err
	}
	f.version = version
	f.log = append(f.log, fmt.Sprintf("now %d", version))
	return nil
}

// steps are registered in no particular order. Each runs hook, if it is set.
func steps(hook func(to int) error) migrations.Registry {
	var registry migrations.Registry
	for _, to := range []int{4, 2, 3} {
		registry = append(registry, migrations.Step{
			To: to, Reason: fmt.Sprint("reason ", to),
			Run: func(*bbolt.Tx) error {
				if hook == nil {
					return nil
				}
				return hook(to)
			},
		})
	}
	return registry
}

func TestRegistry_Plan(t *testing.T) {
	for _, c := range []struct {
		from, to int
		want     []int
		err      error
	}{
		{1, 4, []int{2, 3, 4}, nil},
		{2, 3, []int{3}, nil},
		{4, 4, nil, nil},
		{5, 4, nil, store.ErrNewerFormat},
		{1, 5, nil, migrations.ErrNoPath},
		{0, 2, nil, migrations.ErrNoPath},
	} {
		plan, err := steps(nil).Plan(c.from, c.to)
		var got []int
		for _, step := range plan {
			got = append(got, step.To)
		}
		if !slices.Equal(got, c.want) || !errors.Is(err, c.err) {
			t.Errorf("from %d to %d: got %v, %v, want %v, %v", c.from, c.to, got, err, c.want, c.err)
		}
	}
}

// TestSteps_ReachCurrent holds for every version of the library.
func TestSteps_ReachCurrent(t *testing.T) {
	plan, err := migrations.Steps.Plan(1, migrations.Current)
	if err != nil || len(plan) != migrations.Current-1 || len(migrations.Steps) != len(plan) {
		t.Errorf("%d steps of %d, %v", len(plan), len(migrations.Steps), err)
	}
	for _, step := range migrations.Steps {
		if step.Reason == "" {
			t.Errorf("step to %d has no reason", step.To)
		}
	}
}

func TestRunner_BacksUpAndRunsInOrder(t *testing.T) {
	file := &fakeFile{version: 2}
	var progress []string
	runner := migrations.Runner{Steps: steps(nil), Progress: func(step migrations.Step, n, of int) {
		progress = append(progress, fmt.Sprintf("%s, %d of %d", step.Reason, n, of))
	}}
	if err := runner.Run(file, 4); err != nil {
		t.Fatal(err)
	}
	if want := []string{"backup of 2", "now 3", "now 4"}; !slices.Equal(file.log, want) {
		t.Errorf("got %q, want %q", file.log, want)
	}
	if want := []string{"reason 3, 1 of 2", "reason 4, 2 of 2"}; !slices.Equal(progress, want) {
		t.Errorf("progress: got %q, want %q", progress, want)
	}
}

func TestRunner_CurrentFileIsLeftAlone(t *testing.T) {
	file := &fakeFile{version: 4}
	runner := migrations.Runner{Steps: steps(nil)}
	if err := runner.Run(file, 4); err != nil || len(file.log) > 0 {
		t.Errorf("%v, %q", err, file.log)
	}
}

func TestRunner_NewerFileIsLeftAlone(t *testing.T) {
	file := &fakeFile{version: 5}
	runner := migrations.Runner{Steps: steps(nil)}
	if err := runner.Run(file, 4); !errors.Is(err, store.ErrNewerFormat) || len(file.log) > 0 {
		t.Errorf("got %v, %q, want ErrNewerFormat", err, file.log)
	}
}

func TestRunner_NoBackupNoUpgrade(t *testing.T) {
	full := errors.New("no space")
	file := &fakeFile{version: 1, backupErr: full}
	runner := migrations.Runner{Steps: steps(nil)}
	if err := runner.Run(file, 4); !errors.Is(err, full) || file.version != 1 {
		t.Errorf("got %v, version %d", err, file.version)
	}
}

func TestRunner_ResumesBetweenSteps(t *testing.T) {
	crash := errors.New("crash")
	var ran []int
	crashing := true
	runner := migrations.Runner{Steps: steps(func(to int) error {
		if to == 3 && crashing {
			return crash
		}
		ran = append(ran, to)
		return nil
	})}
	file := &fakeFile{version: 1}
	if err := runner.Run(file, 4); !errors.Is(err, crash) || file.version != 2 {
		t.Fatalf("got %v, version %d, want the version of the last good step", err, file.version)
	}
	crashing = false
	if err := runner.Run(file, 4); err != nil || file.version != 4 {
		t.Fatalf("got %v, version %d", err, file.version)
	}
	if want := []int{2, 3, 4}; !slices.Equal(ran, want) {
		t.Errorf("ran %v, want each step once: %v", ran, want)
	}
}
