package main

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// version tells the states of an object apart, and objects of the same name.
type version struct {
	UID types.UID `json:"uid"`
	RV  string    `json:"rv"`
}

// versionOf needs metadata only, which is all that the parent lists.
func versionOf(obj metav1.Object) version {
	return version{UID: obj.GetUID(), RV: obj.GetResourceVersion()}
}

// state is what somebody knows of a collection, by key.
type state map[string]version

// instance is one object, of possibly several that have had its key.
type instance struct {
	Key string    `json:"key"`
	UID types.UID `json:"uid"`
}

// keyAndVersion describes what a handler or an indexer was given. A tombstone
// without an object has no version.
func keyAndVersion(obj any) (string, version) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		if tombstone.Obj == nil {
			return tombstone.Key, version{}
		}
		obj = tombstone.Obj
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		// Not an API object: whoever sent it is found to know a key that the
		// server does not have.
		return err.Error(), version{}
	}
	return cache.MetaObjectToName(accessor).String(), versionOf(accessor)
}
