package hygiene

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// modulePath is the library's module; packages are named relative to it, the
// root package by ".".
const modulePath = "github.com/warmcache/warmcache"

// pkg is what the go command knows about one package of the library's module.
type pkg struct {
	ImportPath string
	// Imports are direct, Deps are all. Neither includes those of tests.
	Imports, Deps []string
	// GoFiles is empty for a package that consists of tests.
	GoFiles []string
}

// sourceFile is a parsed Go file of any module in the repository.
type sourceFile struct {
	// path is relative to the root of the repository, with slashes.
	path string
	fset *token.FileSet
	*ast.File
}

func (f sourceFile) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// dir is the directory relative to the root; "." for the root.
func (f sourceFile) dir() string { return filepath.ToSlash(filepath.Dir(f.path)) }

// at returns the position of a node as path:line.
func (f sourceFile) at(pos token.Pos) string {
	return f.fset.Position(pos).String()
}

// root returns the directory of the repository.
func root(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatalf("go env GOMOD: %v", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out)))
}

// listPackages returns the packages of the library's module.
func listPackages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Deps,GoFiles", "./...")
	cmd.Dir = root(t)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	packages := decodePackages(t, out)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("go list: %v", err)
	}
	return packages
}

func decodePackages(t *testing.T, r io.Reader) []pkg {
	t.Helper()
	var packages []pkg
	for decoder := json.NewDecoder(r); ; {
		var p pkg
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatalf("decoding the output of go list: %v", err)
		}
		packages = append(packages, p)
	}
}

// sourceFiles parses every Go file in the repository, whatever its module and
// build constraints.
func sourceFiles(t *testing.T) []sourceFile {
	t.Helper()
	dir := root(t)
	var files []sourceFile
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != dir && (strings.HasPrefix(name, ".") || name == "testdata"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files = append(files, parse(t, filepath.ToSlash(rel), string(src)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func parse(t *testing.T, path, src string) sourceFile {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return sourceFile{path: path, fset: fset, File: file}
}

// relative names a package of the module relative to it and leaves other import
// paths as they are.
func relative(importPath string) string {
	if importPath == modulePath {
		return "."
	}
	return strings.TrimPrefix(importPath, modulePath+"/")
}

// matchesAny reports whether name equals one of the patterns, or is one of them
// or below it where the pattern ends in "/...".
func matchesAny(patterns []string, name string) bool {
	for _, pattern := range patterns {
		prefix, tree := strings.CutSuffix(pattern, "/...")
		if name == prefix || tree && strings.HasPrefix(name, prefix+"/") {
			return true
		}
	}
	return false
}
