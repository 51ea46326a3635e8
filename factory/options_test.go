package factory

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	metadatafake "k8s.io/client-go/metadata/fake"

	"github.com/warmcache/warmcache/internal/apitest"
)

// TestOption_SaysThatItWasGiven checks in the source that every option is made by
// option, with its own name: config.refuse depends on it.
func TestOption_SaysThatItWasGiven(t *testing.T) {
	found := 0
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() || f.Type.Results == nil || !isIdent(f.Type.Results.List[0].Type, "Option") {
				continue
			}
			found++
			if !returnsOption(f) {
				t.Errorf("%s does not return option(%q, ...)", f.Name, f.Name)
			}
		}
	}
	if found < 16 {
		t.Errorf("found %d options", found)
	}
}

func isIdent(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

func returnsOption(f *ast.FuncDecl) bool {
	result, ok := f.Body.List[len(f.Body.List)-1].(*ast.ReturnStmt)
	if !ok {
		return false
	}
	call, ok := result.Results[0].(*ast.CallExpr)
	if !ok || !isIdent(call.Fun, "option") {
		return false
	}
	name, ok := call.Args[0].(*ast.BasicLit)
	return ok && name.Value == strconv.Quote(f.Name.Name)
}

// TestConstructors_RefuseOptions checks options that are fine with another
// constructor.
func TestConstructors_RefuseOptions(t *testing.T) {
	newDynamic := func(opts ...Option) error {
		_, err := NewDynamic(dynamicfake.NewSimpleDynamicClient(scheme.Scheme), nil, opts...)
		return err
	}
	newMetadata := func(opts ...Option) error {
		_, err := NewMetadata(metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()), nil, opts...)
		return err
	}
	newTyped := func(opts ...Option) error {
		_, err := New(fake.NewClientset(), nil, opts...)
		return err
	}
	byType := WithCustomResyncConfig(map[metav1.Object]time.Duration{&corev1.Pod{}: time.Hour})
	for _, test := range []struct {
		make func(...Option) error
		opts []Option
		want string // empty if it is fine
	}{
		{newDynamic, []Option{WithResync(time.Hour), byType}, "NewDynamic has no use for WithCustomResyncConfig"},
		{newMetadata, []Option{WithResync(time.Hour), byType}, "NewMetadata has no use for WithCustomResyncConfig"},
		{newTyped, []Option{byType}, ""},
		{newDynamic, []Option{WithoutPersistence(&corev1.Pod{})}, "NewDynamic has no use for WithoutPersistence: "},
		{newMetadata, []Option{WithoutPersistence(&corev1.Pod{})}, "use WithoutPersistenceOf"},
		{newMetadata, []Option{WithoutPersistenceOf(configMaps), WithPlaintextSecrets(), WithTransformVersion("1"), nil}, ""},
		{newDynamic, []Option{WithNamespace("A")}, `WithNamespace: "A"`},
		{newMetadata, []Option{WithResync(-1)}, "WithResync: -1ns"},
	} {
		err := test.make(test.opts...)
		if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, ErrInvalidOptions) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("error = %v, want one with %q", err, test.want)
		}
	}
}

func TestNewDynamic_NilClient(t *testing.T) {
	if f, err := NewDynamic(nil, nil); f != nil || !errors.Is(err, ErrInvalidOptions) {
		t.Errorf("got %v, %v", f, err)
	}
	if f, err := NewDynamic((*dynamicfake.FakeDynamicClient)(nil), nil); f != nil || !errors.Is(err, ErrInvalidOptions) {
		t.Errorf("got %v, %v", f, err)
	}
}

func TestNewMetadata_NilClient(t *testing.T) {
	if f, err := NewMetadata(nil, nil); f != nil || !errors.Is(err, ErrInvalidOptions) {
		t.Errorf("got %v, %v", f, err)
	}
}

func TestWithTransformVersion(t *testing.T) {
	f := must(New(fake.NewClientset(), newStore(), WithTransformVersion("7")))
	calls := record(f)
	f.Core().V1().Pods().Informer()
	if got := only(t, calls).options.TransformVersion; got != "7" {
		t.Errorf("transform version = %q", got)
	}
}

// TestWithTransformVersion_SaysWhetherStoredObjectsAreUsed sets the transform where
// users do who do not give it to the factory.
func TestWithTransformVersion_SaysWhetherStoredObjectsAreUsed(t *testing.T) {
	throughEachDoor(t, func(t *testing.T, server *apitest.Server, d door) {
		db := newStore()
		create(t, server, configMap("a"))
		for _, run := range []struct {
			version string
			lists   int
		}{{"1", 1}, {"1", 0}, {"2", 1}} {
			f := d.real(t, server, db, WithListBelow(-1), WithTransformVersion(run.version))
			inf := f.ForResource(configMaps).Informer()
			if err := inf.SetTransform(func(obj any) (any, error) { return obj, nil }); err != nil {
				t.Fatal(err)
			}
			stop := runFactory(t, f)
			f.WaitForCacheSync(t.Context().Done())
			if lists := statusOf(inf).Lists; lists != run.lists {
				t.Errorf("version %s: %d lists, want %d", run.version, lists, run.lists)
			}
			stop()
		}
	})
}

// TestWithDiscovery checks that a schema that changed while the process was away
// leads to a list.
func TestWithDiscovery(t *testing.T) {
	throughEachDoor(t, func(t *testing.T, server *apitest.Server, d door) {
		db := newStore()
		create(t, server, apitest.Widget("default", "w", 1))
		client := discoveryClient(t, server)
		run := func() (reason string) {
			f := d.real(t, server, db, WithListBelow(-1), WithDiscovery(client))
			inf := f.ForResource(widgets).Informer()
			stop := runFactory(t, f)
			defer stop()
			f.WaitForCacheSync(t.Context().Done())
			return statusOf(inf).ListReason
		}
		run()
		if reason := run(); reason != "" {
			t.Errorf("listed: %s", reason)
		}
		if err := server.ChangeSchema(widgets, nil); err != nil {
			t.Fatal(err)
		}
		if reason := run(); !strings.Contains(reason, "schema") {
			t.Errorf("list reason %q, want the schema", reason)
		}
	})
}
