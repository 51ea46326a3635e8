package apitest

import (
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
)

// maxBody is more than kube-apiserver accepts, which is 3 MiB.
const maxBody = 8 << 20

// get answers from the latest state. A version in the query is one to wait for,
// never an older one to go back to.
func (s *Server) get(w *response) error {
	f, err := formOf(w.request)
	if err != nil {
		return err
	}
	rv, err := parseRV(w.URL.Query().Get("resourceVersion"))
	if err != nil {
		return err
	}
	if err := s.waitFor(w.Context(), w.table, rv); err != nil {
		return err
	}
	rec := s.storage.get(w.table, w.key())
	if rec == nil {
		return w.notFound()
	}
	return w.record(http.StatusOK, f, rec)
}

func (r *request) key() string { return r.table.res.key(r.namespace, r.name) }

func (r *request) notFound() error {
	return apierrors.NewNotFound(r.gvr.GroupResource(), r.name)
}

// readObject decodes the body, in whatever encoding it has, into an object of
// the request's resource.
func (r *request) readObject() (runtime.Object, error) {
	body, err := r.readBody()
	if err != nil {
		return nil, err
	}
	return decodeObject(r.table.res, body)
}

func (r *request) readBody() ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, apierrors.NewBadRequest(err.Error())
	case len(body) > maxBody:
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	return body, nil
}

func decodeObject(res *resource, body []byte) (runtime.Object, error) {
	decoder := scheme.Codecs.UniversalDeserializer()
	if res.custom {
		decoder = unstructured.UnstructuredJSONScheme
	}
	obj, gvk, err := decoder.Decode(body, &res.gvk, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if *gvk != res.gvk {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%v in the body, %v in the path", *gvk, res.gvk))
	}
	return obj, nil
}

// create answers a POST. As in every write, what the client gets back is what is
// stored, in the form that it asked for.
func (s *Server) create(w *response) error {
	f, err := formOf(w.request)
	if err != nil {
		return err
	}
	obj, err := w.readObject()
	if err != nil {
		return err
	}
	rec, err := s.createObject(w.table, obj, w.namespace)
	if err != nil {
		return err
	}
	return w.record(http.StatusCreated, f, rec)
}

// createObject stores a new object and sets what a server sets.
func (s *Server) createObject(t *table, obj runtime.Object, namespace string) (*record, error) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	if err := s.prepareCreate(t.res, accessor, namespace); err != nil {
		return nil, err
	}
	return s.storage.write(t, t.res.key(accessor.GetNamespace(), accessor.GetName()), func(cur *record) (runtime.Object, error) {
		if cur != nil {
			return nil, apierrors.NewAlreadyExists(t.res.gvr.GroupResource(), accessor.GetName())
		}
		return obj, nil
	})
}

// prepareCreate sets what only the server decides, and refuses objects that
// claim to be stored already.
func (s *Server) prepareCreate(res *resource, obj metav1.Object, namespace string) error {
	if obj.GetResourceVersion() != "" {
		return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if err := fitNamespace(res, obj, namespace); err != nil {
		return err
	}
	if obj.GetName() == "" && obj.GetGenerateName() != "" {
		obj.SetName(obj.GetGenerateName() + rand.String(5))
	}
	if obj.GetName() == "" {
		return apierrors.NewInvalid(res.gvk.GroupKind(), "", field.ErrorList{
			field.Required(field.NewPath("metadata", "name"), "name or generateName is required"),
		})
	}
	obj.SetUID(uuid.NewUUID())
	obj.SetCreationTimestamp(metav1.NewTime(s.opts.Clock.Now()).Rfc3339Copy())
	return nil
}

// fitNamespace fills in the namespace of the path, and refuses another one.
func fitNamespace(res *resource, obj metav1.Object, namespace string) error {
	if !res.namespaced {
		obj.SetNamespace("")
		return nil
	}
	if obj.GetNamespace() == "" {
		obj.SetNamespace(namespace)
	}
	if obj.GetNamespace() != namespace || namespace == "" {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// update answers a PUT of an object or of its status.
func (s *Server) update(w *response) error {
	f, err := formOf(w.request)
	if err != nil {
		return err
	}
	obj, err := w.readObject()
	if err != nil {
		return err
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	if err := fitNamespace(w.table.res, accessor, w.namespace); err != nil {
		return err
	}
	if accessor.GetName() != w.name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", accessor.GetName(), w.name))
	}
	rec, err := s.updateObject(w.table, obj, accessor, w.subresource == "status")
	if err != nil {
		return err
	}
	return w.record(http.StatusOK, f, rec)
}

// updateObject replaces an object, or only its status.
func (s *Server) updateObject(t *table, obj runtime.Object, accessor metav1.Object, statusOnly bool) (*record, error) {
	name := accessor.GetName()
	key := t.res.key(accessor.GetNamespace(), name)
	return s.storage.write(t, key, func(cur *record) (runtime.Object, error) {
		if cur == nil {
			return nil, apierrors.NewNotFound(t.res.gvr.GroupResource(), name)
		}
		if err := checkPreconditions(cur, name, nonEmptyUID(accessor.GetUID()), nonEmptyRV(accessor.GetResourceVersion())); err != nil {
			return nil, err
		}
		if statusOnly {
			return withStatusOf(cur, obj)
		}
		return obj, keepServerFields(cur, accessor)
	})
}

func nonEmptyUID(uid types.UID) *types.UID {
	if uid == "" {
		return nil
	}
	return &uid
}

func nonEmptyRV(rv string) *string {
	if rv == "" {
		return nil
	}
	return &rv
}

// checkPreconditions refuses to change an object that is not the one, or not the
// version, that the client knows.
func checkPreconditions(cur *record, name string, uid *types.UID, rv *string) error {
	partial, err := cur.partial()
	if err != nil {
		return err
	}
	conflict := func(format string, args ...any) error {
		return apierrors.NewConflict(cur.res.gvr.GroupResource(), name, fmt.Errorf(format, args...))
	}
	if uid != nil && *uid != partial.UID {
		return conflict("Precondition failed: UID in precondition: %v, UID in object meta: %v", *uid, partial.UID)
	}
	if rv != nil && *rv != cur.res.aggregated.Objects.format(cur.rv, cur.written) {
		return conflict("the object has been modified; please apply your changes to the latest version and try again")
	}
	return nil
}

// keepServerFields takes over what only the server sets.
func keepServerFields(cur *record, obj metav1.Object) error {
	partial, err := cur.partial()
	if err != nil {
		return err
	}
	obj.SetUID(partial.UID)
	obj.SetCreationTimestamp(partial.CreationTimestamp)
	return nil
}
