// Package funcid tells whether a function is still the one that made stored
// data: the index functions and transforms of users leave their results in the
// file, and a newer program must notice when it would compute others.
package funcid

import (
	"reflect"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
)

// closure matches the symbols that the compiler gives to function literals and
// bound methods.
// Their behaviour depends on captured variables, which may come from anywhere in
// the program.
var closure = regexp.MustCompile(`\.func\d+(\.\d+)*(-range\d+)?$|\.gowrap\d+$|-fm$`)

// wellKnown functions have meant the same in every version of client-go; a
// client-go update is no reason to rebuild what they made.
var wellKnown = map[string]bool{
	"k8s.io/client-go/tools/cache.MetaNamespaceIndexFunc": true,
}

// Of identifies fn, which must be a function, as its symbol and the version of
// what determines it: the module it is in, or the build of the program when
// that is the main module or a development version, or when fn is a function
// literal. perBuild is true in the latter cases: every new build then counts as
// a change.
func Of(fn any) (id string, perBuild bool) {
	symbol := symbolOf(fn)
	if symbol == "" {
		return "unknown function, build " + build(), true
	}
	if wellKnown[symbol] {
		return symbol, false
	}
	if info, ok := debug.ReadBuildInfo(); ok && !closure.MatchString(symbol) {
		if version := moduleVersion(symbol, info); version != "" {
			return symbol + "@" + version, false
		}
	}
	return symbol + ", build " + build(), true
}

func symbolOf(fn any) string {
	v := reflect.ValueOf(fn)
	if v.Kind() != reflect.Func || v.IsNil() {
		return ""
	}
	f := runtime.FuncForPC(v.Pointer())
	if f == nil {
		return ""
	}
	return f.Name()
}

// moduleVersion returns the version of the dependency that symbol belongs to, or
// "" for the main module, a replaced one, or an unknown one.
func moduleVersion(symbol string, info *debug.BuildInfo) string {
	var found *debug.Module
	for _, dep := range info.Deps {
		if inModule(symbol, dep.Path) && (found == nil || len(dep.Path) > len(found.Path)) {
			found = dep
		}
	}
	if found == nil || found.Replace != nil || found.Version == "(devel)" {
		return ""
	}
	return found.Version
}

func inModule(symbol, path string) bool {
	rest, ok := strings.CutPrefix(symbol, path)
	return ok && rest != "" && (rest[0] == '/' || rest[0] == '.')
}
