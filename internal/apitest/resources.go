package apitest

import (
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
)

// resource is one row of the table of served resources.
type resource struct {
	gvr        schema.GroupVersionResource
	gvk        schema.GroupVersionKind
	namespaced bool
	// custom resources exist as unstructured JSON only.
	custom bool
	// uncached resources have no watch cache in a real server's default
	// configuration, so their watches get no periodic bookmarks.
	uncached bool
	// aggregated says in what its server differs.
	aggregated Aggregated
}

// CustomResource describes a resource that is not in client-go's scheme. It is
// served as a CustomResourceDefinition would be: JSON only, except for its
// metadata.
type CustomResource struct {
	GVR        schema.GroupVersionResource
	Kind       string
	Namespaced bool
}

// Widgets is a ready-made custom resource: example.com/v1 widgets, namespaced.
var Widgets = CustomResource{
	GVR:        schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
	Kind:       "Widget",
	Namespaced: true,
}

func (c CustomResource) resource() *resource {
	return &resource{
		gvr:        c.GVR,
		gvk:        c.GVR.GroupVersion().WithKind(c.Kind),
		namespaced: c.Namespaced,
		custom:     true,
	}
}

// newObject returns an empty object of the resource, without a kind unless it
// is unstructured.
func (r *resource) newObject() (runtime.Object, error) {
	if !r.custom {
		return scheme.Scheme.New(r.gvk)
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(r.gvk)
	return u, nil
}

// key is the storage key. Lists are ordered by its bytes, as in etcd.
func (r *resource) key(namespace, name string) string {
	if !r.namespaced {
		return name
	}
	return namespace + "/" + name
}

// builtinResources lists what client-go's clientset can list and watch. The
// clientset is the one place that knows both the plural and the scope of every
// kind in the scheme.
var builtinResources = sync.OnceValue(func() []*resource {
	var all []*resource
	clientset := reflect.TypeFor[kubernetes.Interface]()
	for group := range clientset.Methods() {
		if group.Type.NumIn() != 0 || group.Type.NumOut() != 1 {
			continue
		}
		out := group.Type.Out(0)
		if out.Kind() != reflect.Interface {
			continue
		}
		for accessor := range out.Methods() {
			if r := resourceOf(accessor); r != nil {
				all = append(all, r)
			}
		}
	}
	return all
})

// resourceOf reads an accessor such as Pods(namespace) or Nodes(). It returns
// nil for anything that is not one or that cannot be listed and watched.
func resourceOf(accessor reflect.Method) *resource {
	t := accessor.Type
	if t.NumOut() != 1 || t.NumIn() > 1 || t.Out(0).Kind() != reflect.Interface {
		return nil
	}
	client := t.Out(0)
	get, hasGet := client.MethodByName("Get")
	_, hasList := client.MethodByName("List")
	_, hasWatch := client.MethodByName("Watch")
	if !hasGet || !hasList || !hasWatch {
		return nil
	}
	obj, ok := reflect.New(get.Type.Out(0).Elem()).Interface().(runtime.Object)
	if !ok {
		return nil
	}
	kinds, _, err := scheme.Scheme.ObjectKinds(obj)
	if err != nil {
		return nil
	}
	plural := strings.ToLower(accessor.Name)
	return &resource{
		gvr:        kinds[0].GroupVersion().WithResource(plural),
		gvk:        kinds[0],
		namespaced: t.NumIn() == 1,
		uncached:   plural == "events",
	}
}
