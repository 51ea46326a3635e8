//go:build linux

package powercut

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/storetest"
)

// patience is how long a state may take to be opened and read.
const patience = 2 * time.Minute

// sum identifies the content of a file.
type sum [sha256.Size]byte

func sumOf(name string) (s sum, err error) {
	f, err := os.Open(name)
	if err != nil {
		return s, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	h.Sum(s[:0])
	return s, err
}

// materialise writes files below dir. inodes are those that the files had when
// they were recorded.
func materialise(dir string, images map[string]image, inodes []uint64) error {
	// A directory sorts before what is in it.
	for _, name := range slices.Sorted(maps.Keys(images)) {
		path, im := filepath.Join(dir, name), images[name]
		var err error
		if im.file < 0 {
			err = os.MkdirAll(path, 0o700)
		} else {
			err = im.writeTo(path)
		}
		if err != nil {
			return err
		}
	}
	return reboot(filepath.Join(dir, cacheName), images[cacheName].file, inodes)
}

// writeTo writes the file, with holes for zeros.
func (im image) writeTo(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = f.Truncate(im.size)
	for _, e := range im.extents {
		if err == nil {
			_, err = f.WriteAt(e.data, e.offset)
		}
	}
	return errors.Join(err, f.Close())
}

// reboot gives the lock file of a cache the inode number that the cache has now,
// if it was about the same file, and another boot: both differ between a machine
// that was started again and files that were copied.
func reboot(path string, file int, inodes []uint64) error {
	content, err := os.ReadFile(path + ".owner")
	record := map[string]json.RawMessage{}
	if err != nil || inodes == nil || json.Unmarshal(content, &record) != nil {
		return nil //nolint:nilerr // there is no record
	}
	inode := uint64(1)
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err == nil && string(record["inode"]) == fmt.Sprint(inodes[file]) {
		inode = stat.Ino
	}
	record["inode"], record["boot"] = json.RawMessage(fmt.Sprint(inode)), json.RawMessage(`"the boot before"`)
	changed, err := json.Marshal(record)
	if err != nil {
		return err
	}
	if room := len(content) - len(changed); room > 0 {
		changed = append(changed, bytes.Repeat([]byte{' '}, room)...)
	}
	return os.WriteFile(path+".owner", changed, 0o600)
}

// checkState opens what a power cut has left in dir, and returns what is wrong.
func checkState(r *recording, e expected, dir string) (err error) {
	done := make(chan error, 1)
	go func() {
		debug.SetPanicOnFault(true)
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		done <- checker{r, e, filepath.Join(dir, cacheName)}.check()
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		return fmt.Errorf("still not done after %s", patience)
	}
}

type checker struct {
	recording *recording
	expected
	path string
}

func (c checker) check() error {
	if err := c.keepsEvidence(); err != nil {
		return fmt.Errorf("before Open: %w", err)
	}
	found := c.inPlace()
	//hygiene:allow bolt.Open: the check that follows says more
	db, err := bolt.Open(c.path, bolt.Options{FlushInterval: time.Hour})
	if err != nil {
		return err
	}
	moved := db.Quarantined() != ""
	if damaged := found != nil && !found.intact; moved != damaged && (found == nil || !found.intact) {
		err = fmt.Errorf("moved aside to %q; a file that is damaged: %v", db.Quarantined(), damaged)
	}
	if err == nil {
		err = c.contents(db)
	}
	if err == nil {
		err = goOn(db)
	}
	err = errors.Join(err, db.Close())
	if err == nil && (found == nil || moved) {
		err = c.keepsEvidence()
	}
	if err != nil {
		return err
	}
	return errors.Join(verify(c.path), c.leftovers())
}

// inPlace returns the damaged file that is the cache file; nil if none is.
func (c checker) inPlace() *evidence {
	if len(c.evidence) == 0 {
		return nil
	}
	s, err := sumOf(c.path)
	if err != nil {
		return nil
	}
	for i := range c.evidence {
		if c.evidence[i].sum == s {
			return &c.evidence[i]
		}
	}
	return nil
}

// contents checks every collection.
func (c checker) contents(db *bolt.DB) error {
	infos, err := db.Informers()
	if err != nil {
		return err
	}
	for _, info := range infos {
		if !slices.Contains(identities(), info.Identity) {
			return fmt.Errorf("a collection that never was: %s", info.Identity)
		}
	}
	for _, id := range identities() {
		if err := c.collection(db, id); err != nil {
			return err
		}
	}
	return nil
}

func (c checker) collection(db *bolt.DB, id store.Identity) error {
	collection, err := db.Collection(id, "test")
	if err != nil {
		return err
	}
	contents, totals, err := dump(collection)
	if err = errors.Join(err, collection.Close()); err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	if contents.Scanned != totals {
		return fmt.Errorf("%s: totals are %+v, found %+v", id, totals, contents.Scanned)
	}
	if problem := c.recording.history.check(id, c.windows[id], contents); problem != "" {
		return errors.New(problem)
	}
	return nil
}

// goOn commits something, which meets free pages that are not free.
func goOn(db *bolt.DB) error {
	c, err := db.Collection(identities()[0], "test")
	if err != nil {
		return err
	}
	var b store.Batch
	for i := range 20 {
		b.Ops = append(b.Ops, storetest.Put(fmt.Sprint("after/", i), strings.Repeat("x", 1000)))
	}
	return errors.Join(c.Apply(b), c.Close())
}

// verify checks the whole closed file.
func verify(path string) error {
	var problems []error
	report, err := bolt.Check(context.Background(), path, bolt.CheckOptions{Found: func(p bolt.Problem) bool {
		problems = append(problems, p.Err)
		return len(problems) < 10
	}})
	if report.UnreachablePages > 0 {
		problems = append(problems, fmt.Errorf("%d pages are neither used nor free", report.UnreachablePages))
	}
	return errors.Join(err, errors.Join(problems...))
}

// leftovers fails for files that nobody will ever use or remove.
func (c checker) leftovers() error {
	left, err := filepath.Glob(c.path + ".new-*")
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("left behind: %q", left)
	}
	return err
}

// keptEvidence is how many damaged files the engine keeps.
const keptEvidence = 3

// keepsEvidence fails if a damaged file is gone that should be kept.
func (c checker) keepsEvidence() error {
	if len(c.evidence) == 0 {
		return nil
	}
	names, err := filepath.Glob(c.path + "*")
	if err != nil {
		return err
	}
	found := map[sum]bool{}
	for _, name := range names {
		s, err := sumOf(name)
		if err != nil {
			return err
		}
		found[s] = true
	}
	for i, e := range c.evidence[max(0, len(c.evidence)-keptEvidence):] {
		if !found[e.sum] {
			return fmt.Errorf("damaged file %d of %d is lost; there are %q", i+1, len(c.evidence), names)
		}
	}
	return nil
}
