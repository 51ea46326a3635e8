package versions

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// built is a directory for what the tests build.
var built string

// version is a version of the program. It is built by the first test that uses it.
type version struct {
	name string
	// rules is the variable of that name; revision another one that changes nothing
	// but the build.
	rules, revision string
	// tags are build tags, parts the version of the module that is depended on.
	tags, parts string
	// recoded gives it a codec with another format of records.
	recoded bool

	once sync.Once
	path string
	err  error
}

var (
	first      = &version{name: "first", rules: "tier", parts: "parts1"}
	rebuilt    = &version{name: "rebuilt", rules: "tier", parts: "parts1", revision: "2"}
	otherRules = &version{name: "otherRules", rules: "role", parts: "parts1"}
	gained     = &version{name: "gained", rules: "tier", parts: "parts1", tags: "gained"}
	upgraded   = &version{name: "upgraded", rules: "tier", parts: "parts2"}
	recoded    = &version{name: "recoded", rules: "tier", parts: "parts1", recoded: true}
)

// executable returns the path of the program.
func (v *version) executable(t *testing.T) string {
	t.Helper()
	v.once.Do(func() { v.path, v.err = v.build() })
	if v.err != nil {
		t.Fatal(v.err)
	}
	return v.path
}

func (v *version) build() (path string, err error) {
	dir := filepath.Join(built, v.name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	path = filepath.Join(dir, "program")
	arguments := []string{
		"build", "-buildvcs=false", "-tags=" + v.tags, "-o", path,
		"-ldflags=-s -w -X main.rules=" + v.rules + " -X main.revision=" + v.revision,
	}
	for flag, prepare := range map[string]func(dir string) (string, error){"-modfile=": v.module, "-overlay=": v.overlay} {
		file, err := prepare(dir)
		if err != nil {
			return "", err
		}
		if file != "" {
			arguments = append(arguments, flag+file)
		}
	}
	if out, err := exec.Command("go", append(arguments, "./testdata/program")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building version %s: %w\n%s", v.name, err, out)
	}
	return path, alike(path)
}

// alike gives all versions the same size and time, as images that can be reproduced do:
// programs are told apart by their content.
func alike(path string) error {
	return errors.Join(os.Truncate(path, 256<<20), os.Chtimes(path, time.Time{}, time.Unix(0, 0)))
}

// root is that of the module.
const root = "../.."

// module writes a go.mod that is ours, plus the module of the parts.
func (v *version) module(dir string) (string, error) {
	source, err := os.ReadFile(filepath.Join("testdata", v.parts, "parts.go"))
	if err != nil {
		return "", err
	}
	ours, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", err
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		return "", err
	}
	parts := filepath.Join(dir, "parts")
	mod := filepath.Join(dir, "go.mod")
	return mod, errors.Join(
		os.Mkdir(parts, 0o700),
		os.WriteFile(filepath.Join(parts, "parts.go"), source, 0o600),
		os.WriteFile(filepath.Join(parts, "go.mod"), []byte("module example.com/parts\n"), 0o600),
		os.WriteFile(mod, fmt.Appendf(ours, "\nrequire example.com/parts v0.0.0\nreplace example.com/parts => %s\n", parts), 0o600),
		os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600),
	)
}

// overlay puts another format of records into the codec.
func (v *version) overlay(dir string) (string, error) {
	if !v.recoded {
		return "", nil
	}
	original, err := filepath.Abs(filepath.Join(root, "codec", "envelope.go"))
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	const ours, other = "const formatVersion = 1\n", "const formatVersion = 99\n"
	if !strings.Contains(string(source), ours) {
		return "", fmt.Errorf("%s has no %q", original, ours)
	}
	changed := filepath.Join(dir, "envelope.go")
	replacements, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, errors.Join(
		os.WriteFile(changed, []byte(strings.Replace(string(source), ours, other, 1)), 0o600),
		os.WriteFile(overlay, replacements, 0o600),
	)
}
