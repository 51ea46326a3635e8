package crashtest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
)

// wantOneLine checks an error that a user will read.
func wantOneLine(t *testing.T, err error, parts ...string) {
	t.Helper()
	switch {
	case err == nil:
		t.Fatal("no error")
	case strings.Contains(err.Error(), "\n"):
		t.Errorf("more than one line: %q", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

func TestOpen_PathIsADirectory(t *testing.T) {
	path := t.TempDir()
	keep := filepath.Join(path, "keep")
	writeFile(t, keep, []byte("something"))
	_, err := bolt.Open(path, bolt.Options{}) //hygiene:allow bolt.Open: it fails
	wantOneLine(t, err, path, "directory")
	wantFile(t, keep, []byte("something"))
}

func TestOpen_PathBelowAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, []byte("something"))
	_, err := bolt.Open(filepath.Join(file, "cache.db"), bolt.Options{}) //hygiene:allow bolt.Open: it fails
	wantOneLine(t, err, file, "not a directory")
	wantFile(t, file, []byte("something"))
}

// TestOpen_UnwritableDirectory runs as root, too, where a child gives up its
// privileges.
func TestOpen_UnwritableDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) }) // for TempDir to remove it
	out, err := childCommand("open", dir).CombinedOutput()
	if err == nil {
		t.Fatal("the file was opened")
	}
	wantOneLine(t, errors.New(strings.TrimSpace(string(out))), "cache.db", "permission denied", "must be writable")
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// openUnprivileged opens a file in the directory, as nobody in particular.
func openUnprivileged(dir string) error {
	if err := os.Chdir(dir); err != nil {
		return err
	}
	if os.Getuid() == 0 {
		const nobody = 65534
		err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody))
		if err != nil {
			return err
		}
	}
	db, err := bolt.Open("cache.db", bolt.Options{}) //hygiene:allow bolt.Open: it fails
	if err != nil {
		return err
	}
	return db.Close()
}

// TestOpen_UnusableFile spoils a file that an informer has written. The next
// informer starts cold, misses nothing, and the file is kept as it was.
func TestOpen_UnusableFile(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func([]byte) []byte
		// reason is in the name of the quarantined file; empty if it is not kept.
		reason string
	}{
		"zero length":          {func([]byte) []byte { return nil }, ""},
		"one byte":             {func(b []byte) []byte { return b[:1] }, "foreign"},
		"less than a page":     {func(b []byte) []byte { return b[:1000] }, "damaged"},
		"two pages":            {func(b []byte) []byte { return b[:8192] }, "damaged"},
		"five pages":           {func(b []byte) []byte { return b[:5*4096] }, "damaged"},
		"text":                 {func([]byte) []byte { return []byte(strings.Repeat("not a database\n", 1000)) }, "foreign"},
		"zeros":                {func(b []byte) []byte { return make([]byte, len(b)) }, "foreign"},
		"of a newer format":    {newerFormat, "newer-format"},
		"with a damaged start": {func(b []byte) []byte { return append(bytes.Repeat([]byte{0xff}, 8192), b[8192:]...) }, "foreign"},
	} {
		t.Run(name, func(t *testing.T) { testUnusable(t, test.spoil, test.reason) })
	}
}

func testUnusable(t *testing.T, spoil func([]byte) []byte, reason string) {
	w := newWorld(t)
	for i := range 100 {
		w.put(configMaps, fmt.Sprintf("a/%d", i), "gold")
	}
	path := filepath.Join(t.TempDir(), "cache.db")
	db := bolttest.Open(t, path, bolt.Options{})
	startController(t, w, db, newRecorder()).stop()
	closeDB(t, db)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	spoilt := spoil(slices.Clone(content))
	writeFile(t, path, spoilt)

	db = bolttest.Open(t, path, bolt.Options{})
	c := startController(t, w, db, newRecorder())
	c.converge()
	if c.world.server.Counts().FullLists == 0 {
		t.Error("nothing was listed")
	}
	c.stop()
	closeDB(t, db)
	switch moved := db.Quarantined(); {
	case reason == "" && moved != "":
		t.Errorf("quarantined as %s", moved)
	case reason != "" && !strings.HasSuffix(moved, "-"+reason):
		t.Errorf("quarantined as %q, want it to say %q", moved, reason)
	case reason != "":
		wantFile(t, moved, spoilt)
	}

	c = startController(t, w, bolttest.Open(t, path, bolt.Options{}), newRecorder())
	c.converge()
	c.resumed()
	c.stop()
}

// newerFormat raises the format version. The record is the number with its
// checksum, behind its key.
func newerFormat(b []byte) []byte {
	return bytes.ReplaceAll(b,
		append([]byte("format"), store.Seal([]byte("1"))...),
		append([]byte("format"), store.Seal([]byte("9"))...))
}

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func wantFile(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s has %d bytes (%v), want the %d that were there", path, len(got), err, len(want))
	}
}

// holdFile has a file open until its standard input ends.
func holdFile(path string) error {
	db, err := bolt.Open(path, bolt.Options{}) //hygiene:allow bolt.Open: in another process; the test checks the file
	if err != nil {
		return err
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return db.Close()
}

// holder is another process that has a file open.
type holder struct {
	pid     int
	release func()
}

func holdElsewhere(t *testing.T, path string) holder {
	t.Helper()
	cmd := childCommand("hold", path)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "open\n" {
		t.Errorf("the other process says %q, %v", line, err)
	}
	released := false
	h := holder{pid: cmd.Process.Pid, release: func() {
		if released {
			return
		}
		released = true
		if err := errors.Join(stdin.Close(), cmd.Wait()); err != nil {
			t.Errorf("the other process: %v", err)
		}
	}}
	t.Cleanup(h.release)
	return h
}

func TestOpen_Locked_Fail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	h := holdElsewhere(t, path)
	_, err := bolt.Open(path, bolt.Options{LockTimeout: time.Millisecond}) //hygiene:allow bolt.Open: it fails
	wantOneLine(t, err, path, fmt.Sprint("pid ", h.pid))
	var locked *bolt.LockedError
	if !errors.As(err, &locked) || !errors.Is(err, store.ErrLocked) {
		t.Errorf("%T", err)
	}
}

func TestOpen_Locked_WaitGetsTheFile(t *testing.T) {
	w := newWorld(t)
	w.put(configMaps, "a/1", "gold")
	path := filepath.Join(t.TempDir(), "cache.db")
	h := holdElsewhere(t, path)
	opened := make(chan *bolt.DB)
	go func() {
		//hygiene:allow bolt.Open: off the goroutine of the test, which checks the file
		db, err := bolt.Open(path, bolt.Options{OnLocked: bolt.Wait})
		if err != nil {
			t.Error(err)
		}
		opened <- db
	}()
	h.release()
	db := <-opened
	if db == nil {
		return
	}
	c := startController(t, w, db, newRecorder())
	c.converge()
	c.stop()
	closeDB(t, db)
	bolttest.CheckFile(t, path)
}

func TestOpen_Locked_MemoryOnlyWorks(t *testing.T) {
	w := newWorld(t)
	w.put(configMaps, "a/1", "gold")
	path := filepath.Join(t.TempDir(), "cache.db")
	h := holdElsewhere(t, path)
	db := bolttest.Open(t, path, bolt.Options{OnLocked: bolt.MemoryOnly, LockTimeout: time.Millisecond})
	if db.Persistent() {
		t.Error("the store says that it is persistent")
	}
	c := startController(t, w, db, newRecorder())
	w.put(configMaps, "a/2", "gold")
	w.remove(configMaps, "a/1")
	c.converge()
	c.stop()
	closeDB(t, db)
	h.release()
	// The owner's file is as the owner left it: empty.
	db = bolttest.Open(t, path, bolt.Options{})
	if infos, err := db.Informers(); err != nil || len(infos) != 0 {
		t.Errorf("in the file: %+v, %v", infos, err)
	}
}

// openOnce opens a file and closes it, and prints the error as one quoted string,
// or where it moved what it found.
func openOnce(path string) error {
	//hygiene:allow bolt.Open: in a process of its own; the test checks the file
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		fmt.Printf("%s\t%q\n", wordFailed, err)
		return nil
	}
	fmt.Printf("%s\t%q\n", wordOpen, db.Quarantined())
	return db.Close()
}
