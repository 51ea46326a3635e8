package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/warmcache/warmcache/migrations"
)

// upgrade brings the file to the current format, which needs a file that was verified.
// After an error it is closed.
func (db *DB) upgrade(f *openFile) error {
	if f.version == migrations.Current {
		return nil
	}
	err := f.checkTrees(func() error { return nil })
	if err == nil {
		err = db.openBolt(f)
	}
	if err == nil {
		err = db.runUpgrade(f)
	}
	if err != nil {
		return errors.Join(err, f.letGo())
	}
	f.end(nil)
	return nil
}

func (db *DB) runUpgrade(f *openFile) error {
	runner := migrations.Runner{
		Steps: migrations.Steps,
		Progress: func(step migrations.Step, n, of int) {
			db.log.Info("Upgrading the cache file", "path", db.path, "format", step.To, "reason", step.Reason, "step", n, "of", of)
		},
	}
	_, err := protect(func() error { return runner.Run(upgradeFile{f.bolt, db.path}, migrations.Current) })
	return err
}

// upgradeFile implements migrations.File.
type upgradeFile struct {
	bolt *bbolt.DB
	path string
}

func (f upgradeFile) Version() (version int, err error) {
	err = f.bolt.View(func(tx *bbolt.Tx) error {
		version, err = formatIn(boltSnapshot{tx})
		return err
	})
	return version, err
}

func (f upgradeFile) Backup(version int) error {
	name := fmt.Sprint(f.path, backupInfix, version)
	temporary, err := os.CreateTemp(filepath.Dir(f.path), filepath.Base(f.path)+createInfix)
	if err != nil {
		return err
	}
	err = f.bolt.View(func(tx *bbolt.Tx) error {
		_, err := tx.WriteTo(temporary)
		return err
	})
	if err = errors.Join(err, temporary.Sync(), temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return syncDir(filepath.Dir(name))
}

func (f upgradeFile) Update(version int, fn func(*bbolt.Tx) error) error {
	return f.bolt.Update(func(tx *bbolt.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return tx.Bucket(metaBucket).Put(formatKey, encodeFormat(version))
	})
}
