package apitest

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// deleteOptions reads preconditions from the body; the rest of DeleteOptions has
// no meaning here, because deletion is immediate.
func (r *request) deleteOptions() (*metav1.DeleteOptions, error) {
	opts := &metav1.DeleteOptions{}
	body, err := r.readBody()
	if err != nil || len(body) == 0 {
		return opts, err
	}
	gvk := metav1.SchemeGroupVersion.WithKind("DeleteOptions")
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, &gvk, opts); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return opts, nil
}

// delete answers with a Status that has the UID of what was deleted, as a real
// server does for kinds that it does not return themselves.
func (s *Server) delete(w *response) error {
	opts, err := w.deleteOptions()
	if err != nil {
		return err
	}
	rec, err := s.deleteObject(w.table, w.key(), opts.Preconditions)
	if err != nil {
		return err
	}
	partial, err := rec.partial()
	if err != nil {
		return err
	}
	f, _ := negotiate(w.request)
	f.metadata = false
	if w.table.res.custom {
		f.protobuf = false
	}
	w.object(http.StatusOK, f, &metav1.Status{
		Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{
			Name:  w.name,
			Group: w.gvr.Group,
			Kind:  w.gvr.Resource,
			UID:   partial.UID,
		},
	})
	return nil
}

// deleteObject deletes what key has now, if the preconditions hold.
func (s *Server) deleteObject(t *table, key string, pre *metav1.Preconditions) (*record, error) {
	name := key[strings.LastIndexByte(key, '/')+1:]
	return s.storage.write(t, key, func(cur *record) (runtime.Object, error) {
		if cur == nil {
			return nil, apierrors.NewNotFound(t.res.gvr.GroupResource(), name)
		}
		if pre == nil {
			return nil, nil
		}
		return nil, checkPreconditions(cur, name, pre.UID, pre.ResourceVersion)
	})
}

// deleteCollection deletes what a list with the same options returns. Objects
// that are gone by then are not an error.
func (s *Server) deleteCollection(w *response) error {
	opts, err := s.listOptions(w.request)
	if err != nil {
		return err
	}
	p, err := s.page(w.Context(), w.table, scopeOf(w.request, opts))
	if err != nil {
		return err
	}
	for _, row := range p.rows {
		if _, err := s.deleteObject(w.table, row.key, nil); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	f, _ := negotiate(w.request)
	f.metadata = false
	w.object(http.StatusOK, f, &metav1.Status{Status: metav1.StatusSuccess})
	return nil
}
