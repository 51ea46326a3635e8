package funcid

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestBuild_IsWhatTheGoCommandSays compares with the tool, for the format of this system.
func TestBuild_IsWhatTheGoCommandSays(t *testing.T) {
	want, err := exec.CommandContext(t.Context(), "go", "tool", "buildid", os.Args[0]).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := build(); got != strings.TrimSpace(string(want)) || !isOfContent(got) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestIdentify_ByContent checks programs whose build ID says nothing.
func TestIdentify_ByContent(t *testing.T) {
	identity := func(content string) string {
		t.Helper()
		id, err := identify(bytes.NewReader([]byte(content)))
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	const id = "hash-of-the-actions/hash-of-the-package/hash-of-its-content/hash-of-the-content"
	for _, test := range []struct {
		name, one, other string
		same             bool
	}{
		{"no ID", "a program", "b program", false},
		{"no ID, same content", "a program", "a program", true},
		{"the same ID", marker + `"` + id + `" a`, marker + `"` + id + `" b`, true},
		{"other IDs", marker + `"` + id + `"`, marker + `"` + id + `s"`, false},
		{"empty IDs", marker + `"" a`, marker + `"" b`, false},
		{"IDs that were set", marker + `"redacted" a`, marker + `"redacted" b`, false},
		{"IDs that were set to paths", marker + `"a/b/c/d" a`, marker + `"a/b/c/d" b`, false},
		{"an ID that does not end", marker + `"` + id + ` a`, marker + `"` + id + ` b`, false},
		{"too far behind", strings.Repeat(" ", markerWithin) + marker + `"` + id + `" a`, strings.Repeat(" ", markerWithin) + marker + `"` + id + `" b`, false},
	} {
		if one, other := identity(test.one), identity(test.other); (one == other) != test.same {
			t.Errorf("%s: %q and %q", test.name, one, other)
		}
	}
}
