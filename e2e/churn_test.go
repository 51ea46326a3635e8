package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// material is a resource that churn changes.
type material struct {
	resource schema.GroupVersionResource
	kind     string
	// fields are those that the server requires, beside the metadata.
	fields     map[string]any
	namespaced bool
	// lasting objects are not deleted.
	lasting bool
	// phases says that objects have a status.phase that selectors know.
	phases bool
}

// object is a shorthand for JSON objects.
type object = map[string]any

func resourceOf(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

var podTemplate = object{"metadata": object{"labels": object{"app": "x"}}, "spec": podSpec}

var podSpec = object{"restartPolicy": "Always", "containers": []any{object{"name": "c", "image": "i"}}}

// materials are as many kinds as one can delete without controllers.
var materials = map[string]material{
	"configmaps":      {resource: resourceOf("", "v1", "configmaps"), kind: "ConfigMap", fields: object{"data": object{"k": "v"}}, namespaced: true},
	"secrets":         {resource: resourceOf("", "v1", "secrets"), kind: "Secret", namespaced: true},
	"services":        {resource: resourceOf("", "v1", "services"), kind: "Service", namespaced: true, fields: object{"spec": object{"clusterIP": "None", "selector": object{"app": "x"}}}},
	"serviceaccounts": {resource: resourceOf("", "v1", "serviceaccounts"), kind: "ServiceAccount", namespaced: true},
	"pods":            {resource: resourceOf("", "v1", "pods"), kind: "Pod", fields: object{"spec": podSpec}, namespaced: true, phases: true},
	"nodes":           {resource: resourceOf("", "v1", "nodes"), kind: "Node"},
	"deployments": {resource: resourceOf("apps", "v1", "deployments"), kind: "Deployment", namespaced: true, fields: object{"spec": object{
		"selector": object{"matchLabels": object{"app": "x"}}, "template": podTemplate,
	}}},
	"cronjobs": {resource: resourceOf("batch", "v1", "cronjobs"), kind: "CronJob", namespaced: true, fields: object{"spec": object{
		"schedule": "0 0 1 1 *", "jobTemplate": object{"spec": object{"template": object{"spec": object{
			"restartPolicy": "Never", "containers": []any{object{"name": "c", "image": "i"}},
		}}}},
	}}},
	"roles":                {resource: resourceOf("rbac.authorization.k8s.io", "v1", "roles"), kind: "Role", namespaced: true},
	"networkpolicies":      {resource: resourceOf("networking.k8s.io", "v1", "networkpolicies"), kind: "NetworkPolicy", namespaced: true, fields: object{"spec": object{"podSelector": object{}}}},
	"poddisruptionbudgets": {resource: resourceOf("policy", "v1", "poddisruptionbudgets"), kind: "PodDisruptionBudget", namespaced: true, fields: object{"spec": object{"minAvailable": int64(1)}}},
	"leases":               {resource: resourceOf("coordination.k8s.io", "v1", "leases"), kind: "Lease", namespaced: true},
	"widgets":              {resource: widgetsV1, kind: "Widget", fields: object{"spec": object{"size": int64(1)}}, namespaced: true},
	// They are listed at each start (there is no watch cache), and a list cannot
	// tell the delete of an object that was created in the last moments before a
	// kill; see docs/design.md.
	"events": {resource: resourceOf("", "v1", "events"), kind: "Event", namespaced: true, lasting: true},
}

// churn is several writers that create, change, delete and recreate objects.
type churn struct {
	client     dynamic.Interface
	prefix     string
	namespaces []string
	kinds      []string
	// names is the number of names of each kind in each namespace.
	names int
	mu    struct {
		sync.Mutex
		done map[string]int
	}
}

// run changes objects, one change per pause and writer, until ctx ends. Each
// writer makes its decisions with a generator of its own.
func (c *churn) run(ctx context.Context, t *testing.T, seed uint64, writers int, pause time.Duration) (wait func()) {
	var running sync.WaitGroup
	for writer := range writers {
		rng := rand.New(rand.NewPCG(seed, uint64(writer)))
		running.Go(func() {
			ticker := time.NewTicker(pause)
			defer ticker.Stop()
			for ctx.Err() == nil {
				if err := c.step(ctx, rng); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
				select {
				case <-ticker.C:
				case <-ctx.Done():
				}
			}
		})
	}
	return running.Wait
}

// step makes one random change. That somebody else was faster is no error.
func (c *churn) step(ctx context.Context, rng *rand.Rand) error {
	m := materials[c.kinds[rng.IntN(len(c.kinds))]]
	name := fmt.Sprintf("%s-%02d", c.prefix, rng.IntN(c.names))
	namespace := c.namespaces[rng.IntN(len(c.namespaces))]
	client, wanted := c.in(m, namespace), m.object(rng, namespace, name)
	what, err := change(ctx, rng, m, client, wanted)
	if apierrors.IsNotFound(err) {
		what, err = "created", create(ctx, client, wanted)
	}
	if apierrors.IsAlreadyExists(err) {
		what, err = "labelled", label(ctx, client, name, team(rng))
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		what, err = "came too late", nil
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.done[what]++
	return nil
}

func (c *churn) in(m material, namespace string) dynamic.ResourceInterface {
	if m.namespaced {
		return c.client.Resource(m.resource).Namespace(namespace)
	}
	return c.client.Resource(m.resource)
}

// change makes a change that the dice choose. wanted is what to create.
func change(ctx context.Context, rng *rand.Rand, m material, client dynamic.ResourceInterface, wanted *unstructured.Unstructured) (what string, err error) {
	name := wanted.GetName()
	switch dice := rng.IntN(100); {
	case dice < 35:
		return "created", create(ctx, client, wanted)
	case dice < 55 && m.phases:
		phase := []string{"Running", "Succeeded", "Pending"}[rng.IntN(3)]
		return "moved to another phase", patch(ctx, client, name, object{"status": object{"phase": phase}}, "status")
	case dice < 55:
		return "annotated", patch(ctx, client, name, object{"metadata": object{"annotations": object{"value": fmt.Sprint(rng.IntN(1000))}}})
	case dice < 70:
		return "labelled", label(ctx, client, name, team(rng))
	case m.lasting:
		return "let be", nil
	case dice < 85:
		return "deleted", remove(ctx, client, name)
	}
	if err := remove(ctx, client, name); err != nil {
		return "", err
	}
	return "recreated", create(ctx, client, wanted)
}

func team(rng *rand.Rand) string { return []string{"a", "b", "c"}[rng.IntN(3)] }

// object returns an object to create.
func (m material) object(rng *rand.Rand, namespace, name string) *unstructured.Unstructured {
	content := object{
		"apiVersion": m.resource.GroupVersion().String(), "kind": m.kind,
		"metadata": object{"name": name, "labels": object{"team": team(rng)}},
	}
	maps.Copy(content, m.fields)
	if m.kind == "Event" {
		content["involvedObject"] = object{"namespace": namespace}
	}
	// A copy, so that what the server answers does not reach the fields.
	return (&unstructured.Unstructured{Object: content}).DeepCopy()
}

func create(ctx context.Context, client dynamic.ResourceInterface, wanted *unstructured.Unstructured) error {
	_, err := client.Create(ctx, wanted, metav1.CreateOptions{})
	return err
}

func label(ctx context.Context, client dynamic.ResourceInterface, name, team string) error {
	return patch(ctx, client, name, object{"metadata": object{"labels": object{"team": team}}})
}

func patch(ctx context.Context, client dynamic.ResourceInterface, name string, content object, subresources ...string) error {
	encoded, err := json.Marshal(content)
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, name, types.MergePatchType, encoded, metav1.PatchOptions{}, subresources...)
	return err
}

func remove(ctx context.Context, client dynamic.ResourceInterface, name string) error {
	now := int64(0)
	return client.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
}
