package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

func TestWithErrno(t *testing.T) {
	wrapped := &fs.PathError{Op: "sync", Path: "/x", Err: syscall.EIO}
	for _, c := range []struct {
		name string
		err  error
		want syscall.Errno
	}{
		{"text", errors.New("file sync error: sync /x: no space left on device"), syscall.ENOSPC},
		{"wrapped", wrapped, syscall.EIO},
		{"wrapped, with another at the end", fmt.Errorf("%w: no space left on device", wrapped), syscall.EIO},
		{"no system's error", errors.New("database is closed"), 0},
		{"none", nil, 0},
	} {
		err := withErrno(c.err)
		var errno syscall.Errno
		if errors.As(err, &errno); errno != c.want {
			t.Errorf("%s: %v is %v, want %v", c.name, err, errno, c.want)
		}
		if !errors.Is(err, c.err) || err != nil && err.Error() != c.err.Error() {
			t.Errorf("%s: %v has become %v", c.name, c.err, err)
		}
	}
}

// TestWithErrno_FileCannotGrow checks the text that bbolt has today: the file is
// replaced under it by one that cannot be written.
func TestWithErrno_FileCannotGrow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	var file *os.File
	db, err := bbolt.Open(path, fileMode, &bbolt.Options{OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
		var err error
		file, err = os.OpenFile(name, flag, mode)
		return file, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	readOnly, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	if err := unix.Dup3(int(readOnly.Fd()), int(file.Fd()), unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte("b"))
		if err != nil {
			return err
		}
		return b.Put([]byte("k"), make([]byte, 1<<20))
	})
	if err == nil || !errors.Is(withErrno(err), syscall.EINVAL) {
		t.Errorf("got %v, want one that is EINVAL", err)
	}
}
