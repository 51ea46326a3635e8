package bolt_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
	"github.com/warmcache/warmcache/store/storetest"
)

func TestOpen_ModesArePrivate_WhateverTheUmask(t *testing.T) {
	for _, umask := range []string{"0", "077", "022"} {
		dir := filepath.Join(t.TempDir(), "new")
		c := startSession(t, filepath.Join(dir, "cache.db"), umask, nil)
		for _, line := range []string{"open fail", "apply 1", "close"} {
			if got := c.ask("%s", line); got != "open" && got != "done" {
				t.Fatalf("umask %s: %s: %s", umask, line, got)
			}
		}
		c.finish()
		checkModes(t, dir)
	}
}

// startSession starts a session with a umask, as another user if that is given.
func startSession(t *testing.T, path, umask string, as *syscall.Credential) *child {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", `umask "$0"; exec "$@"`, umask, program(t), path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	return startCommand(t, "session", cmd)
}

// program is the test binary, where another user can run it.
func program(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(os.Args[0])
	name := filepath.Join(sharedDir(t, 0o755), "program")
	if err = errors.Join(err, os.WriteFile(name, content, 0o755), os.Chmod(name, 0o755)); err != nil {
		t.Fatal(err)
	}
	return name
}

// sharedDir is a temporary directory with a mode that other users can get to.
func sharedDir(t *testing.T, mode os.FileMode) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, mode)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestOpen_FilesThatAreTooOpen_AreMadePrivate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "cache.db")
	db := bolttest.Open(t, path, bolt.Options{})
	apply(t, collection(t, db), storetest.Put("a", "1"))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	public := []string{path, bolt.LockPath(path), path + ".quarantined-20200101T000000.000Z-damaged", path + ".backup-v1"}
	for _, name := range public {
		if err := errors.Join(appendTo(name), os.Chmod(name, 0o664)); err != nil {
			t.Fatal(err)
		}
	}
	other := filepath.Join(dir, "other.db")
	if err := errors.Join(appendTo(other), os.Chmod(other, 0o644)); err != nil {
		t.Fatal(err)
	}
	log := &strings.Builder{}
	if err := bolttest.Open(t, path, bolt.Options{Logger: logTo(log)}).Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range public {
		if info, err := os.Stat(name); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
		if got := strings.Count(log.String(), fmt.Sprintf("path=%q mode=\"-rw-rw-r--\"", name)); got != 1 {
			t.Errorf("%s was logged %d times", name, got)
		}
	}
	if info, err := os.Stat(other); err != nil || info.Mode() != 0o644 {
		t.Errorf("a file that is not ours: %v, %v", info.Mode(), err)
	}
	if got := strings.Count(log.String(), "\n"); got != len(public) {
		t.Errorf("logged:\n%s", log)
	}
}

// appendTo makes a file exist.
func appendTo(name string) error {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	return file.Close()
}

func TestOpenReadOnly_ChangesNoModes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	if err := bolttest.Open(t, path, bolt.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(path, 0o644), os.Chmod(bolt.LockPath(path), 0o644)); err != nil {
		t.Fatal(err)
	}
	before := snapshotDir(t, filepath.Dir(path))
	db, err := bolt.OpenReadOnly(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	for name, was := range snapshotDir(t, filepath.Dir(path)) {
		if was != before[name] {
			t.Errorf("%s changed", name)
		}
	}
}

// TestOpen_Links_AreNotFollowed puts links in the way of what Open writes. The
// file that they point to must be as it was.
func TestOpen_Links_AreNotFollowed(t *testing.T) {
	for _, suffix := range []string{"", ".owner"} {
		dir := t.TempDir()
		path, victim := filepath.Join(dir, "cache.db"), filepath.Join(dir, "victim")
		err := errors.Join(os.WriteFile(victim, []byte("mine"), 0o644), os.Chmod(victim, 0o644), os.Symlink(victim, path+suffix))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bolt.Open(path, bolt.Options{}); err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), path+suffix) {
			t.Errorf("%q: got %v, want one line that names it", suffix, err)
		}
		checkVictim(t, victim)
	}
}

func checkVictim(t *testing.T, victim string) {
	t.Helper()
	content, err := os.ReadFile(victim)
	info, statErr := os.Stat(victim)
	if err := errors.Join(err, statErr); err != nil {
		t.Fatal(err)
	}
	if string(content) != "mine" || info.Mode() != 0o644 {
		t.Errorf("the file that a link pointed to: %q, %v", content, info.Mode())
	}
}

// TestOpen_LinksBeside_AreNotFollowed: neither is a link among the files that are
// made private, removed, or counted.
func TestOpen_LinksBeside_AreNotFollowed(t *testing.T) {
	dir := t.TempDir()
	path, victim := filepath.Join(dir, "cache.db"), filepath.Join(dir, "victim")
	if err := errors.Join(os.WriteFile(victim, []byte("mine"), 0o644), os.Chmod(victim, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{".quarantined-2020-damaged", ".backup-v1", ".new-1"} {
		if err := os.Symlink(victim, path+suffix); err != nil {
			t.Fatal(err)
		}
	}
	bolttest.Open(t, path, bolt.Options{})
	checkVictim(t, victim)
}

// TestOpen_Pipe_IsNotWaitedFor would hang.
func TestOpen_Pipe_IsNotWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	if err := bolttest.Open(t, path, bolt.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	lock := bolt.LockPath(path)
	if err := errors.Join(os.Remove(lock), syscall.Mkfifo(lock, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := bolt.Open(path, bolt.Options{}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("Open: got %v", err)
	}
	holder := startChild(t, "session", path)
	holder.tell("open bbolt")
	holder.expect("open")
	if _, err := bolt.OpenReadOnly(path, bolt.Options{LockTimeout: time.Millisecond}); !errors.Is(err, store.ErrLocked) {
		t.Errorf("OpenReadOnly: got %v, want ErrLocked", err)
	}
}

// TestOpen_HardLinksInSharedDirectory: another name of one of our own files, put
// there by somebody else, must not be overwritten.
func TestOpen_HardLinksInSharedDirectory(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	if err := errors.Join(os.WriteFile(victim, []byte("mine"), 0o644), os.Chmod(victim, 0o644)); err != nil {
		t.Fatal(err)
	}
	shared := filepath.Join(sharedDir(t, 0o777|fs.ModeSticky), "cache.db")
	if err := os.Link(victim, bolt.LockPath(shared)); err != nil {
		t.Fatal(err)
	}
	if _, err := bolt.Open(shared, bolt.Options{}); err == nil || !strings.Contains(err.Error(), "directory of its own") {
		t.Errorf("got %v", err)
	}
	checkVictim(t, victim)
	// In a directory of ours, other names are ours too: a backup by cp -l.
	own := filepath.Join(t.TempDir(), "cache.db")
	if err := bolttest.Open(t, own, bolt.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(bolt.LockPath(own), own+".copy"); err != nil {
		t.Fatal(err)
	}
	bolttest.Open(t, own, bolt.Options{})
}

// nobody is a user who is not root.
var nobody = &syscall.Credential{Uid: 65534, Gid: 65534}

// somebody is another one.
const somebody = 65533

// asNobody starts a session of another user than root in a directory with the
// given mode, which belongs to that user if owned.
func asNobody(t *testing.T, mode os.FileMode, owned bool) (path string, start func() *child) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run processes as another user")
	}
	dir := sharedDir(t, mode)
	if owned {
		if err := os.Chown(dir, int(nobody.Uid), int(nobody.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	path = filepath.Join(dir, "cache.db")
	return path, func() *child { return startSession(t, path, "0", nobody) }
}

// TestOpen_SharedDirectory_RefusesWhatOthersPut: in a directory like /tmp, the
// file may be there before us.
func TestOpen_SharedDirectory_RefusesWhatOthersPut(t *testing.T) {
	for _, suffix := range []string{"", ".owner"} {
		for _, mode := range []os.FileMode{0o777, 0o777 | fs.ModeSticky} {
			path, start := asNobody(t, mode, false)
			if err := bolttest.Open(t, path, bolt.Options{}).Close(); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{path, bolt.LockPath(path)} {
				if err := errors.Join(os.Chown(name, int(nobody.Uid), int(nobody.Gid)), os.Chmod(name, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(os.Chown(path+suffix, somebody, somebody), os.Chmod(path+suffix, 0o666)); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(path + suffix)
			if err != nil {
				t.Fatal(err)
			}
			c := start()
			if got := c.ask("open fail"); !strings.Contains(got, "belongs to another user") {
				t.Errorf("%q in %v: got %q", suffix, mode, got)
			}
			c.finish()
			after, err := os.ReadFile(path + suffix)
			if err != nil || string(after) != string(before) {
				t.Errorf("%q in %v was written to, %v", suffix, mode, err)
			}
		}
	}
}

// TestOpen_AnotherUsersFile_InAPrivateDirectory is a volume that was used by a
// pod with another user id: the file is used, and what is wrong is logged.
func TestOpen_AnotherUsersFile_InAPrivateDirectory(t *testing.T) {
	path, start := asNobody(t, 0o770, true)
	if err := bolttest.Open(t, path, bolt.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, bolt.LockPath(path)} {
		if err := errors.Join(os.Chown(name, somebody, int(nobody.Gid)), os.Chmod(name, 0o660)); err != nil {
			t.Fatal(err)
		}
	}
	c := start()
	if got := c.ask("open fail"); got != "open" {
		t.Errorf("got %q", got)
	}
	for _, name := range []string{path, bolt.LockPath(path)} {
		for _, message := range []string{"A cache file belongs to another user, who can read and change it", "Cannot make a cache file private"} {
			if got := c.ask("logged %s|%s", message, name); got != "1" {
				t.Errorf("%q was logged %s times for %s", message, got, name)
			}
		}
	}
	c.finish()
}

// TestOpen_Unreadable checks what a user is told who must not use the files.
func TestOpen_Unreadable(t *testing.T) {
	for _, suffix := range []string{"", ".owner"} {
		path, start := asNobody(t, 0o700, true)
		if err := bolttest.Open(t, path, bolt.Options{}).Close(); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{path, bolt.LockPath(path)} {
			if err := os.Chown(name, int(nobody.Uid), int(nobody.Gid)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(path+suffix, 0); err != nil {
			t.Fatal(err)
		}
		c := start()
		if got := c.ask("open fail"); !strings.Contains(got, path+suffix+": permission denied") {
			t.Errorf("%q: got %q", suffix, got)
		}
		c.finish()
	}
}

func TestOpen_WarnsAboutDirectoryThatOthersCanWrite(t *testing.T) {
	for mode, want := range map[os.FileMode]int{0o777: 1, 0o702: 1, 0o777 | fs.ModeSticky: 0, 0o770: 0, 0o755: 0} {
		log := &strings.Builder{}
		bolttest.Open(t, filepath.Join(sharedDir(t, mode), "cache.db"), bolt.Options{Logger: logTo(log)})
		if got := strings.Count(log.String(), "Everybody can replace the cache file"); got != want || strings.Count(log.String(), "\n") != want {
			t.Errorf("%v: logged:\n%s", mode, log)
		}
	}
}
