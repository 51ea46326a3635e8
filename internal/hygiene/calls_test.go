package hygiene

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// place is a set of kinds of code.
type place int

const (
	inLibrary place = 1 << iota
	inMain
	inTests

	everywhere = inLibrary | inMain | inTests
)

// callRule forbids calls of a function. Name is a path.Match pattern; an empty
// pkg means a built-in function.
type callRule struct {
	pkg, name string
	where     place
	because   string
	// except are patterns of paths that the rule does not apply to.
	except []string
}

var callRules = []callRule{
	{pkg: "", name: "panic", where: inLibrary | inMain, because: "return an error: a panic takes the user's controller down"},
	{pkg: "", name: "print*", where: everywhere, because: "a leftover of debugging"},
	{pkg: "os", name: "Exit", where: inLibrary, because: "only main decides when the process ends"},
	{pkg: "log", name: "Fatal*", where: inLibrary, because: "only main decides when the process ends"},
	{pkg: "log", name: "Panic*", where: inLibrary, because: "return an error"},
	{pkg: "k8s.io/klog/v2", name: "Fatal*", where: inLibrary, because: "only main decides when the process ends"},
	{pkg: "k8s.io/klog/v2", name: "Exit*", where: inLibrary, because: "only main decides when the process ends"},
	{pkg: "fmt", name: "Print*", where: inLibrary, because: "standard output is the user's"},
	{pkg: "time", name: "Sleep", where: everywhere, because: "wait for a condition, a channel or the clock of a synctest bubble"},
	{
		pkg: modulePath + "/store/bolt", name: "Open", where: inTests,
		because: "use bolttest.Open, which checks the whole file when the test ends",
		// The engine's own tests damage files; examples have no testing.TB.
		except: []string{"store/bolt/*", "example_test.go", "*/example_test.go"},
	},
}

func TestCalls_NothingForbidden(t *testing.T) {
	files := sourceFiles(t)
	bubbles := bubbleFuncs(files)
	for _, file := range files {
		for _, problem := range checkCalls(file, bubbles[file.dir()], callRules) {
			t.Error(problem)
		}
	}
}

// checkCalls reports forbidden calls without an allowance, and allowances
// without a call or a reason. What is passed to the functions in bubbles runs in
// a synctest bubble.
func checkCalls(file sourceFile, bubbles []string, rules []callRule) (problems []string) {
	imports := importNames(file.File)
	allowances := findAllowances(file)
	for _, call := range callsOutsideHelpers(file.File, imports, bubbles) {
		rule, forbidden := match(rules, call, file)
		if !forbidden || allowances.use(file.fset.Position(call.pos).Line, call.spelling()) {
			continue
		}
		problems = append(problems, fmt.Sprintf("%s: %s: %s", file.at(call.pos), call.spelling(), rule.because))
	}
	return append(problems, allowances.problems(file.path)...)
}

func placeOf(file sourceFile) place {
	switch {
	case file.isTest():
		return inTests
	case file.Name.Name == "main":
		return inMain
	}
	return inLibrary
}

// call is a call of a package's function, or of a built-in one.
type call struct {
	pkg, name string
	pos       token.Pos
}

// spelling is how the call is usually written: "time.Sleep", "panic".
func (c call) spelling() string {
	if c.pkg == "" {
		return c.name
	}
	return defaultName(c.pkg) + "." + c.name
}

// callsOutsideHelpers finds calls, but no sleeps in functions other than tests of
// a file that deals with bubbles: such functions are called in one.
func callsOutsideHelpers(file *ast.File, imports map[string]string, bubbles []string) (found []call) {
	inBubbles := imports["synctest"] == "testing/synctest"
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		helper := ok && inBubbles && !strings.HasPrefix(fn.Name.Name, "Test")
		for _, c := range calls(decl, imports, bubbles) {
			if !helper || c.spelling() != "time.Sleep" {
				found = append(found, c)
			}
		}
	}
	return found
}

// calls finds calls by syntax. A function that is passed on as a value, or a
// local one named like a built-in, is not told apart; neither occurs by accident.
func calls(node ast.Node, imports map[string]string, bubbles []string) (found []call) {
	ast.Inspect(node, func(node ast.Node) bool {
		expr, ok := node.(*ast.CallExpr)
		if !ok {
			return true
		}
		c := call{pos: expr.Pos()}
		switch fun := expr.Fun.(type) {
		case *ast.Ident:
			if isAbort(expr, imports) {
				return true
			}
			c.name = fun.Name
		case *ast.SelectorExpr:
			if x, ok := fun.X.(*ast.Ident); ok {
				c.pkg, c.name = imports[x.Name], fun.Sel.Name
			}
			if c.pkg == "" {
				return true // A method.
			}
		}
		found = append(found, c)
		// In a bubble, sleeping is exact and takes no time.
		return !isBubble(c) && (c.pkg != "" || !slices.Contains(bubbles, c.name))
	})
	return found
}

func isBubble(c call) bool { return c.pkg == "testing/synctest" && c.name == "Test" }

// bubbleFuncs returns, for each directory, the functions that start a bubble:
// tests wrap synctest.Test in helpers of their own, and those in others.
func bubbleFuncs(files []sourceFile) map[string][]string {
	bubbles := map[string][]string{}
	for grown := true; grown; {
		grown = false
		for _, file := range files {
			for _, name := range startsBubble(file, bubbles[file.dir()]) {
				bubbles[file.dir()] = append(bubbles[file.dir()], name)
				grown = true
			}
		}
	}
	return bubbles
}

// startsBubble returns the functions of a file, other than the known ones, that
// call a function that starts a bubble. Nothing is passed on to tests, so that
// they do not count.
func startsBubble(file sourceFile, known []string) (names []string) {
	imports := importNames(file.File)
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || strings.HasPrefix(fn.Name.Name, "Test") || slices.Contains(known, fn.Name.Name) {
			continue
		}
		if slices.ContainsFunc(calls(fn, imports, known), func(c call) bool {
			return isBubble(c) || c.pkg == "" && slices.Contains(known, c.name)
		}) {
			names = append(names, fn.Name.Name)
		}
	}
	return names
}

// isAbort recognises panic(http.ErrAbortHandler), which is how net/http lets a
// handler cut its connection; the server recovers it.
func isAbort(expr *ast.CallExpr, imports map[string]string) bool {
	if len(expr.Args) != 1 {
		return false
	}
	arg, ok := expr.Args[0].(*ast.SelectorExpr)
	if !ok || arg.Sel.Name != "ErrAbortHandler" {
		return false
	}
	x, ok := arg.X.(*ast.Ident)
	return ok && imports[x.Name] == "net/http"
}

func match(rules []callRule, c call, file sourceFile) (callRule, bool) {
	for _, rule := range rules {
		if matches(rule.name, c.name) && rule.pkg == c.pkg && rule.where&placeOf(file) != 0 &&
			!slices.ContainsFunc(rule.except, func(pattern string) bool { return matches(pattern, file.path) }) {
			return rule, true
		}
	}
	return callRule{}, false
}

func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// importNames maps the name that a file gives a package to its import path.
func importNames(file *ast.File) map[string]string {
	names := map[string]string{}
	for _, spec := range file.Imports {
		importPath, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // The parser has accepted it.
		}
		name := defaultName(importPath)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = importPath
	}
	return names
}

var majorVersion = regexp.MustCompile(`^v\d+$`)

// defaultName guesses a package's name from its import path.
func defaultName(importPath string) string {
	dir, base := path.Split(importPath)
	if majorVersion.MatchString(base) {
		base = path.Base(dir)
	}
	return base
}

// allowance is a comment that permits one call on its line or the next.
type allowance struct {
	line     int
	spelling string
	reason   string
	used     bool
}

type allowances []*allowance

func findAllowances(file sourceFile) (found allowances) {
	for _, group := range file.Comments {
		for _, comment := range group.List {
			text, ok := strings.CutPrefix(comment.Text, "//hygiene:allow ")
			if !ok {
				continue
			}
			spelling, reason, _ := strings.Cut(text, ":")
			found = append(found, &allowance{
				line: file.fset.Position(comment.Pos()).Line, spelling: spelling, reason: strings.TrimSpace(reason),
			})
		}
	}
	return found
}

// use reports whether a call in the given line is allowed.
func (all allowances) use(line int, spelling string) bool {
	for _, a := range all {
		if a.spelling == spelling && (a.line == line || a.line == line-1) {
			a.used = true
			return true
		}
	}
	return false
}

func (all allowances) problems(path string) (problems []string) {
	for _, a := range all {
		switch {
		case !a.used:
			problems = append(problems, fmt.Sprintf("%s:%d: allows %s, but nothing there needs it", path, a.line, a.spelling))
		case a.reason == "":
			problems = append(problems, fmt.Sprintf("%s:%d: allows %s without a reason", path, a.line, a.spelling))
		}
	}
	return problems
}

func TestCheckCalls(t *testing.T) {
	const header = "package p\n\nimport (\n\t\"fmt\"\n\t\"net/http\"\n\t\"os\"\n\t\"testing/synctest\"\n\ttick \"time\"\n\t\"github.com/warmcache/warmcache/store/bolt\"\n\t\"k8s.io/klog/v2\"\n)\n\n"
	for _, test := range []struct {
		name, path, body string
		problems         int
	}{
		{"panic", "p.go", `panic("x")`, 1},
		{"panic in a test", "p_test.go", `panic("x")`, 0},
		{"panic that cuts a connection", "p.go", `panic(http.ErrAbortHandler)`, 0},
		{"exit", "p.go", `os.Exit(1)`, 1},
		{"print", "p.go", `fmt.Println(1)`, 1},
		{"print to a writer", "p.go", `fmt.Fprintln(os.Stderr, 1)`, 0},
		{"built-in print", "p_test.go", `println(1)`, 1},
		{"klog", "p.go", `klog.Fatalf("x")`, 1},
		{"renamed import", "p.go", `tick.Sleep(1)`, 1},
		{"sleep in a test", "p_test.go", `tick.Sleep(1)`, 1},
		{"sleep in a bubble", "p_test.go", `synctest.Test(nil, func() { tick.Sleep(1) })`, 0},
		{"sleep in a helper's bubble", "p_test.go", `inBubble(func() { tick.Sleep(1) })`, 0},
		{"sleep in a helper of a helper", "p_test.go", `inOther(func() { tick.Sleep(1) })`, 0},
		{"a method of that name", "p.go", `var clock c; clock.Sleep(1)`, 0},
		{"allowed on the line", "p.go", "tick.Sleep(1) //hygiene:allow time.Sleep: no event for this", 0},
		{"allowed above", "p.go", "//hygiene:allow time.Sleep: no event for this\n\ttick.Sleep(1)", 0},
		{"allowed without a reason", "p.go", "tick.Sleep(1) //hygiene:allow time.Sleep", 1},
		{"allowed something else", "p.go", "tick.Sleep(1) //hygiene:allow panic: no event for this", 2},
		{"a store in a test", "p/p_test.go", `bolt.Open("", bolt.Options{})`, 1},
		{"a store in a program", "p/p.go", `bolt.Open("", bolt.Options{})`, 0},
		{"a store in the engine's test", "store/bolt/p_test.go", `bolt.Open("", bolt.Options{})`, 0},
		{"a store in an example", "p/example_test.go", `bolt.Open("", bolt.Options{})`, 0},
		{"allowed for nothing", "p.go", "//hygiene:allow time.Sleep: no event for this", 1},
	} {
		const helper = "func inOther(f func()) {\n\tinBubble(f)\n}\n\nfunc inBubble(f func()) {\n\tsynctest.Test(nil, f)\n}\n\n" +
			"func helper() {\n\ttick.Sleep(1)\n}\n\n"
		file := parse(t, test.path, header+helper+"func TestF() {\n\t"+test.body+"\n}\n")
		bubbles := bubbleFuncs([]sourceFile{file})["."]
		if got := checkCalls(file, bubbles, callRules); len(got) != test.problems {
			t.Errorf("%s: %q, want %d problems", test.name, got, test.problems)
		}
	}
	main := parse(t, "main.go", "package main\n\nimport \"os\"\n\nfunc main() {\n\tos.Exit(1)\n}\n")
	if got := checkCalls(main, nil, callRules); len(got) != 0 {
		t.Errorf("exit in a command: %q, want no problem", got)
	}
}
