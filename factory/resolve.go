package factory

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
)

// apiResource is what a clientset reveals about one type of object.
//
// A clientset is an interface with an accessor per group-version (CoreV1), which
// returns an interface with an accessor per resource (Pods), which returns a
// client. The client whose Get returns the type, and which can List and Watch,
// is the one that an informer of that type needs. Reading this from the static
// types means that it holds for every implementation, real, fake or wrapped, and
// that nothing is called before the informer runs.
type apiResource struct {
	gvr schema.GroupVersionResource
	// object is the pointer type that Get returns.
	object reflect.Type
	// group and accessor are the names of the two methods on the way.
	group, accessor string
	// namespaced says whether the accessor takes a namespace.
	namespaced bool
}

// String names the accessor as it is called, for error messages.
func (r apiResource) String() string {
	return r.group + "()." + r.accessor
}

// resourceTable has everything that can be listed and watched through one type
// of clientset.
type resourceTable struct {
	// byType may have several entries for a type, which is then not resolved;
	// byGVR has only what is.
	byType map[reflect.Type][]apiResource
	byGVR  map[schema.GroupVersionResource]apiResource
}

// clientsetResources is the table of client-go's clientset. Building it takes a
// walk over some 700 methods, so that it is done once per process, and only in
// a process that has a typed factory.
var clientsetResources = sync.OnceValue(func() resourceTable {
	return newResourceTable(reflect.TypeFor[kubernetes.Interface](), scheme.Scheme)
})

// newResourceTable walks the accessors of an interface type. typer tells which
// group and version a Go type belongs to.
func newResourceTable(clientset reflect.Type, typer runtime.ObjectTyper) resourceTable {
	table := resourceTable{
		byType: map[reflect.Type][]apiResource{},
		byGVR:  map[schema.GroupVersionResource]apiResource{},
	}
	for group := range clientset.Methods() {
		if group.Type.NumIn() != 0 || group.Type.NumOut() != 1 || group.Type.Out(0).Kind() != reflect.Interface {
			continue
		}
		for accessor := range group.Type.Out(0).Methods() {
			if r, ok := resourceOf(accessor, typer); ok {
				r.group = group.Name
				table.byType[r.object] = append(table.byType[r.object], r)
			}
		}
	}
	for _, found := range table.byType {
		if len(found) == 1 {
			table.byGVR[found[0].gvr] = found[0]
		}
	}
	return table
}

// resourceOf says what an accessor of a group-version gives access to, or false
// if that cannot be listed and watched.
func resourceOf(accessor reflect.Method, typer runtime.ObjectTyper) (apiResource, bool) {
	namespaced, ok := takesNamespace(accessor.Type)
	if !ok {
		return apiResource{}, false
	}
	object, ok := listedObject(accessor.Type.Out(0))
	if !ok {
		return apiResource{}, false
	}
	kinds, _, err := typer.ObjectKinds(newObject(object))
	if err != nil || len(kinds) != 1 {
		return apiResource{}, false
	}
	return apiResource{
		// Clients are generated with the plural kind as the name of the
		// accessor, of which the resource name is the lower case.
		gvr:        kinds[0].GroupVersion().WithResource(strings.ToLower(accessor.Name)),
		object:     object,
		accessor:   accessor.Name,
		namespaced: namespaced,
	}, true
}

// takesNamespace tells func(string) Client from func() Client, and both from
// anything else.
func takesNamespace(accessor reflect.Type) (namespaced, ok bool) {
	if accessor.NumOut() != 1 || accessor.Out(0).Kind() != reflect.Interface {
		return false, false
	}
	switch accessor.NumIn() {
	case 0:
		return false, true
	case 1:
		return true, accessor.In(0).Kind() == reflect.String
	}
	return false, false
}

// watcher is the Watch method of every generated client.
type watcher interface {
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

var (
	contextType     = reflect.TypeFor[context.Context]()
	errorType       = reflect.TypeFor[error]()
	listOptionsType = reflect.TypeFor[metav1.ListOptions]()
	objectType      = reflect.TypeFor[runtime.Object]()
	watcherType     = reflect.TypeFor[watcher]()
)

// listedObject returns the type of the objects that a client gets, lists and
// watches. It checks the signatures so completely that calling List through
// reflection cannot panic.
func listedObject(client reflect.Type) (reflect.Type, bool) {
	get, hasGet := client.MethodByName("Get")
	list, hasList := client.MethodByName("List")
	if !hasGet || !hasList || !client.Implements(watcherType) {
		return nil, false
	}
	if l := list.Type; l.NumIn() != 2 || l.In(0) != contextType || l.In(1) != listOptionsType ||
		l.NumOut() != 2 || !l.Out(0).Implements(objectType) || l.Out(1) != errorType {
		return nil, false
	}
	if get.Type.NumOut() != 2 {
		return nil, false
	}
	object := get.Type.Out(0)
	return object, object.Kind() == reflect.Pointer && object.Implements(objectType)
}

// newObject returns an empty object of a pointer type that implements
// runtime.Object.
func newObject(pointer reflect.Type) runtime.Object {
	return reflect.New(pointer.Elem()).Interface().(runtime.Object)
}

// resourceFor returns the resource whose objects have the given type, or an
// error wrapping ErrUnknownResource if there is not exactly one.
func (t resourceTable) resourceFor(object reflect.Type) (apiResource, error) {
	switch found := t.byType[object]; len(found) {
	case 1:
		return found[0], nil
	case 0:
		return apiResource{}, fmt.Errorf("%w for %v: nothing lists and watches it", ErrUnknownResource, object)
	default:
		return apiResource{}, fmt.Errorf("%w for %v: %v all do", ErrUnknownResource, object, found)
	}
}

// requireType reports a type that an option names and that nothing lists.
func (t resourceTable) requireType(option string, object reflect.Type) error {
	if _, err := t.resourceFor(object); err != nil {
		return invalid("%s: %w", option, err)
	}
	return nil
}

// requireResource reports a resource that an option names and that nothing lists.
func (t resourceTable) requireResource(option string, gvr schema.GroupVersionResource) error {
	if _, ok := t.byGVR[gvr]; !ok {
		return invalid("%s: the clientset has no resource %v", option, gvr)
	}
	return nil
}
