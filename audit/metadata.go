package audit

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// sameMetadata compares what an object and its metadata both have. Nil and empty are
// the same: forms of objects and of transfer differ in that.
func sameMetadata(a, b metav1.Object) bool {
	return a.GetGeneration() == b.GetGeneration() &&
		a.GetDeletionTimestamp().Equal(b.GetDeletionTimestamp()) &&
		maps.Equal(a.GetLabels(), b.GetLabels()) &&
		maps.Equal(a.GetAnnotations(), b.GetAnnotations()) &&
		slices.Equal(a.GetFinalizers(), b.GetFinalizers()) &&
		slices.EqualFunc(a.GetOwnerReferences(), b.GetOwnerReferences(), sameOwner) &&
		slices.EqualFunc(a.GetManagedFields(), b.GetManagedFields(), sameManager)
}

func sameOwner(a, b metav1.OwnerReference) bool {
	return a.UID == b.UID && a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name &&
		ptr.Deref(a.Controller, false) == ptr.Deref(b.Controller, false) &&
		ptr.Deref(a.BlockOwnerDeletion, false) == ptr.Deref(b.BlockOwnerDeletion, false)
}

func sameManager(a, b metav1.ManagedFieldsEntry) bool {
	return a.Manager == b.Manager && a.Operation == b.Operation && a.APIVersion == b.APIVersion &&
		a.FieldsType == b.FieldsType && a.Subresource == b.Subresource && a.Time.Equal(b.Time) &&
		sameFields(a.FieldsV1, b.FieldsV1)
}

// sameFields compares JSON whose bytes depend on who has written it: the server orders
// fields in its own way, and an unstructured object has them ordered by name.
func sameFields(a, b *metav1.FieldsV1) bool {
	if a == nil || b == nil {
		return a == b
	}
	rawA, rawB := a.GetRawBytes(), b.GetRawBytes()
	if bytes.Equal(rawA, rawB) {
		return true
	}
	var left, right any
	return json.Unmarshal(rawA, &left) == nil && json.Unmarshal(rawB, &right) == nil && reflect.DeepEqual(left, right)
}
