package funcid

import (
	"runtime/debug"
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"
)

func mine(any) ([]string, error) { return nil, nil }

type receiver struct{}

func (receiver) index(any) ([]string, error) { return nil, nil }

func TestOf_WellKnownFunctionIsStable(t *testing.T) {
	id, perBuild := Of(cache.MetaNamespaceIndexFunc)
	if perBuild || id != "k8s.io/client-go/tools/cache.MetaNamespaceIndexFunc" {
		t.Errorf("got %q, per build %v", id, perBuild)
	}
}

func TestModuleVersion_LongestPathWins(t *testing.T) {
	info := &debug.BuildInfo{Deps: []*debug.Module{
		{Path: "example.com/a", Version: "v1.0.0"},
		{Path: "example.com/a/b", Version: "v1.2.0"},
		{Path: "example.com/replaced", Version: "v1.0.0", Replace: &debug.Module{Path: "../here"}},
	}}
	for symbol, want := range map[string]string{
		"example.com/a.F":        "v1.0.0",
		"example.com/a/b/c.F":    "v1.2.0",
		"example.com/ab.F":       "",
		"example.com/replaced.F": "",
		"main.main":              "",
	} {
		if got := moduleVersion(symbol, info); got != want {
			t.Errorf("moduleVersion(%q) = %q, want %q", symbol, got, want)
		}
	}
}

func TestOf_FollowsTheBuild(t *testing.T) {
	captured := "x"
	for name, fn := range map[string]any{
		"main module":           mine,
		"method value":          receiver{}.index,
		"literal":               func(any) ([]string, error) { return []string{captured}, nil },
		"literal of dependency": cache.IndexFuncToKeyFuncAdapter(mine),
		"nil":                   cache.IndexFunc(nil),
		"no function":           7,
	} {
		if id, perBuild := Of(fn); !perBuild || !strings.Contains(id, "build "+build()) {
			t.Errorf("%s: got %q, per build %v", name, id, perBuild)
		}
	}
}

func TestOf_TellsFunctionsApart(t *testing.T) {
	a, _ := Of(mine)
	b, _ := Of(cache.MetaNamespaceIndexFunc)
	if again, _ := Of(mine); a == b || again != a {
		t.Errorf("got %q, %q, then %q", a, b, again)
	}
}
