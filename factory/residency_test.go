package factory

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store"
)

// informFunc makes the informer of a resource.
type informFunc = func(schema.GroupVersionResource)

// asking calls a constructor. It returns the builder that makes the informers, and
// what has it make one.
type asking func(db store.Store, opts []Option) (*builder, informFunc, error)

// askings are the doors. That of NewInformerFunc knows ConfigMaps and Secrets.
var askings = map[string]asking{
	"New": func(db store.Store, opts []Option) (*builder, informFunc, error) {
		f, err := New(fake.NewClientset(), db, opts...)
		if err != nil {
			return nil, nil, err
		}
		return f.builder, func(gvr schema.GroupVersionResource) { must(f.ForResource(gvr)).Informer() }, nil
	},
	"NewDynamic": func(db store.Store, opts []Option) (*builder, informFunc, error) {
		f, err := NewDynamic(dynamicfake.NewSimpleDynamicClient(scheme.Scheme), db, opts...)
		if err != nil {
			return nil, nil, err
		}
		return f.builder, func(gvr schema.GroupVersionResource) { f.ForResource(gvr) }, nil
	},
	"NewMetadata": func(db store.Store, opts []Option) (*builder, informFunc, error) {
		f, err := NewMetadata(metadatafake.NewSimpleMetadataClient(scheme.Scheme), db, opts...)
		if err != nil {
			return nil, nil, err
		}
		return f.builder, func(gvr schema.GroupVersionResource) { f.ForResource(gvr) }, nil
	},
	"Adopt": func(db store.Store, opts []Option) (*builder, informFunc, error) {
		client := fake.NewClientset()
		a, err := newAdoption(informers.NewSharedInformerFactory(client, 0), reflect.TypeFor[kubernetes.Interface](), db, opts)
		if err != nil {
			return nil, nil, err
		}
		return a.builder, func(gvr schema.GroupVersionResource) { a.inform(client, a.table.byGVR[gvr], 0) }, nil
	},
	"NewInformerFunc": func(db store.Store, opts []Option) (*builder, informFunc, error) {
		f, err := newInformerFunc(db, "", opts)
		if err != nil {
			return nil, nil, err
		}
		examples := map[schema.GroupVersionResource]runtime.Object{configMaps: &corev1.ConfigMap{}, secrets: &corev1.Secret{}}
		return f.builder, func(gvr schema.GroupVersionResource) { f.make(&cache.ListWatch{}, examples[gvr], 0, nil) }, nil
	},
}

// optionsOf returns the options with which a door makes the informer of a resource.
func optionsOf(t *testing.T, door string, gvr schema.GroupVersionResource, opts ...Option) informer.Options {
	t.Helper()
	b, inform, err := askings[door](newStore(), opts)
	if err != nil {
		t.Fatalf("%s: %v", door, err)
	}
	calls := recordBuilder(b)
	inform(gvr)
	return only(t, calls).options // one that is refused would be built twice
}

// onDisk is the residency of most of these tests.
const onDisk, mebi = informer.Disk, 1 << 20

func TestEachDoor_Residency(t *testing.T) {
	inMemory := WithResidencyFor(informer.Memory, 0, &corev1.ConfigMap{})
	byType := map[string]bool{"New": true, "Adopt": true, "NewInformerFunc": true}
	byResource := map[string]bool{"New": true, "Adopt": true, "NewDynamic": true, "NewMetadata": true}
	every := map[string]bool{"New": true, "Adopt": true, "NewInformerFunc": true, "NewDynamic": true, "NewMetadata": true}
	for name, test := range map[string]struct {
		doors  map[string]bool
		opts   []Option
		gvr    schema.GroupVersionResource
		want   informer.Residency
		budget int64
	}{
		"default":                  {every, nil, configMaps, informer.Memory, 0},
		"all on disk":              {every, []Option{WithResidency(onDisk, 0)}, configMaps, onDisk, 0},
		"with a budget":            {every, []Option{WithResidency(onDisk, mebi)}, configMaps, onDisk, mebi},
		"the later":                {every, []Option{WithResidency(onDisk, mebi), WithResidency(informer.Memory, 0)}, configMaps, informer.Memory, 0},
		"type":                     {byType, []Option{WithResidencyFor(onDisk, mebi, &corev1.Secret{}, &corev1.ConfigMap{})}, configMaps, onDisk, mebi},
		"other type":               {byType, []Option{WithResidencyFor(onDisk, mebi, &corev1.Secret{})}, configMaps, informer.Memory, 0},
		"type before all":          {byType, []Option{inMemory, WithResidency(onDisk, 0)}, configMaps, informer.Memory, 0},
		"type after all":           {byType, []Option{WithResidency(onDisk, 0), inMemory}, configMaps, informer.Memory, 0},
		"the later for a type":     {byType, []Option{inMemory, WithResidencyFor(onDisk, mebi, &corev1.ConfigMap{})}, configMaps, onDisk, mebi},
		"resource":                 {byResource, []Option{WithResidencyForResource(onDisk, mebi, nodes, configMaps)}, configMaps, onDisk, mebi},
		"other resource":           {byResource, []Option{WithResidencyForResource(onDisk, mebi, nodes)}, configMaps, informer.Memory, 0},
		"resource before all":      {byResource, []Option{WithResidencyForResource(informer.Memory, 0, configMaps), WithResidency(onDisk, 0)}, configMaps, informer.Memory, 0},
		"resource after its type":  {map[string]bool{"New": true, "Adopt": true}, []Option{inMemory, WithResidencyForResource(onDisk, mebi, configMaps)}, configMaps, onDisk, mebi},
		"resource before its type": {map[string]bool{"New": true, "Adopt": true}, []Option{WithResidencyForResource(onDisk, mebi, configMaps), inMemory}, configMaps, informer.Memory, 0},
		// The informer refuses to write them, and is in memory then.
		"secrets": {every, []Option{WithResidency(onDisk, mebi)}, secrets, onDisk, mebi},
	} {
		for door := range test.doors {
			if o := optionsOf(t, door, test.gvr, test.opts...); o.Residency != test.want || o.MemoryBudget != test.budget {
				t.Errorf("%s: %s: %v with a budget of %d, want %v with %d", name, door, o.Residency, o.MemoryBudget, test.want, test.budget)
			}
		}
	}
}

// TestWithResidency_WithoutPersistence has types that are not persisted in a factory
// whose types are on disk.
func TestWithResidency_WithoutPersistence(t *testing.T) {
	unselectable := WithTweakListOptions(func(o *metav1.ListOptions) { o.ResourceVersion = "0" })
	for name, test := range map[string]struct {
		door string
		opt  Option
	}{
		"type":     {"New", WithoutPersistence(&corev1.ConfigMap{})},
		"resource": {"NewDynamic", WithoutPersistenceOf(configMaps)},
		"function": {"NewInformerFunc", WithoutPersistence(&corev1.ConfigMap{})},
	} {
		if o := optionsOf(t, test.door, configMaps, WithResidency(onDisk, mebi), test.opt); o.Residency != informer.Memory || o.MemoryBudget != 0 || o.Store != nil {
			t.Errorf("%s: %+v", name, o)
		}
	}
	if o := optionsOf(t, "NewMetadata", configMaps, WithResidency(onDisk, mebi), unselectable); o.Store == nil || o.Residency != onDisk {
		t.Errorf("an informer that will say why it is in memory: %+v", o)
	}
}

func TestNewInformerFunc_Residency_OfUnstructured(t *testing.T) {
	f := must(newInformerFunc(newStore(), "", []Option{WithResidencyFor(onDisk, 0, &unstructured.Unstructured{})}))
	calls := recordBuilder(f.builder)
	f.make(&cache.ListWatch{}, newUnstructured(configMapKind), 0, nil)
	f.make(&cache.ListWatch{}, newMetadata(configMapKind), 0, nil)
	if (*calls)[0].options.Residency != onDisk || (*calls)[1].options.Residency != informer.Memory {
		t.Error("the residency does not go by the Go type")
	}
}

func TestEachDoor_Residency_Invalid(t *testing.T) {
	noResource := schema.GroupVersionResource{}
	pods := corev1.SchemeGroupVersion.WithResource("pod")
	for _, test := range []struct {
		doors string
		opts  []Option
		want  []string
	}{
		{"New NewDynamic NewMetadata Adopt NewInformerFunc", []Option{WithResidency(informer.Disk+1, 0)}, []string{"WithResidency: "}},
		{"New NewDynamic NewMetadata Adopt NewInformerFunc", []Option{WithResidency(onDisk, -1)}, []string{"WithResidency: ", "-1"}},
		{"New NewDynamic NewMetadata Adopt NewInformerFunc", []Option{WithResidency(onDisk, mebi-1)}, []string{"WithResidency: ", "1048575", "1048576"}},
		{"New NewDynamic NewMetadata Adopt NewInformerFunc", []Option{WithResidency(informer.Memory, mebi)}, []string{"WithResidency: "}},
		{"New Adopt NewInformerFunc", []Option{WithResidencyFor(onDisk, 0, &corev1.Pod{}, nil)}, []string{"WithResidencyFor: an object is nil"}},
		{"New Adopt NewInformerFunc", []Option{WithResidencyFor(onDisk, -7, &corev1.Pod{})}, []string{"WithResidencyFor: ", "-7"}},
		{"New Adopt NewInformerFunc", []Option{WithResidencyFor(informer.Memory, mebi, &corev1.Pod{})}, []string{"WithResidencyFor: "}},
		{"New Adopt", []Option{WithResidencyFor(informer.Memory, 0, &metav1.Status{})}, []string{"WithResidencyFor: ", "*v1.Status"}},
		{"New NewDynamic NewMetadata Adopt", []Option{WithResidencyForResource(onDisk, 0, configMaps, noResource)}, []string{"WithResidencyForResource: a resource is empty"}},
		{"New NewDynamic NewMetadata Adopt", []Option{WithResidencyForResource(onDisk, 5, configMaps)}, []string{"WithResidencyForResource: ", "5 bytes"}},
		{"New Adopt", []Option{WithResidencyForResource(onDisk, 0, pods)}, []string{"WithResidencyForResource: the clientset has no resource", "pod"}},
		{"NewDynamic NewMetadata", []Option{WithResidencyFor(onDisk, 0, &corev1.Pod{})}, []string{"has no use for WithResidencyFor: ", "use WithResidencyForResource"}},
		{"NewInformerFunc", []Option{WithResidencyForResource(onDisk, 0, configMaps)}, []string{"has no use for WithResidencyForResource: ", "use WithResidencyFor"}},
		{"New Adopt NewInformerFunc", []Option{WithResidencyFor(onDisk, 0, &corev1.Pod{}), WithoutPersistence(&corev1.Pod{})}, []string{"WithResidencyFor: *v1.Pod", "WithoutPersistence"}},
		{"New NewDynamic NewMetadata Adopt", []Option{WithoutPersistenceOf(configMaps), WithResidencyForResource(onDisk, 0, configMaps)}, []string{"WithResidencyForResource: /v1, Resource=configmaps", "WithoutPersistenceOf"}},
	} {
		for _, door := range strings.Fields(test.doors) {
			_, _, err := askings[door](newStore(), test.opts)
			wantInvalid(t, door, err, test.want...)
		}
	}
}

func TestEachDoor_Residency_DiskWithoutStore(t *testing.T) {
	for door, ask := range askings {
		_, _, err := ask(nil, []Option{WithResidency(onDisk, 0)})
		wantInvalid(t, door, err, "WithResidency: Disk needs a store; open one, or leave the option out")
		if _, _, err := ask(nil, []Option{WithResidency(informer.Memory, 0)}); err != nil {
			t.Errorf("%s: %v", door, err)
		}
	}
	_, _, err := askings["New"](nil, []Option{WithResidencyFor(onDisk, 0, &corev1.Pod{})})
	wantInvalid(t, "New", err, "WithResidencyFor: Disk needs a store; open one, or leave the option out")
}

// wantInvalid checks that err says what option cannot be meant.
func wantInvalid(t *testing.T, door string, err error, want ...string) {
	t.Helper()
	for _, part := range want {
		if !errors.Is(err, ErrInvalidOptions) || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, want ErrInvalidOptions with %q", door, err, part)
		}
	}
}

// TestAdopt_UnknownTypes checks types that the clientset of the factory does not have.
func TestAdopt_UnknownTypes(t *testing.T) {
	_, _, err := askings["Adopt"](newStore(), []Option{WithoutPersistence(&metav1.Status{})})
	wantInvalid(t, "Adopt", err, "WithoutPersistence: ", "*v1.Status")
}
