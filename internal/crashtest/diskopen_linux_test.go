package crashtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
)

// stored writes a cache file with an informer, and returns its content.
func stored(t *testing.T, path string) []byte {
	t.Helper()
	w := newWorld(t)
	for i := range 20 {
		w.put(configMaps, fmt.Sprintf("a/%d", i), "gold")
	}
	db := bolttest.Open(t, path, bolt.Options{})
	startController(t, w, db, newRecorder()).stop()
	closeDB(t, db)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// damagedFile writes a cache file that cannot be used, and returns its content.
func damagedFile(t *testing.T, path string) []byte {
	t.Helper()
	content := stored(t, path)
	copy(content[2*4096:], make([]byte, 2*4096))
	writeFile(t, path, content)
	return content
}

// kept checks that content is still there, unharmed, at path or moved aside.
func kept(t *testing.T, path string, content []byte) {
	t.Helper()
	names, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if got, err := os.ReadFile(name); err == nil && bytes.Equal(got, content) {
			return
		}
	}
	t.Errorf("what was there is lost; there are %v", names)
}

// TestDiskOpen_QuarantineFails opens a damaged file on a disk that does not let it
// be moved aside, or replaced. That is an error that says so, and nothing is lost:
// when the disk is well, the file is set aside, and another takes its place.
func TestDiskOpen_QuarantineFails(t *testing.T) {
	for _, fault := range []string{
		renames + ":error=EIO", renames + ":error=ENOSPC", "fsync:error=EIO",
	} {
		t.Run(fault, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cache.db")
			content := damagedFile(t, path)
			target := path
			if strings.HasPrefix(fault, "fsync") {
				// It is the directory that is synced.
				target = filepath.Dir(path)
			}
			moved, err := openStraced(t, fault, target, path)
			if err == nil {
				t.Fatalf("the file was opened, after moving one to %q", moved)
			}
			wantOneLine(t, err, target)
			kept(t, path, content)
			closeDB(t, bolttest.Open(t, path, bolt.Options{}))
			kept(t, path, content)
		})
	}
}

// TestDiskOpen_NoRoomForAnotherFile is TestDiskOpen_QuarantineFails on a full
// disk, which lets a file be moved but not be created.
func TestDiskOpen_NoRoomForAnotherFile(t *testing.T) {
	for name, options := range map[string]string{"bytes": "size=1m", "files": "size=8m,nr_inodes=4"} {
		t.Run(name, func(t *testing.T) {
			dir := mount(t, options)
			path := filepath.Join(dir, "cache.db")
			content := damagedFile(t, path)
			empty := fill(t, dir)
			_, err := bolt.Open(path, bolt.Options{}) //hygiene:allow bolt.Open: it fails
			wantOneLine(t, err, path, "no space")
			kept(t, path, content)
			empty()
			closeDB(t, bolttest.Open(t, path, bolt.Options{}))
			kept(t, path, content)
		})
	}
}

// TestDiskOpen_CreateFails opens a file that is not there yet, on a disk that
// fails. Nothing is left that would be in the way later.
func TestDiskOpen_CreateFails(t *testing.T) {
	for _, fault := range []string{
		"pwrite64:error=ENOSPC", "pwrite64:error=EIO", "fdatasync:error=EIO", "fdatasync:error=EIO:when=2",
		"fsync:error=EIO", "ftruncate:error=ENOSPC", renames + ":error=EIO",
	} {
		t.Run(fault, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cache.db")
			if _, err := openStraced(t, fault, "", path); err == nil {
				t.Error("the file was created")
			} else {
				wantOneLine(t, err, path)
			}
			if left, err := filepath.Glob(path + ".new-*"); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
			db := bolttest.Open(t, path, bolt.Options{})
			if moved := db.Quarantined(); moved != "" {
				t.Errorf("a file that cannot be used was left, and is now %s", moved)
			}
			closeDB(t, db)
		})
	}
}

// TestDiskOpen_CannotRead opens a good file that cannot be read at the moment. That
// says nothing of the file: Open fails, and changes nothing.
func TestDiskOpen_CannotRead(t *testing.T) {
	for _, fault := range []string{
		"openat:error=EIO",
		"openat:error=EMFILE",
		"fstat,newfstatat:error=EIO",
		"flock:error=ENOLCK",
		"pread64:error=EIO",
		"pread64:error=EIO:when=1",
		"pread64:error=EIO:when=3",
	} {
		t.Run(fault, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cache.db")
			content := stored(t, path)
			moved, err := openStraced(t, fault, path, path)
			if err == nil {
				t.Fatalf("the file was opened, after moving one to %q", moved)
			}
			wantOneLine(t, err, path)
			wantUntouched(t, path, content)
		})
	}
}

// TestDiskOpen_CannotMap opens a good file that cannot be mapped to memory, which takes
// more than Open does. It can be read until it is closed.
func TestDiskOpen_CannotMap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	content := stored(t, path)
	if moved, err := openStraced(t, "mmap:error=ENOMEM", path, path); err != nil || moved != "" {
		t.Errorf("moved to %q, %v", moved, err)
	}
	wantUntouched(t, path, content)
}

// wantUntouched checks that the file at path is as it was, and good.
func wantUntouched(t *testing.T, path string, content []byte) {
	t.Helper()
	wantFile(t, path, content)
	db := bolttest.Open(t, path, bolt.Options{})
	if db.Quarantined() != "" {
		t.Errorf("moved aside as %s", db.Quarantined())
	}
	closeDB(t, db)
}

// TestDiskOpen_ReadOnlyFileSystem says what to do about it.
func TestDiskOpen_ReadOnlyFileSystem(t *testing.T) {
	dir := mount(t, "size=1m")
	path := filepath.Join(dir, "cache.db")
	content := stored(t, path)
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cache.db", "another.db"} {
		_, err := bolt.Open(filepath.Join(dir, name), bolt.Options{}) //hygiene:allow bolt.Open: it fails
		wantOneLine(t, err, name, "read-only file system", "must be writable")
	}
	_, err := bolt.Open(filepath.Join(dir, "directory", "cache.db"), bolt.Options{}) //hygiene:allow bolt.Open: it fails
	wantOneLine(t, err, "create the directory", dir, "read-only file system")
	wantFile(t, path, content)
	db, err := bolt.OpenReadOnly(path, bolt.Options{})
	if err != nil {
		t.Fatalf("reading needs no more than reading: %v", err)
	}
	closeDB(t, db)
}
