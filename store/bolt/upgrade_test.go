package bolt

import (
	"errors"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/warmcache/warmcache/migrations"
)

// fakeStep upgrades to a format that does not exist.
func fakeStep(to int, err error) migrations.Step {
	return migrations.Step{To: to, Run: func(tx *bbolt.Tx) error {
		return errors.Join(tx.Bucket(metaBucket).Put([]byte{byte(to)}, []byte("upgraded")), err)
	}}
}

func checkFormat(t *testing.T, db *bbolt.DB, want int, upgraded bool) {
	t.Helper()
	err := db.View(func(tx *bbolt.Tx) error {
		if got, err := formatIn(boltSnapshot{tx}); err != nil || got != want {
			t.Errorf("format %d, %v, want %d", got, err, want)
		}
		if got := tx.Bucket(metaBucket).Get([]byte{2}) != nil; got != upgraded {
			t.Errorf("upgraded: %v, want %v", got, upgraded)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestUpgradeFile_Run upgrades a real file: the second of two steps fails, which
// leaves what the first has done, and a copy of what was before.
func TestUpgradeFile_Run(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	db, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	runner := migrations.Runner{Steps: migrations.Registry{fakeStep(2, nil), fakeStep(3, broken)}}
	f := db.current().opened.Load()
	if err := f.awaitTrusted(t.Context()); err != nil {
		t.Fatal(err)
	}
	bolt := f.bolt
	for range 2 {
		if err := runner.Run(upgradeFile{bolt, path}, 3); !errors.Is(err, broken) {
			t.Fatalf("got %v, want the error of the step", err)
		}
		checkFormat(t, bolt, 2, true)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for version, upgraded := range map[int]bool{1: false, 2: true} {
		name := path + ".backup-v" + string(rune('0'+version))
		backup, err := bbolt.Open(name, fileMode, boltOptions())
		if err != nil {
			t.Fatal(err)
		}
		checkFormat(t, backup, version, upgraded)
		if err := backup.Close(); err != nil {
			t.Error(err)
		}
	}
	leftovers, err := siblings(path, createInfix)
	if err != nil || len(leftovers) > 0 {
		t.Errorf("left behind: %q, %v", leftovers, err)
	}
}
