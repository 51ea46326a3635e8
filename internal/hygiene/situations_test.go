package hygiene

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	// situationsDoc says what is made of a world that has changed meanwhile, in tables
	// that begin with situationsHead.
	situationsDoc  = "docs/operations.md"
	situationsHead = "| situation | how it is recognised | what happens | lists | test |"
)

// checkSituations reports rows that are not complete, or name no test that exists.
func checkSituations(markdown string, tests map[string]bool) (rows int, problems []string) {
	within := false
	for n, line := range strings.Split(markdown, "\n") {
		complain := func(format string, args ...any) {
			problems = append(problems, fmt.Sprintf("%s:%d: ", situationsDoc, n+1)+fmt.Sprintf(format, args...))
		}
		switch {
		case line == situationsHead:
			within = true
			continue
		case !strings.HasPrefix(line, "|"):
			within = false
			continue
		case !within || strings.HasPrefix(line, "|-"):
			continue
		}
		rows++
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 5 {
			complain("%d cells, want 5", len(cells))
			continue
		}
		for i := range cells {
			if cells[i] = strings.TrimSpace(cells[i]); cells[i] == "" {
				complain("cell %d is empty", i+1)
			}
		}
		named := ourTest.FindAllStringSubmatch(cells[4], -1)
		if len(named) == 0 && cells[4] != "the same" {
			complain("no test")
		}
		for _, test := range named {
			if !tests[test[1]+"."+test[2]] {
				complain("there is no test %s", test[0])
			}
		}
	}
	return rows, problems
}

// TestSituations_HaveTests checks that what operators are told is tested.
func TestSituations_HaveTests(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(root(t), situationsDoc))
	if err != nil {
		t.Fatal(err)
	}
	rows, problems := checkSituations(string(doc), ourTests(t))
	for _, problem := range problems {
		t.Error(problem)
	}
	if rows == 0 {
		t.Errorf("%s has no table that begins with %q", situationsDoc, situationsHead)
	}
}

func TestCheckSituations(t *testing.T) {
	for _, test := range []struct {
		name, row string
		problems  int
	}{
		{"good", "| expired | 410 | list | 1 | `fifo.TestQueue_Add` |", 0},
		{"as above", "| expired | 410 | list | 1 | the same |", 0},
		{"cells", "| expired | 410 | list | `fifo.TestQueue_Add` |", 1},
		{"empty", "| expired |  | list | 1 | `fifo.TestQueue_Add` |", 1},
		{"no test", "| expired | 410 | list | 1 | - |", 1},
		{"unknown test", "| expired | 410 | list | 1 | `fifo.TestHeap_Add` |", 1},
	} {
		markdown := situationsHead + "\n|---|---|---|---|---|\n" + test.row + "\n"
		rows, problems := checkSituations(markdown, map[string]bool{"fifo.TestQueue_Add": true})
		if rows != 1 || len(problems) != test.problems {
			t.Errorf("%s: %d rows, %d problems, want %d: %q", test.name, rows, len(problems), test.problems, problems)
		}
	}
}
