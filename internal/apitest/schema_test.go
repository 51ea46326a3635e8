package apitest

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

func TestServer_ChangeSchema(t *testing.T) {
	srv := newServer(t, Options{CustomResources: []CustomResource{Widgets}})
	widget := Widget("ns", "w", 1)
	check(t, srv.Create(widget))
	dyn, err := dynamic.NewForConfig(srv.RESTConfig())
	check(t, err)
	widgets := dyn.Resource(Widgets.GVR).Namespace("ns")
	old := metav1.ListOptions{ResourceVersion: "1"}
	w, err := widgets.Watch(t.Context(), old)
	check(t, err)
	wantEvent(t, w, "ADDED", "w")
	before := schemaHashes(t, srv)

	check(t, srv.ChangeSchema(Widgets.GVR, func(obj runtime.Object) {
		check(t, unstructured.SetNestedField(obj.(*unstructured.Unstructured).Object, "default", "spec", "added"))
	}))
	wantEnd(t, w)
	after := schemaHashes(t, srv)
	if before["apis/example.com/v1"] == after["apis/example.com/v1"] || before["api/v1"] != after["api/v1"] {
		t.Errorf("hashes were %v and are %v; want that of example.com/v1 to change", before, after)
	}
	got, err := widgets.Get(t.Context(), "w", metav1.GetOptions{})
	check(t, err)
	if added, _, _ := unstructured.NestedString(got.Object, "spec", "added"); added != "default" || got.GetResourceVersion() != widget.GetResourceVersion() {
		t.Errorf("got %v, want the default at version %s", got.Object, widget.GetResourceVersion())
	}
	w, err = widgets.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
	check(t, err)
	wantExpired(t, w)
	check(t, srv.ChangeSchema(Widgets.GVR, nil))
	if err := srv.ChangeSchema(schema.GroupVersionResource{Resource: "none"}, nil); err == nil {
		t.Error("the schema of an unknown resource was changed")
	}
}

// schemaHashes returns the URLs in the index, by path.
func schemaHashes(t *testing.T, srv *Server) map[string]string {
	t.Helper()
	paths, err := client(t, srv).Discovery().OpenAPIV3().Paths()
	check(t, err)
	urls := map[string]string{}
	for path, gv := range paths {
		urls[path] = gv.ServerRelativeURL()
	}
	return urls
}
