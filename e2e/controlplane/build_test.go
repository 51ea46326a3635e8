package controlplane

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBuild_FindsWhatIsBuilt(t *testing.T) {
	if _, err := Build(t.Context(), os.Stderr); err != nil {
		t.Fatal(err)
	}
	var progress strings.Builder
	bin, err := Build(t.Context(), &progress)
	if err != nil {
		t.Fatal(err)
	}
	if !bin.exist() || progress.Len() > 0 {
		t.Errorf("second Build returned %+v and said %q", bin, progress.String())
	}
}

func TestBuild_OutsideTheModuleSaysWhereToRunIt(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := Build(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "inside the e2e module") {
		t.Errorf("got %v", err)
	}
}

func TestSource_Build_ShowsTheCompilersErrorAndLeavesNoBinary(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "go.mod", "module broken\n")
	if err := os.Mkdir(filepath.Join(dir, "server"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "server/main.go", "package main\n\nfunc main() { undefined() }\n")
	path := filepath.Join(t.TempDir(), "server")
	err := source{dir: dir}.build(t.Context(), path, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "undefined: undefined") {
		t.Errorf("got %v, want the compiler's error", err)
	}
	if exists(path) {
		t.Error("there is a binary")
	}
}

func TestHashTree_ChangesWithContentNameAndSalt(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "go.mod", "module a")
	hashes := map[string]string{}
	record := func(what, salt string) {
		t.Helper()
		hash, err := hashTree(dir, salt)
		if err != nil {
			t.Fatal(err)
		}
		if before, seen := hashes[hash]; seen {
			t.Errorf("the hash is the same with %s and %s", before, what)
		}
		hashes[hash] = what
	}
	record("one file", "go1.26")
	record("another salt", "go1.27")
	write(t, dir, "go.mod", "module b")
	record("another content", "go1.26")
	write(t, dir, "go.sum", "")
	record("another file", "go1.26")
}

func TestLockFile_KeepsOthersOutUntilUnlocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lockFile(t.Context(), path, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	// The second one gives up when it says that it has to wait.
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := lockFile(ctx, path, cancelWriter(cancel)); !errors.Is(err, context.Canceled) {
		t.Fatalf("locking a locked file: %v, want it to wait until the context ends", err)
	}
	unlock()
	unlock, err = lockFile(t.Context(), path, io.Discard)
	if err != nil {
		t.Fatalf("locking an unlocked file: %v", err)
	}
	unlock()
}

// cancelWriter cancels a context at the first write.
type cancelWriter context.CancelFunc

func (w cancelWriter) Write(p []byte) (int, error) {
	w()
	return len(p), nil
}

func TestLastLines(t *testing.T) {
	for _, test := range []struct {
		in, want string
		n        int
	}{
		{"", "", 2},
		{"a\n", "a", 2},
		{"a\nb\nc\n", "b\nc", 2},
	} {
		if got := lastLines(test.in, test.n); got != test.want {
			t.Errorf("lastLines(%q, %d) = %q, want %q", test.in, test.n, got, test.want)
		}
	}
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
