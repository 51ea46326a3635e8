package hygiene

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// layer says which packages of this module a package may import, besides its own
// internal packages and the shared helpers.
type layer struct {
	pkg     string
	may     []string
	because string
}

// layers is the picture
//
//	factory → informer → {reflector, fifo, indexer} → store
//	indexer → codec          store/bolt → store, migrations
//
// in full. The first entry that matches a package counts.
var layers = []layer{
	{".", nil, "the root package is documentation"},
	{"store", nil, "a contract depends on none of its implementations or users"},
	{"store/storetest", []string{"store", "store/internal/..."}, "the conformance suite knows the contract, not an engine on disk"},
	{"store/bolt", []string{"store", "store/internal/...", "migrations"}, "an engine keeps opaque bytes; it never decodes objects"},
	{"store/bolt/bolttest", []string{"store", "store/bolt", "migrations"}, "tests of the engine, for other packages' tests"},
	{"store/internal/...", []string{"store"}, "engines share code below the contract's users"},
	{"migrations", []string{"store"}, "steps between formats outlive today's codec and informer"},
	{"codec", []string{"store"}, "records are sealed by the contract's checksum and have no other context"},
	{"indexer", []string{"store", "codec"}, "an indexer translates between objects and a collection"},
	{"fifo", []string{"store"}, "the queue knows deltas, not how objects are stored"},
	{"reflector", []string{"store"}, "the state machine knows versions, not how objects are stored"},
	{"audit", nil, "what is compared is not for the one who compares to know"},
	{"informer", []string{"store", "codec", "indexer", "fifo", "reflector", "audit"}, "an informer works on any engine"},
	{"factory", []string{"store", "codec", "indexer", "informer", "reflector"}, "the user brings the engine; the indexer knows which residency can be meant"},
	{"restmapper", []string{"store", "codec", "indexer"}, "what a server offers is kept like objects, without an informer"},
	{"metrics", []string{"store", "informer", "reflector", "audit"}, "an optional reader of what the library reports; the phases are the reflector's, the results the audit's"},
	{"internal/hygiene", nil, "it reads sources, it does not link them"},
	{"internal/apitest/...", []string{"internal/apitest/..."}, "a double that shares code with the library would share its mistakes"},
	{"internal/...", nil, "shared helpers are leaves, so that every package may use them"},
	{"examples/...", []string{".", "store/...", "codec", "informer", "factory", "metrics", "internal/apitest/..."}, "examples join an engine to informers, as users do"},
}

// library are the packages that users link into their programs.
var library = []string{"store", "store/bolt", "store/internal/...", "migrations", "codec", "indexer", "fifo", "reflector", "audit", "informer", "factory", "restmapper", "metrics", "."}

// everything is the whole module, whose go.mod is a library user's burden.
var everything = append([]string{"store/storetest", "store/bolt/bolttest", "internal/...", "examples/..."}, library...)

// importRule forbids packages in from, unless they are in except, to depend on
// those in to: at all, or if direct, by an import of their own.
type importRule struct {
	from, except, to []string
	direct           bool
	because          string
}

var importRules = []importRule{
	{
		from: everything, except: []string{"store/bolt/...", "migrations"}, to: []string{"go.etcd.io/bbolt/..."}, direct: true,
		because: "only the bbolt engine, and the steps between its formats, know bbolt",
	},
	{
		from: library, except: []string{"store/bolt", "migrations"}, to: []string{"go.etcd.io/bbolt/..."},
		because: "the engine is exchangeable: only examples and commands join one to an informer",
	},
	{
		from: everything, to: []string{"k8s.io/kubernetes/...", "k8s.io/kubectl/...", "k8s.io/apiserver/...", "go.etcd.io/etcd/...", "sigs.k8s.io/controller-runtime/...", "github.com/spf13/cobra/..."},
		because: "a library user's go.mod must not carry them; put such code in a module of its own",
	},
	{
		from: everything, except: []string{"metrics", "examples/..."}, to: []string{"github.com/prometheus/..."},
		because: "collectors are an optional import",
	},
	{
		from: library, to: []string{"testing", "go.uber.org/goleak", "pgregory.net/rapid", "github.com/google/go-cmp/..."}, direct: true,
		because: "test code does not belong in a user's program",
	},
	{
		from: library, to: []string{"flag", "expvar", "net/http/pprof"}, direct: true,
		because: "importing a library must not change the program's flags or handlers",
	},
	{
		from: library, to: []string{"log", "log/slog"}, direct: true,
		because: "logging is contextual, through klog",
	},
}

func TestImports_FollowTheLayers(t *testing.T) {
	for _, p := range listPackages(t) {
		for _, problem := range checkLayers(p) {
			t.Error(problem)
		}
	}
}

func TestImports_KeepForeignPackagesOut(t *testing.T) {
	for _, p := range listPackages(t) {
		for _, problem := range checkImportRules(p, importRules) {
			t.Error(problem)
		}
	}
}

func checkLayers(p pkg) (problems []string) {
	name := relative(p.ImportPath)
	i := slices.IndexFunc(layers, func(l layer) bool { return matchesAny([]string{l.pkg}, name) })
	if i < 0 {
		return []string{name + " has no entry in the table of layers: say there what it may import, and why"}
	}
	for _, imported := range p.Imports {
		to := relative(imported)
		if to == imported && imported != modulePath || isOwnInternal(name, to) || isHelper(to) || matchesAny(layers[i].may, to) {
			continue
		}
		problems = append(problems, fmt.Sprintf("%s imports %s, but may import only %v: %s", name, to, layers[i].may, layers[i].because))
	}
	return problems
}

// isOwnInternal reports whether to is below from's internal directory.
func isOwnInternal(from, to string) bool {
	return strings.HasPrefix(to, from+"/internal/")
}

// isHelper reports whether a package is a leaf that every other may use.
func isHelper(name string) bool {
	return matchesAny([]string{"internal/..."}, name) && !matchesAny([]string{"internal/apitest/...", "internal/hygiene"}, name)
}

func checkImportRules(p pkg, rules []importRule) (problems []string) {
	name := relative(p.ImportPath)
	for _, rule := range rules {
		if !matchesAny(rule.from, name) || matchesAny(rule.except, name) {
			continue
		}
		dependencies, verb := p.Deps, "depends on"
		if rule.direct {
			dependencies, verb = p.Imports, "imports"
		}
		for _, dependency := range dependencies {
			if matchesAny(rule.to, dependency) {
				problems = append(problems, fmt.Sprintf("%s %s %s: %s", name, verb, dependency, rule.because))
			}
		}
	}
	return problems
}

func TestCheckLayers(t *testing.T) {
	for _, test := range []struct {
		name, from, to string
		problems       int
	}{
		{"downwards", "informer", modulePath + "/reflector", 0},
		{"upwards", "reflector", modulePath + "/informer", 1},
		{"sideways", "fifo", modulePath + "/indexer", 1},
		{"an engine", "informer", modulePath + "/store/bolt", 1},
		{"an engine, joined by an example", "examples/edge", modulePath + "/store/bolt", 0},
		{"own internal package", "reflector", modulePath + "/reflector/internal/rounds", 0},
		{"another's internal package", "fifo", modulePath + "/reflector/internal/rounds", 1},
		{"a shared helper", "reflector", modulePath + "/internal/parallel", 0},
		{"a helper that is no leaf", "internal/parallel", modulePath + "/store", 1},
		{"the test double", "reflector", modulePath + "/internal/apitest", 1},
		{"the root package", "store", modulePath, 1},
		{"another module", "store", "k8s.io/klog/v2", 0},
		{"the standard library", "store", "time", 0},
		{"a package nobody thought of", "util", "time", 1},
	} {
		p := pkg{ImportPath: modulePath + "/" + test.from, Imports: []string{test.to}}
		if got := checkLayers(p); len(got) != test.problems {
			t.Errorf("%s: %q, want %d problems", test.name, got, test.problems)
		}
	}
}

func TestCheckImportRules(t *testing.T) {
	const bbolt = "go.etcd.io/bbolt"
	for _, test := range []struct {
		name, from    string
		imports, deps []string
		problems      int
	}{
		{"engine", "store/bolt", []string{bbolt}, []string{bbolt, bbolt + "/errors"}, 0},
		{"direct", "examples/edge", []string{bbolt}, []string{bbolt}, 1},
		{"through an engine, library", "fifo", nil, []string{bbolt}, 1},
		{"through an engine, example", "examples/edge", nil, []string{bbolt}, 0},
		{"kubectl", "examples/edge", nil, []string{"k8s.io/kubectl/pkg/describe"}, 1},
		{"collectors", "metrics", nil, []string{"github.com/prometheus/client_golang/prometheus"}, 0},
		{"collectors elsewhere", "informer", nil, []string{"github.com/prometheus/client_golang/prometheus"}, 1},
		{"testing in the conformance suite", "store/storetest", []string{"testing"}, []string{"testing"}, 0},
		{"testing in the library", "codec", []string{"testing"}, []string{"testing"}, 1},
		{"a similar name", "codec", []string{"testing/fstest2"}, []string{"go.etcd.io/bboltx"}, 0},
	} {
		p := pkg{ImportPath: modulePath + "/" + test.from, Imports: test.imports, Deps: test.deps}
		if got := checkImportRules(p, importRules); len(got) != test.problems {
			t.Errorf("%s: %q, want %d problems", test.name, got, test.problems)
		}
	}
}
