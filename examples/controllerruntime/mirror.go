package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applyv1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// mirror makes the copy of a ConfigMap what its original is.
type mirror struct {
	// originals is the cache.
	originals client.Reader
	// copies writes the copies, which are not in the cache.
	copies client.Writer
	target string
}

// Reconcile implements reconcile.Reconciler.
func (m *mirror) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	original := &corev1.ConfigMap{}
	var outcome string
	err := m.originals.Get(ctx, r.NamespacedName, original)
	switch {
	case apierrors.IsNotFound(err):
		outcome, err = m.remove(ctx, r.Name)
	case err == nil:
		outcome, err = "applied", m.apply(ctx, original)
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("mirroring %s: %w", r, err)
	}
	log.FromContext(ctx).Info("Reconciled", "original", r.NamespacedName, "copy", outcome)
	return reconcile.Result{}, nil
}

// apply makes the copy what its original is. Applying what is there changes nothing.
func (m *mirror) apply(ctx context.Context, original *corev1.ConfigMap) error {
	wanted := applyv1.ConfigMap(original.Name, m.target).WithData(original.Data).WithBinaryData(original.BinaryData)
	return m.copies.Apply(ctx, wanted, client.FieldOwner("mirror"), client.ForceOwnership)
}

// remove deletes the copy of an original that is gone. After a restart the delete may
// come again; then there is nothing to do.
func (m *mirror) remove(ctx context.Context, name string) (outcome string, err error) {
	err = m.copies.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.target, Name: name}})
	switch {
	case apierrors.IsNotFound(err):
		return "absent", nil
	case err != nil:
		return "", err
	}
	return "removed", nil
}
