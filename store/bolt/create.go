package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"

	"github.com/warmcache/warmcache/migrations"
	"github.com/warmcache/warmcache/store"
)

const (
	fileMode = 0o600
	dirMode  = 0o700

	createInfix = ".new-"
)

// create makes an empty database at path, whole or not at all: in a temporary
// file that is renamed when it is durable. A crash while bbolt initialises a
// file in place leaves one that nothing can open.
func create(path string, now time.Time) error {
	if err := removeLeftovers(path); err != nil {
		return err
	}
	syncParents(filepath.Dir(path))
	temporary, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+createInfix)
	if err != nil {
		return fmt.Errorf("create cache file %s: %w", path, err)
	}
	name := temporary.Name()
	err = temporary.Close()
	if err == nil {
		err = initialise(name, now)
	}
	if err == nil {
		err = os.Rename(name, path)
	}
	if err != nil {
		return fmt.Errorf("create cache file %s: %w", path, errors.Join(err, os.Remove(name)))
	}
	return syncDir(filepath.Dir(path))
}

// syncParents makes the directories durable that Open may have created: a power
// cut that takes the directory of a file takes the file. Those that may not be
// opened were not created by it.
func syncParents(dir string) {
	for parent := filepath.Dir(dir); parent != dir; parent = filepath.Dir(dir) {
		if syncDir(parent) != nil {
			return
		}
		dir = parent
	}
}

// removeLeftovers removes what a crash while creating has left.
func removeLeftovers(path string) error {
	leftovers, err := siblings(path, createInfix)
	if err != nil {
		return err
	}
	for _, name := range leftovers {
		if err := os.Remove(name); err != nil {
			return fmt.Errorf("remove a leftover: %w", err)
		}
	}
	return nil
}

// initialise writes a database to the empty file of the given name. bbolt syncs
// it with the commit.
func initialise(name string, now time.Time) error {
	options := boltOptions()
	bolt, err := bbolt.Open(name, fileMode, options)
	if err != nil {
		return err
	}
	err = bolt.Update(func(tx *bbolt.Tx) error {
		meta, err := createBucket(tx, metaBucket)
		if err != nil {
			return err
		}
		return errors.Join(
			meta.Put(formatKey, encodeFormat(migrations.Current)),
			meta.Put(createdKey, store.Seal(now.UTC().AppendFormat(nil, time.RFC3339))),
			meta.Put(writerKey, store.Seal([]byte(writerVersion()))))
	})
	return errors.Join(err, bolt.Close())
}

// boltOptions are the settings that every bbolt handle shares. The list of free
// pages is synced: to rebuild it takes bbolt 20 s per GB at the next open.
func boltOptions() *bbolt.Options {
	return &bbolt.Options{
		// Open holds the lock already; without a timeout bbolt waits for ever.
		Timeout:      lockPoll,
		PageSize:     pageSize,
		FreelistType: bbolt.FreelistMapType,
		NoStatistics: true,
	}
}

// writerVersion is the version of this module in the running program.
func writerVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	const module = "github.com/warmcache/warmcache"
	for _, dependency := range append(info.Deps, &info.Main) {
		if dependency.Path == module {
			return dependency.Version
		}
	}
	return "unknown"
}
