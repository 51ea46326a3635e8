package apitest

import (
	"fmt"
	"mime"
	"net/http"
	"reflect"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// patch applies a merge, strategic merge or JSON patch. Server-side apply is
// not offered.
func (s *Server) patch(w *response) error {
	f, err := formOf(w.request)
	if err != nil {
		return err
	}
	body, err := w.readBody()
	if err != nil {
		return err
	}
	media, _, _ := mime.ParseMediaType(w.request.Header.Get("Content-Type"))
	rec, err := s.storage.write(w.table, w.key(), func(cur *record) (runtime.Object, error) {
		if cur == nil {
			return nil, w.notFound()
		}
		return patched(cur, types.PatchType(media), body, w.subresource == "status")
	})
	if err != nil {
		return err
	}
	return w.record(http.StatusOK, f, rec)
}

// patched is the object after the patch, which is applied to the JSON form
// whatever the client speaks.
func patched(cur *record, kind types.PatchType, patch []byte, statusOnly bool) (runtime.Object, error) {
	before, err := cur.payload(form{})
	if err != nil {
		return nil, err
	}
	after, err := applyPatch(cur.res, kind, before, patch)
	if err != nil {
		return nil, err
	}
	obj, err := decodeObject(cur.res, append(openJSON(cur.res.gvk), after[1:]...))
	if err != nil {
		return nil, err
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	rv := nonEmptyRV(accessor.GetResourceVersion())
	if err := checkPreconditions(cur, accessor.GetName(), nonEmptyUID(accessor.GetUID()), rv); err != nil {
		return nil, err
	}
	if statusOnly {
		return withStatusOf(cur, obj)
	}
	return obj, keepIdentity(cur, accessor)
}

func applyPatch(res *resource, kind types.PatchType, before, patch []byte) (after []byte, err error) {
	switch {
	case kind == types.MergePatchType:
		after, err = jsonpatch.MergePatch(before, patch)
	case kind == types.StrategicMergePatchType && !res.custom:
		var sample runtime.Object
		if sample, err = res.newObject(); err == nil {
			after, err = strategicpatch.StrategicMergePatch(before, patch, sample)
		}
	case kind == types.JSONPatchType:
		after, err = applyJSONPatch(before, patch)
	default:
		return nil, unsupportedMediaType(kind)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return after, nil
}

func applyJSONPatch(before, patch []byte) ([]byte, error) {
	ops, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	return ops.Apply(before)
}

func unsupportedMediaType(kind types.PatchType) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusUnsupportedMediaType,
		Reason:  metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("the body of the request was in an unknown format - %q is not an accepted media type", kind),
	}}
}

// keepIdentity refuses a patch that would make another object of it.
func keepIdentity(cur *record, obj metav1.Object) error {
	if cur.res.key(obj.GetNamespace(), obj.GetName()) != cur.key {
		return apierrors.NewBadRequest("a patch must not change name or namespace")
	}
	return keepServerFields(cur, obj)
}

// withStatusOf is the stored object with the status of obj.
func withStatusOf(cur *record, obj runtime.Object) (runtime.Object, error) {
	stored, err := cur.decode()
	if err != nil {
		return nil, err
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		stored.(*unstructured.Unstructured).Object["status"] = u.Object["status"]
		return stored, nil
	}
	to, from := reflect.ValueOf(stored).Elem().FieldByName("Status"), reflect.ValueOf(obj).Elem().FieldByName("Status")
	if !to.IsValid() {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s has no status", cur.res.gvk.Kind))
	}
	to.Set(from)
	return stored, nil
}
