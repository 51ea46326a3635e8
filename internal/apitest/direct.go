package apitest

import (
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// Create stores new objects, in order, as if by POST. It sets UID,
// resourceVersion, creationTimestamp and a generated name in the objects given.
// It stops at the first error, with the API error that a client would get.
func (s *Server) Create(objs ...runtime.Object) error {
	return s.each(objs, func(t *table, obj runtime.Object, accessor metav1.Object) error {
		_, err := s.createObject(t, obj, accessor.GetNamespace())
		return err
	})
}

// Update replaces objects, in order, as if by PUT: with a conflict if a
// resourceVersion is set and is not the stored one. It sets UID,
// resourceVersion and creationTimestamp in the objects given.
func (s *Server) Update(objs ...runtime.Object) error {
	return s.each(objs, func(t *table, obj runtime.Object, accessor metav1.Object) error {
		_, err := s.updateObject(t, obj, accessor, false)
		return err
	})
}

// Delete deletes the objects with these names, in order. It does not look at
// their UID or resourceVersion.
func (s *Server) Delete(objs ...runtime.Object) error {
	return s.each(objs, func(t *table, obj runtime.Object, accessor metav1.Object) error {
		_, err := s.deleteObject(t, t.res.key(accessor.GetNamespace(), accessor.GetName()), nil)
		return err
	})
}

func (s *Server) each(objs []runtime.Object, do func(*table, runtime.Object, metav1.Object) error) error {
	for _, obj := range objs {
		t, err := s.tableOf(obj)
		if err != nil {
			return err
		}
		accessor, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		if err := do(t, obj, accessor); err != nil {
			return err
		}
	}
	return nil
}

// tableOf finds the resource of an object by its kind.
func (s *Server) tableOf(obj runtime.Object) (*table, error) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	if gvk.Empty() {
		kinds, _, err := scheme.Scheme.ObjectKinds(obj)
		if err != nil {
			return nil, err
		}
		gvk = kinds[0]
	}
	t, ok := s.storage.tableOfKind(gvk)
	if !ok {
		return nil, fmt.Errorf("apitest: no resource serves %v", gvk)
	}
	return t, nil
}

// Get returns one object, typed unless it is a custom resource, or the NotFound
// error that a client would get. The caller owns it.
func (s *Server) Get(gvr schema.GroupVersionResource, namespace, name string) (runtime.Object, error) {
	t, ok := s.storage.table(gvr)
	if !ok {
		return nil, fmt.Errorf("apitest: %v is not served", gvr)
	}
	rec := s.storage.get(t, t.res.key(namespace, name))
	if rec == nil {
		return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
	}
	return rec.decode()
}

// List returns all objects of a resource in a namespace, or in all if it is
// empty, in order of namespace/name, and the resourceVersion that they are at.
// They are typed unless it is a custom resource. The caller owns them. Unlike a
// LIST by a client it has no effect on bookmarks.
func (s *Server) List(gvr schema.GroupVersionResource, namespace string) ([]runtime.Object, string, error) {
	t, ok := s.storage.table(gvr)
	if !ok {
		return nil, "", fmt.Errorf("apitest: %v is not served", gvr)
	}
	rows, rv := s.storage.peek(t)
	sc := scope{}
	if namespace != "" {
		sc.prefix = namespace + "/"
	}
	var objs []runtime.Object
	for _, row := range sc.within(rows, "") {
		obj, err := row.decode()
		if err != nil {
			return nil, "", err
		}
		objs = append(objs, obj)
	}
	return slices.Clip(objs), rv, nil
}
