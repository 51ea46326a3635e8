package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// maxStrikes is how many times in a row an Open may begin and not end. One
	// would condemn files after a plain kill, which can hit at any time.
	maxStrikes = 3
	// maxQuarantined is how many quarantined files are kept next to a database;
	// the oldest are removed.
	maxQuarantined = 3

	quarantineInfix = ".quarantined-"
	// quarantineTime sorts as text. Milliseconds keep two in a row apart.
	quarantineTime = "20060102T150405.000Z"
)

// Reasons in the names of quarantined files.
const (
	reasonDamaged = "damaged"
	reasonForeign = "foreign"
	reasonNewer   = "newer-format"
	reasonStrikes = "crashed-while-opening"
	reasonUpgrade = "upgrade-failed"
	// reasonUnreadable is for files that could not be read several times.
	reasonUnreadable = "unreadable"
	// reasonReplaced is for what took the place of an open file.
	reasonReplaced = "replaced"
)

// quarantine moves the database at path aside, unharmed.
func (db *DB) quarantine(reason string, cause error) error {
	target, err := quarantineName(db.path, reason, db.now())
	if err != nil {
		return err
	}
	if err := os.Rename(db.path, target); err != nil {
		return fmt.Errorf("move the cache file aside, which cannot be used (%w): %w", cause, err)
	}
	db.mu.Lock()
	db.mu.quarantined = target
	db.mu.quarantines++
	db.mu.Unlock()
	db.log.Error(cause, "Moved a cache file aside that cannot be used; another takes its place",
		"path", db.path, "movedTo", target)
	if err := syncDir(filepath.Dir(db.path)); err != nil {
		return fmt.Errorf("move the cache file aside to %s: %w", target, err)
	}
	db.pruneQuarantined(target)
	return nil
}

// quarantineName returns a name that does not exist yet.
func quarantineName(path, reason string, now time.Time) (string, error) {
	for {
		name := path + quarantineInfix + now.Format(quarantineTime) + "-" + reason
		switch _, err := os.Lstat(name); {
		case errors.Is(err, os.ErrNotExist):
			return name, nil
		case err != nil:
			return "", fmt.Errorf("move the cache file aside: %w", err)
		}
		now = now.Add(time.Millisecond)
	}
}

// pruneQuarantined removes the oldest quarantined files, except those of a
// newer format: they are good, and a newer version will want them back. The newest
// stays, although a clock that went back gives it a name that sorts first. A file
// that cannot be removed is no reason not to start.
func (db *DB) pruneQuarantined(newest string) {
	all, err := siblings(db.path, quarantineInfix)
	all = slices.DeleteFunc(all, func(name string) bool {
		return strings.HasSuffix(name, reasonNewer) || name == newest
	})
	keep := maxQuarantined
	if !strings.HasSuffix(newest, reasonNewer) {
		keep--
	}
	for err == nil && len(all) > keep {
		if err = os.Remove(all[0]); err == nil {
			db.log.Info("Removed an old quarantined cache file", "path", all[0])
		}
		all = all[1:]
	}
	if err != nil {
		db.log.Error(err, "Cannot remove old quarantined cache files", "path", db.path)
	}
}

// siblings returns the files whose name is that of path with infix and
// anything after it, in the order of their names.
func siblings(path, infix string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("list the directory of the cache file: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), filepath.Base(path)+infix) && entry.Type().IsRegular() {
			names = append(names, filepath.Join(filepath.Dir(path), entry.Name()))
		}
	}
	return names, nil
}

// syncDir makes a rename or creation in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}
