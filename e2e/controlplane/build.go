package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Binaries are the paths of the built servers.
type Binaries struct {
	Etcd, APIServer string
}

// Build builds etcd and kube-apiserver, or finds them built. It must run inside
// the e2e module. Progress goes to progress, one line every few seconds while
// it builds and nothing when there is nothing to do.
//
// Several processes may call it at once: one builds, the others wait. A build
// that is interrupted leaves no half-written binary, and the next one goes on
// from Go's build cache.
func Build(ctx context.Context, progress io.Writer) (Binaries, error) {
	src, err := findSource(ctx)
	if err != nil {
		return Binaries{}, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return Binaries{}, fmt.Errorf("finding a place for the server binaries: %w", err)
	}
	dir := filepath.Join(cache, "warmcache", "e2e", src.key)
	bin := Binaries{Etcd: filepath.Join(dir, "etcd"), APIServer: filepath.Join(dir, "kube-apiserver")}
	if bin.exist() {
		return bin, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Binaries{}, fmt.Errorf("creating the directory of the server binaries: %w", err)
	}
	unlock, err := lockFile(ctx, filepath.Join(dir, "lock"), progress)
	if err != nil {
		return Binaries{}, err
	}
	defer unlock()
	for _, path := range []string{bin.Etcd, bin.APIServer} {
		if err := src.build(ctx, path, progress); err != nil {
			return Binaries{}, err
		}
	}
	return bin, nil
}

func (b Binaries) exist() bool {
	return exists(b.Etcd) && exists(b.APIServer)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// source is the module of the servers.
type source struct {
	dir string
	// key changes when what is built would.
	key string
	// version is the Kubernetes release. Unless it is told, the server calls
	// itself v0.0.0-master, which no real server does.
	version string
}

func findSource(ctx context.Context) (source, error) {
	goMod, err := goOutput(ctx, "", "env", "GOMOD")
	if err != nil {
		return source{}, err
	}
	dir := filepath.Join(filepath.Dir(goMod), "servers")
	if !exists(filepath.Join(dir, "go.mod")) {
		return source{}, fmt.Errorf("no module of the servers at %s: run this inside the e2e module", dir)
	}
	toolchain, err := goOutput(ctx, dir, "env", "GOVERSION", "GOOS", "GOARCH", "CGO_ENABLED")
	if err != nil {
		return source{}, err
	}
	version, err := goOutput(ctx, dir, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return source{}, err
	}
	key, err := hashTree(dir, toolchain)
	return source{dir: dir, key: key, version: version}, err
}

// hashTree hashes salt and the names and contents of all files below dir.
func hashTree(dir, salt string) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, salt)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(hash, "%s %d\n%s", filepath.ToSlash(name), len(content), content)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("hashing the sources of the servers: %w", err)
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}

// build builds the command named like the last element of path, unless it is
// there. It writes beside path and renames, so that path is never incomplete.
func (s source) build(ctx context.Context, path string, progress io.Writer) error {
	if exists(path) {
		return nil
	}
	name := filepath.Base(path)
	ldflags := "-s -w -X k8s.io/component-base/version.gitVersion=" + s.version
	tmp := path + ".tmp"
	cmd := goCommand(ctx, s.dir, "build", "-v", "-ldflags", ldflags, "-o", tmp, "./"+name)
	reporter := newBuildReporter(progress, name)
	cmd.Stdout, cmd.Stderr = reporter, reporter
	err := cmd.Run()
	reporter.close()
	if err != nil {
		return fmt.Errorf("building %s: %w; the end of the output:\n%s", name, err, reporter.tail())
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("building %s: %w", name, err)
	}
	return nil
}

// goOutput runs the go command and returns what it prints.
func goOutput(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := goCommand(ctx, dir, args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// A workspace would replace the versions that the servers are pinned to.
	cmd.Env = append(os.Environ(), "GOWORK=off")
	return cmd
}
