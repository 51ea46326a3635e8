package crashtest

import (
	"bytes"
	"errors"
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
	db := open(t, path, bolt.Options{})
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
	for name, test := range map[string]struct {
		// calls fail, on the file or on its directory.
		calls       string
		onDirectory bool
	}{
		"rename":                {"rename,renameat,renameat2:error=EIO", false},
		"rename without space":  {"rename,renameat,renameat2:error=ENOSPC", false},
		"sync of the directory": {"fsync:error=EIO", true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cache.db")
			content := damagedFile(t, path)
			target := path
			if test.onDirectory {
				target = filepath.Dir(path)
			}
			out, err := straced(t, test.calls, target, "open-once", path)
			if err == nil {
				t.Fatalf("the file was opened: %s", out)
			}
			wantOneLine(t, errors.New(out), path[strings.LastIndex(path, "/"):])
			t.Log(out)
			kept(t, path, content)
			closeDB(t, bolttest.Open(t, path, bolt.Options{}))
			kept(t, path, content)
		})
	}
	for name, options := range map[string]string{"bytes": "size=1m", "files": "size=8m,nr_inodes=4"} {
		t.Run("no room for more "+name, func(t *testing.T) {
			dir := mount(t, options)
			path := filepath.Join(dir, "cache.db")
			content := damagedFile(t, path)
			empty := fill(t, dir)
			_, err := bolt.Open(path, bolt.Options{})
			wantOneLine(t, err, path, "no space")
			t.Log(err)
			kept(t, path, content)
			empty()
			closeDB(t, bolttest.Open(t, path, bolt.Options{}))
			kept(t, path, content)
		})
	}
}

// TestDiskOpen_CreateFails opens a file that is not there yet, on a disk that
// fails. It leaves nothing behind that is in the way later.
func TestDiskOpen_CreateFails(t *testing.T) {
	for _, calls := range []string{
		"pwrite64:error=ENOSPC", "pwrite64:error=EIO", "write:error=ENOSPC:when=1", "fdatasync:error=EIO", "fdatasync:error=EIO:when=2",
		"fsync:error=EIO", "ftruncate:error=ENOSPC", "rename,renameat,renameat2:error=EIO", "mmap:error=ENODEV",
	} {
		t.Run(calls, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cache.db")
			if strings.HasPrefix(calls, "mmap") || strings.HasPrefix(calls, "write") {
				t.Skip("TODO")
			}
			out, err := straced(t, calls, "", "open-once", path)
			t.Log(err, out)
			if err != nil {
				wantOneLine(t, errors.New(out), "cache.db")
			}
			if left, _ := filepath.Glob(path + ".new-*"); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			db := bolttest.Open(t, path, bolt.Options{})
			if db.Quarantined() != "" {
				t.Errorf("left a file that cannot be used: %s", db.Quarantined())
			}
			closeDB(t, db)
		})
	}
}

// TestDiskOpen_CannotRead opens a good file that cannot be read at the moment.
func TestDiskOpen_CannotRead(t *testing.T) {
	for _, calls := range []string{
		"pread64:error=EIO", "pread64:error=EIO:when=1", "pread64:error=EIO:when=3", "pread64:error=EIO:when=4+",
		"openat:error=EIO", "openat:error=EMFILE", "mmap:error=ENOMEM", "mmap:error=ENODEV", "fstat,newfstatat:error=EIO",
		"flock:error=ENOLCK",
	} {
		t.Run(calls, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cache.db")
			content := stored(t, path)
			out, err := straced(t, calls, path, "open-once", path)
			t.Log(err, out)
			if err != nil {
				wantOneLine(t, errors.New(out), path)
			}
			kept(t, path, content)
			closeDB(t, bolttest.Open(t, path, bolt.Options{}))
			kept(t, path, content)
		})
	}
}

// TestDiskOpen_ReadOnlyFileSystem says what to do about it.
func TestDiskOpen_ReadOnlyFileSystem(t *testing.T) {
	dir := mount(t, "size=1m")
	path := filepath.Join(dir, "cache.db")
	content := stored(t, path)
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{path, filepath.Join(dir, "another.db"), filepath.Join(dir, "directory", "cache.db")} {
		_, err := bolt.Open(path, bolt.Options{})
		wantOneLine(t, err, dir, "read-only file system", "writable")
		t.Log(err)
	}
	wantFile(t, path, content)
	db, err := bolt.OpenReadOnly(path, bolt.Options{})
	if err != nil {
		t.Fatalf("reading needs no more than reading: %v", err)
	}
	closeDB(t, db)
}
