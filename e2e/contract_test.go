package e2e

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/warmcache/warmcache/internal/apitest/contract"
)

// The suite that the in-process API server passes in every run. Only what is
// true of both servers may be in it.
func TestContract_HoldsOnTheRealServer(t *testing.T) {
	widget := schema.GroupVersionKind{Group: "e2e.warmcache.example", Version: "v1", Kind: "Widget"}
	createCustomResource(t, widget, "widgets")
	contract.Run(t, contract.Target{
		Config:               plane.API.Config(),
		Namespace:            "contract",
		CustomResource:       &widget,
		CustomResourcePlural: "widgets",
		ForgetHistory:        forgetHistory,
	})
}

// createCustomResource defines a namespaced resource whose objects have a spec of
// any form, and waits until it is served.
func createCustomResource(t *testing.T, kind schema.GroupVersionKind, plural string) {
	t.Helper()
	client, err := dynamic.NewForConfig(plane.API.Config())
	if err != nil {
		t.Fatal(err)
	}
	definitions := client.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	if _, err := definitions.Create(t.Context(), customResourceDefinition(kind, plural), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// It is established a moment before every path of the server knows it.
	served := func(ctx context.Context) (bool, error) {
		_, err := client.Resource(kind.GroupVersion().WithResource(plural)).List(ctx, metav1.ListOptions{})
		return err == nil, nil
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, served); err != nil {
		t.Fatalf("%s is not served: %v", plural, err)
	}
}

func customResourceDefinition(kind schema.GroupVersionKind, plural string) *unstructured.Unstructured {
	anything := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": plural + "." + kind.Group},
		"spec": map[string]any{
			"group": kind.Group,
			"scope": "Namespaced",
			"names": map[string]any{"plural": plural, "kind": kind.Kind, "listKind": kind.Kind + "List"},
			"versions": []any{map[string]any{
				"name": kind.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "properties": map[string]any{"spec": anything},
				}},
			}},
		},
	}}
}
