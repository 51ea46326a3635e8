package hygiene

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

func TestDocs_EveryPackageHasAComment(t *testing.T) {
	for _, problem := range checkPackageComments(sourceFiles(t)) {
		t.Error(problem)
	}
}

func TestDocs_EveryExportedNameIsDocumented(t *testing.T) {
	for _, file := range sourceFiles(t) {
		if !isPublic(file) {
			continue
		}
		for _, problem := range checkExported(file) {
			t.Error(problem)
		}
	}
}

// isPublic reports whether users can import what the file declares.
func isPublic(file sourceFile) bool {
	return !file.isTest() && file.Name.Name != "main" && !slices.Contains(strings.Split(file.dir(), "/"), "internal")
}

// checkPackageComments wants exactly one package comment per package: godoc
// strings several together in an order nobody chose.
func checkPackageComments(files []sourceFile) (problems []string) {
	comments := map[string]int{}
	for _, file := range files {
		if file.isTest() {
			continue
		}
		n := 0
		if file.Doc.Text() != "" {
			n = 1
		}
		comments[file.dir()] += n
	}
	for dir, n := range comments {
		if n != 1 {
			problems = append(problems, fmt.Sprintf("package in %s has %d package comments, want one", dir, n))
		}
	}
	slices.Sort(problems)
	return problems
}

// selfExplaining are methods whose meaning is the same on every type.
var selfExplaining = []string{"Error", "String", "Unwrap"}

// checkExported reports exported names without a comment: functions, methods,
// types, methods of interfaces, constants and variables. One comment may speak
// for a group. Fields are left to judgement.
func checkExported(file sourceFile) (problems []string) {
	missing := func(name *ast.Ident, comments ...*ast.CommentGroup) {
		if !name.IsExported() || slices.ContainsFunc(comments, func(c *ast.CommentGroup) bool { return c.Text() != "" }) {
			return
		}
		problems = append(problems, fmt.Sprintf("%s: exported %s has no comment", file.at(name.Pos()), name.Name))
	}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if receiverIsExported(decl) && (decl.Recv == nil || !slices.Contains(selfExplaining, decl.Name.Name)) {
				missing(decl.Name, decl.Doc)
			}
		case *ast.GenDecl:
			if decl.Tok != token.IMPORT {
				checkSpecs(decl, missing)
			}
		}
	}
	return problems
}

func checkSpecs(decl *ast.GenDecl, missing func(*ast.Ident, ...*ast.CommentGroup)) {
	for _, spec := range decl.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			missing(spec.Name, spec.Doc, decl.Doc)
			checkInterface(spec, missing)
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				missing(name, spec.Doc, spec.Comment, decl.Doc)
			}
		}
	}
}

func checkInterface(spec *ast.TypeSpec, missing func(*ast.Ident, ...*ast.CommentGroup)) {
	iface, ok := spec.Type.(*ast.InterfaceType)
	if !ok || !spec.Name.IsExported() {
		return
	}
	for _, method := range iface.Methods.List {
		for _, name := range method.Names {
			missing(name, method.Doc, method.Comment)
		}
	}
}

// receiverIsExported is true for functions.
func receiverIsExported(decl *ast.FuncDecl) bool {
	if decl.Recv == nil {
		return true
	}
	expr := decl.Recv.List[0].Type
	for {
		switch x := expr.(type) {
		case *ast.StarExpr:
			expr = x.X
		case *ast.IndexExpr:
			expr = x.X
		case *ast.IndexListExpr:
			expr = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return true
		}
	}
}

func TestCheckExported(t *testing.T) {
	for _, test := range []struct {
		name, src string
		problems  int
	}{
		{"function", "func F() {}", 1},
		{"documented function", "// F does.\nfunc F() {}", 0},
		{"unexported function", "func f() {}", 0},
		{"method", "// T is.\ntype T struct{}\n\nfunc (t *T) M() {}", 1},
		{"method every error has", "// T is.\ntype T struct{}\n\nfunc (t *T) Error() string { return \"\" }", 0},
		{"function of that name", "func Error() string { return \"\" }", 1},
		{"method of a generic type", "// T is.\ntype T[A, B any] struct{}\n\nfunc (t *T[A, B]) M() {}", 1},
		{"method of an unexported type", "type t struct{}\n\nfunc (t) M() {}", 0},
		{"type", "type T struct{}", 1},
		{"only a directive", "//go:notinheap\ntype T struct{}", 1},
		{"interface method", "// T is.\ntype T interface {\n\tM()\n\tn()\n}", 1},
		{"group with one comment", "// Kinds of things.\nconst (\n\tA = 1\n\tB = 2\n)", 0},
		{"group without", "var (\n\tA = 1\n\tb = 2\n\tC = 3 // C is three.\n)", 1},
	} {
		if got := checkExported(parse(t, "p.go", "package p\n\n"+test.src+"\n")); len(got) != test.problems {
			t.Errorf("%s: %q, want %d problems", test.name, got, test.problems)
		}
	}
}

func TestCheckPackageComments(t *testing.T) {
	const documented, bare = "// Package p is.\npackage p\n", "package p\n"
	for _, test := range []struct {
		name     string
		sources  map[string]string
		problems int
	}{
		{"one of two files", map[string]string{"a/x.go": documented, "a/y.go": bare}, 0},
		{"none", map[string]string{"a/x.go": bare}, 1},
		{"two", map[string]string{"a/x.go": documented, "a/y.go": documented}, 1},
		{"only tests", map[string]string{"a/x_test.go": bare}, 0},
		{"a comment in a test", map[string]string{"a/x.go": bare, "a/x_test.go": documented}, 1},
	} {
		var files []sourceFile
		for path, src := range test.sources {
			files = append(files, parse(t, path, src))
		}
		if got := checkPackageComments(files); len(got) != test.problems {
			t.Errorf("%s: %q, want %d problems", test.name, got, test.problems)
		}
	}
}

func TestIsPublic(t *testing.T) {
	for path, want := range map[string]bool{
		"store/store.go":           true,
		"store/store_test.go":      false,
		"internal/apitest/x.go":    false,
		"store/internal/memory.go": false,
		"internals/x.go":           true,
	} {
		if got := isPublic(parse(t, path, "package p\n")); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}
