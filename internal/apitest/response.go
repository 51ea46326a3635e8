package apitest

import (
	"bytes"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// response writes one answer, counting bytes for the log and cutting the
// connection where a fault says so.
type response struct {
	http.ResponseWriter
	*request
	entry *logEntry
	fault *Injected // nil without a fault
}

// faultOf returns the fault in force for the request; the zero Fault does
// nothing.
func (w *response) faultOf() Fault {
	if w.fault == nil {
		return Fault{}
	}
	return w.fault.fault
}

// WriteHeader implements http.ResponseWriter.
func (w *response) WriteHeader(status int) {
	w.entry.change(func(r *Request) { r.Status = status })
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *response) Write(b []byte) (int, error) {
	limit := w.faultOf().DropAfterBytes
	sent := w.entry.view().Bytes
	if limit > 0 && sent+int64(len(b)) >= limit {
		b = b[:limit-sent]
		defer w.cut()
	}
	n, err := w.ResponseWriter.Write(b)
	w.entry.change(func(r *Request) { r.Bytes += int64(n) })
	return n, err
}

// cut closes the connection after what has been written. It does not return.
func (w *response) cut() {
	w.flush()
	panic(http.ErrAbortHandler) // the way to cut a connection of net/http
}

func (w *response) flush() {
	// An error means that the client is gone, which the request's context says.
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// error answers with the Status of err, as a real server does.
func (w *response) error(err error) {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	f, _ := negotiate(w.request)
	f.metadata = false
	w.object(int(status.Code), f, &status)
}

// object answers with an object that is not a stored one.
func (w *response) object(code int, f form, obj runtime.Object) {
	var body bytes.Buffer
	if err := encodeObject(&body, f, obj); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.body(code, f, body.Bytes())
}

// record answers with a stored object.
func (w *response) record(code int, f form, rec *record) error {
	body, err := envelope(f, f.kind(rec.res), rec)
	if err != nil {
		return err
	}
	w.body(code, f, body)
	return nil
}

func (w *response) body(code int, f form, body []byte) {
	w.Header().Set("Content-Type", f.contentType())
	w.WriteHeader(code)
	// An error means that the client is gone; nobody is left to tell.
	_, _ = w.Write(body)
}

func (f form) contentType() string {
	if f.protobuf {
		return runtime.ContentTypeProtobuf
	}
	return runtime.ContentTypeJSON
}

// negotiate picks the form of the answer: the first clause of the Accept header
// that can be served, or false. Clients of Kubernetes list their clauses in
// order of preference and do not use weights.
func negotiate(r *request) (form, bool) {
	accept := r.Header.Get("Accept")
	if accept == "" {
		return form{}, true
	}
	custom := r.table != nil && r.table.res.custom
	for clause := range strings.SplitSeq(accept, ",") {
		if f, ok := parseClause(clause); ok && (!custom || !f.protobuf || f.metadata) {
			return f, true
		}
	}
	return form{}, false
}

func parseClause(clause string) (form, bool) {
	media, params, err := mime.ParseMediaType(clause)
	if err != nil {
		return form{}, false
	}
	var f form
	switch media {
	case runtime.ContentTypeProtobuf:
		f.protobuf = true
	case runtime.ContentTypeJSON, "application/*", "*/*":
	default:
		return form{}, false
	}
	switch params["as"] {
	case "":
		return f, true
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		f.metadata = true
		return f, params["g"] == metav1.GroupName && params["v"] == "v1"
	}
	return form{}, false // Table and others
}

// formOf is negotiate with the error that a real server gives.
func formOf(r *request) (form, error) {
	f, ok := negotiate(r)
	if ok {
		return f, nil
	}
	return f, &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotAcceptable,
		Reason:  metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: application/json, application/vnd.kubernetes.protobuf",
	}}
}
