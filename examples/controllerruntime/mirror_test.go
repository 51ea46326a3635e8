package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func configMap(namespace, name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{"value": value},
	}
}

// reconcileTwice reconciles the ConfigMap "a", twice because reconciling must be idempotent,
// and returns the value of its copy, or false if there is none.
func reconcileTwice(t *testing.T, objects ...client.Object) (value string, exists bool) {
	t.Helper()
	c := fake.NewClientBuilder().WithObjects(objects...).Build()
	m := &mirror{originals: c, copies: c, target: "target"}
	for range 2 {
		request := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "source", Name: "a"}}
		if _, err := m.Reconcile(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	result := &corev1.ConfigMap{}
	err := c.Get(t.Context(), client.ObjectKey{Namespace: "target", Name: "a"}, result)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return result.Data["value"], !apierrors.IsNotFound(err)
}

func TestMirror_Reconcile(t *testing.T) {
	for name, test := range map[string]struct {
		objects []client.Object
		value   string
		exists  bool
	}{
		"new":       {[]client.Object{configMap("source", "a", "1")}, "1", true},
		"changed":   {[]client.Object{configMap("source", "a", "2"), configMap("target", "a", "1")}, "2", true},
		"unchanged": {[]client.Object{configMap("source", "a", "1"), configMap("target", "a", "1")}, "1", true},
		"gone":      {[]client.Object{configMap("target", "a", "1")}, "", false},
		"absent":    {nil, "", false},
	} {
		value, exists := reconcileTwice(t, test.objects...)
		if value != test.value || exists != test.exists {
			t.Errorf("%s: copy has %q, exists: %v; want %q, %v", name, value, exists, test.value, test.exists)
		}
	}
}

func TestOptions_TwoNamespaces(t *testing.T) {
	for _, o := range []options{{}, {source: "a"}, {target: "a"}, {source: "a", target: "a"}} {
		if err := o.run(t.Context()); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}
