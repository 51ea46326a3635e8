package hygiene

import (
	"fmt"
	"go/ast"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// parityDoc says, behaviour by behaviour, how ours compares with client-go's.
const parityDoc = "docs/parity.md"

// parityDirs are the directories of client-go whose tests it must account for.
var parityDirs = []string{
	"tools/cache",
	"tools/cache/synctrack",
	"tools/cache/testing",
	"dynamic/dynamicinformer",
	"metadata/metadatainformer",
}

// verdicts are what the last column of a row may begin with.
var verdicts = []string{"same", "better", "different", "not applicable"}

// ourTest names a test as package.TestName, with the package's directory or the
// last element of it.
var ourTest = regexp.MustCompile(`\b([a-z][\w/]*)\.((?:Test|Fuzz|Example|Benchmark)\w*)`)

// parityRow is a row of a table: behaviour, client-go's tests, ours, verdict.
type parityRow struct {
	line                              int
	behaviour, theirs, ours, standing string
}

// parityRows reads the tables of a document.
func parityRows(markdown string) (rows []parityRow, problems []string) {
	for n, line := range strings.Split(markdown, "\n") {
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|-") || strings.HasPrefix(line, "| behaviour |") {
			continue
		}
		// A bar within a cell is written \|.
		cells := strings.Split(strings.ReplaceAll(line, `\|`, "\x00"), "|")
		if len(cells) != 6 {
			problems = append(problems, fmt.Sprintf("%s:%d: %d cells, want 4", parityDoc, n+1, len(cells)-2))
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, parityRow{n + 1, cells[1], cells[2], cells[3], cells[4]})
	}
	return rows, problems
}

// checkRow checks a row against the tests that exist, named as ourTest does.
func checkRow(row parityRow, tests map[string]bool) (problems []string) {
	complain := func(format string, args ...any) {
		problems = append(problems, fmt.Sprintf("%s:%d: ", parityDoc, row.line)+fmt.Sprintf(format, args...))
	}
	standing := slices.IndexFunc(verdicts, func(v string) bool { return strings.HasPrefix(row.standing, v) })
	switch named := ourTest.FindAllStringSubmatch(row.ours, -1); {
	case row.behaviour == "" || row.theirs == "":
		complain("a cell is empty")
	case standing < 0:
		complain("the last cell begins with none of %q", verdicts)
	case standing > 0 && len(row.standing) <= len(verdicts[standing])+2:
		complain("%q needs a reason", row.standing)
	case verdicts[standing] != "not applicable" && len(named) == 0:
		complain("no test of ours")
	default:
		for _, test := range named {
			if !tests[test[1]+"."+test[2]] {
				complain("there is no test %s", test[0])
			}
		}
	}
	return problems
}

// ourTests returns the names of all tests in the repository, by directory and by
// the last element of it.
func ourTests(t *testing.T) map[string]bool {
	tests := map[string]bool{}
	for _, file := range sourceFiles(t) {
		if !file.isTest() {
			continue
		}
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil {
				tests[file.dir()+"."+fn.Name.Name] = true
				tests[path.Base(file.dir())+"."+fn.Name.Name] = true
			}
		}
	}
	return tests
}

// clientGoTests returns the tests of a directory of client-go, by file.
func clientGoTests(t *testing.T, dir string) map[string][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/client-go")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -m k8s.io/client-go: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("client-go has no tests in %s: %v", dir, err)
	}
	tests := map[string][]string{}
	for _, name := range files {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parse(t, filepath.Base(name), string(src)).Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") && fn.Name.Name != "TestMain" {
				tests[filepath.Base(name)] = append(tests[filepath.Base(name)], fn.Name.Name)
			}
		}
	}
	return tests
}

// TestParity_AccountsForEveryTestOfClientGo checks that no behaviour that client-go
// pins was overlooked, also after an update of client-go, and that what the document
// says of our tests is true.
func TestParity_AccountsForEveryTestOfClientGo(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(root(t), parityDoc))
	if err != nil {
		t.Fatal(err)
	}
	rows, problems := parityRows(string(doc))
	tests, theirs := ourTests(t), map[string]bool{}
	for _, row := range rows {
		problems = append(problems, checkRow(row, tests)...)
		for _, name := range regexp.MustCompile(`\w+(\.go)?`).FindAllString(row.theirs, -1) {
			theirs[name] = true
		}
	}
	for _, dir := range parityDirs {
		for file, names := range clientGoTests(t, dir) {
			for _, name := range names {
				if !theirs[file] && !theirs[name] {
					problems = append(problems, fmt.Sprintf("%s: client-go's %s/%s: %s is not mentioned", parityDoc, dir, file, name))
				}
			}
		}
	}
	for _, problem := range problems {
		t.Error(problem)
	}
}

func TestParityRows(t *testing.T) {
	const row = "| adds | TestAdd | fifo.TestQueue_Add | same |"
	for _, test := range []struct {
		name, markdown string
		problems       int
	}{
		{"good", "| behaviour | x | y | |\n|---|---|---|---|\n" + row, 0},
		{"good by directory", strings.Replace(row, "fifo.", "store/bolt.", 1), 0},
		{"not applicable", "| heap | heap_test.go | - | not applicable: client-go's own is used |", 0},
		{"bar in a cell", `| a \| b | TestAdd | fifo.TestQueue_Add | same |`, 0},
		{"cells", "| adds | TestAdd | same |", 1},
		{"empty", "| adds |  | fifo.TestQueue_Add | same |", 1},
		{"no test", "| adds | TestAdd | - | same |", 1},
		{"unknown test", strings.Replace(row, "Queue", "Heap", 1), 1},
		{"unknown verdict", strings.Replace(row, "same", "good", 1), 1},
		{"no reason", strings.Replace(row, "same", "better", 1), 1},
	} {
		rows, problems := parityRows(test.markdown)
		for _, row := range rows {
			problems = append(problems, checkRow(row, map[string]bool{"fifo.TestQueue_Add": true, "store/bolt.TestQueue_Add": true})...)
		}
		if len(problems) != test.problems {
			t.Errorf("%s: %d problems, want %d: %q", test.name, len(problems), test.problems, problems)
		}
	}
}
