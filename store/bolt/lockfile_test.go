package bolt

import (
	"path/filepath"
	"testing"
)

// locked makes this process the owner of a database.
func locked(t *testing.T, path string) *lockFile {
	t.Helper()
	o, err := Options{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	l, err := acquireLock(path, &o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLockFile_Condemn_OnlyTheFileThatIsOpen: another one may have taken the place
// of the damaged one, and is not condemned with it.
func TestLockFile_Condemn_OnlyTheFileThatIsOpen(t *testing.T) {
	l := locked(t, filepath.Join(t.TempDir(), "cache.db"))
	l.begin(7)
	l.opened(7)
	for _, step := range []struct {
		inode uint64
		want  phase
	}{{8, phaseOpen}, {7, phaseDamaged}} {
		l.condemn(step.inode)
		if got := readOwner(l.file); got.Phase != step.want || got.Inode != 7 {
			t.Errorf("after condemning %d: %+v, want %q of 7", step.inode, got, step.want)
		}
	}
	if err := l.release(); err != nil {
		t.Error(err)
	}
}

// TestLockFile_ClosedBefore_IsAboutOneFile: that a file was closed says nothing of
// one that was put in its place.
func TestLockFile_ClosedBefore_IsAboutOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	l := locked(t, path)
	if l.closedBefore(7) {
		t.Error("closed before there was a lock file")
	}
	l.begin(7)
	l.opened(7)
	if err := l.release(); err != nil {
		t.Fatal(err)
	}
	l = locked(t, path)
	if !l.closedBefore(7) || l.closedBefore(8) {
		t.Errorf("7 closed: %v, 8 closed: %v; want only 7", l.closedBefore(7), l.closedBefore(8))
	}
	l.begin(7)
	l.opened(7)
	if err := l.file.Close(); err != nil { // as a process that is killed
		t.Fatal(err)
	}
	l = locked(t, path)
	if l.closedBefore(7) {
		t.Error("closed by a process that was killed")
	}
	if err := l.release(); err != nil {
		t.Error(err)
	}
}
