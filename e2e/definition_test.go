package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/rest"

	"github.com/warmcache/warmcache/e2e/controlplane"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

const widgetsDefinition = "widgets.e2e.warmcache.dev"

// properties are those of the spec in an OpenAPI schema.
type properties = map[string]any

var (
	sizeOnly     = properties{"size": properties{"type": "integer"}}
	sizeAndColor = properties{
		"size":  properties{"type": "integer"},
		"color": properties{"type": "string", "default": "red"},
	}
)

// version is one version of the custom resource. The last one of several is how
// objects are stored.
type version struct {
	name string
	spec properties
}

// definition returns the definition of widgets.
func definition(versions ...version) *unstructured.Unstructured {
	var all []any
	for i, v := range versions {
		all = append(all, map[string]any{
			"name": v.name, "served": true, "storage": i == len(versions)-1,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{
				"type": "object",
				"properties": map[string]any{
					"spec": map[string]any{"type": "object", "properties": v.spec},
				},
			}},
		})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": widgetsDefinition},
		"spec": map[string]any{
			"group": widgetsV1.Group, "scope": "Namespaced", "versions": all,
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
		},
	}}
}

// widgets are a custom resource and a subject that watches it.
type widgets struct {
	*subject
	client dynamic.Interface
}

// newWidgets defines the resource anew, with one version, and returns a subject
// with an informer of each form: dynamic, metadata and typed.
func newWidgets(t *testing.T, spec properties) *widgets {
	t.Helper()
	w := &widgets{subject: newSubject(t), client: dynamicFor(t, plane.API)}
	w.undefine()
	w.define(version{"v1", spec})
	t.Cleanup(func() {
		if t.Failed() {
			return // The log is what is of interest.
		}
		_ = w.client.Resource(definitions).Delete(context.Background(), widgetsDefinition, metav1.DeleteOptions{})
	})
	for _, door := range []door{dynamicDoor, metadataDoor, schemeDoor} {
		w.subscribe(subscription{Name: string(door), Resource: widgetsV1, selection: selection{Door: door, Namespace: w.namespace}})
	}
	return w
}

func dynamicFor(t *testing.T, api *controlplane.APIServer) dynamic.Interface {
	t.Helper()
	config := api.Config()
	config.UserAgent, config.QPS = "writer", -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// define creates or changes the definition and waits until all versions are
// served.
func (w *widgets) define(versions ...version) {
	w.t.Helper()
	wanted := definition(versions...)
	current, err := w.client.Resource(definitions).Get(w.t.Context(), widgetsDefinition, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = w.client.Resource(definitions).Create(w.t.Context(), wanted, metav1.CreateOptions{})
	case err == nil:
		wanted.SetResourceVersion(current.GetResourceVersion())
		_, err = w.client.Resource(definitions).Update(w.t.Context(), wanted, metav1.UpdateOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	for _, v := range versions {
		w.eventually("version "+v.name+" is served", func(ctx context.Context) error {
			_, err := w.in(widgetsV1.Group, v.name).List(ctx, metav1.ListOptions{})
			return err
		})
	}
}

// undefine deletes the definition, with all objects, and waits until it is gone.
func (w *widgets) undefine() {
	w.t.Helper()
	w.eventually("the definition is gone", func(ctx context.Context) error {
		err := w.client.Resource(definitions).Delete(ctx, widgetsDefinition, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			_, err = w.in(widgetsV1.Group, "v1").List(ctx, metav1.ListOptions{})
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("still there: %w", err)
	})
}

func (w *widgets) in(group, version string) dynamic.ResourceInterface {
	return w.client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: "widgets"}).Namespace(w.namespace)
}

func (w *widgets) eventually(what string, check func(context.Context) error) {
	w.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(w.t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		w.t.Fatalf("waiting until %s: %v: %v", what, err, last)
	}
}

// add creates objects with a spec.
func (w *widgets) add(spec map[string]any, names ...string) {
	w.t.Helper()
	for _, name := range names {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": widgetsV1.GroupVersion().String(), "kind": "Widget",
			"metadata": map[string]any{"name": name}, "spec": spec,
		}}
		if _, err := w.in(widgetsV1.Group, "v1").Create(w.t.Context(), object, metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// resize changes objects.
func (w *widgets) resize(size int, names ...string) {
	w.t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"size":%d}}`, size)
	for _, name := range names {
		if _, err := w.in(widgetsV1.Group, "v1").Patch(w.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *widgets) remove(names ...string) {
	w.t.Helper()
	for _, name := range names {
		if err := w.in(widgetsV1.Group, "v1").Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// waitForColor waits until all servers show an object with a color, as they do
// some time after the schema has changed; "" means without one.
func (w *widgets) waitForColor(name, color string) {
	w.t.Helper()
	for _, api := range w.apis {
		w.waitForColorAt(api, name, color)
	}
}

func (w *widgets) waitForColorAt(api *controlplane.APIServer, name, color string) {
	w.t.Helper()
	client := dynamicFor(w.t, api).Resource(widgetsV1).Namespace(w.namespace)
	w.eventually("the new schema is in effect", func(ctx context.Context) error {
		object, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got, _, _ := unstructured.NestedString(object.Object, "spec", "color"); got != color {
			return fmt.Errorf("the color of %s is %q, want %q", name, got, color)
		}
		return nil
	})
	// Which is published some time after it is in effect, and makes a start list then.
	w.eventually("the new schema is published", func(context.Context) error {
		published, err := publishedSchema(api)
		if err == nil && strings.Contains(published, `"color"`) != (color != "") {
			err = fmt.Errorf("want a color %q in %s", color, published)
		}
		return err
	})
}

// publishedSchema is the OpenAPI document of version v1, provided that the index, which
// is behind for a while, has its hash: that is what starts compare.
func publishedSchema(api *controlplane.APIServer) (string, error) {
	published, err := openAPIOf(api)
	if err != nil {
		return "", err
	}
	config := api.Config()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := client.Get(config.Host + published.ServerRelativeURL())
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK { // a redirect to the document of another hash
		return "", fmt.Errorf("the index is behind: %s", response.Status)
	}
	document, err := io.ReadAll(response.Body)
	return string(document), err
}

func openAPIOf(api *controlplane.APIServer) (openapi.GroupVersion, error) {
	client, err := discovery.NewDiscoveryClientForConfig(api.Config())
	if err != nil {
		return nil, err
	}
	paths, err := client.OpenAPIV3().Paths()
	if err != nil {
		return nil, err
	}
	path := "apis/" + widgetsV1.Group + "/v1"
	if paths[path] == nil {
		return nil, fmt.Errorf("%s is not published", path)
	}
	return paths[path], nil
}

// waitForSchema waits until all servers call the schema by the same name, and not by
// that of the one before, and returns it.
func (w *widgets) waitForSchema(before string) (name string) {
	w.t.Helper()
	w.eventually("all servers have the same schema", func(context.Context) error {
		for i, api := range w.apis {
			published, err := openAPIOf(api)
			if err != nil {
				return err
			}
			its := published.ServerRelativeURL()
			if its == before || i > 0 && its != name {
				return fmt.Errorf("server %d has %s, before it was %s", i, its, before)
			}
			name = its
		}
		return nil
	})
	return name
}
