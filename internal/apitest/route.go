package apitest

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// request is what the path, query and method of an HTTP request ask for.
type request struct {
	*http.Request
	verb        string
	table       *table // nil for discovery and the like
	gvr         schema.GroupVersionResource
	namespace   string
	name        string
	subresource string
}

// parseRequest never fails: what is not a known resource has no table.
func (s *Server) parseRequest(r *http.Request) *request {
	req := &request{Request: r, verb: strings.ToLower(r.Method)}
	rest, ok := req.splitGroup(strings.Split(strings.Trim(r.URL.Path, "/"), "/"))
	if !ok || len(rest) == 0 {
		return req
	}
	if rest[0] == "namespaces" && len(rest) >= 3 && !isNamespaceSubresource(rest) {
		req.namespace, rest = rest[1], rest[2:]
	}
	req.gvr.Resource = rest[0]
	if len(rest) > 1 {
		req.name = rest[1]
	}
	if len(rest) > 2 {
		req.subresource = strings.Join(rest[2:], "/")
	}
	req.table, _ = s.storage.table(req.gvr)
	req.verb = req.resourceVerb()
	return req
}

// splitGroup takes /api/v1 or /apis/group/version off the path.
func (r *request) splitGroup(parts []string) ([]string, bool) {
	switch {
	case len(parts) >= 2 && parts[0] == "api":
		r.gvr.Version = parts[1]
		return parts[2:], true
	case len(parts) >= 3 && parts[0] == "apis":
		r.gvr.Group, r.gvr.Version = parts[1], parts[2]
		return parts[3:], true
	}
	return nil, false
}

func isNamespaceSubresource(parts []string) bool {
	return len(parts) == 3 && (parts[2] == "status" || parts[2] == "finalize")
}

// resourceVerb is the verb that authorization would see.
func (r *request) resourceVerb() string {
	watch := r.URL.Query().Get("watch")
	switch r.Method {
	case http.MethodGet:
		switch {
		case r.name != "":
			return "get"
		case watch == "true" || watch == "1":
			return "watch"
		}
		return "list"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodDelete:
		if r.name == "" {
			return "deletecollection"
		}
	}
	return strings.ToLower(r.Method)
}

// ServeHTTP answers one request of the Kubernetes API, unless a fault is in the
// way. It is what the server's own listener calls; other listeners may, too.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.handlers.enter() {
		panic(http.ErrAbortHandler) // the way to cut a connection of net/http
	}
	defer s.handlers.leave()
	req := s.parseRequest(r)
	entry := s.log.begin(req)
	defer entry.end()
	reply := &response{ResponseWriter: w, request: req, entry: entry}
	reply.fault = s.faults.match(entry)
	if reply.fault != nil && s.fail(reply) {
		return
	}
	if err := s.answer(reply); err != nil {
		reply.error(err)
	}
}

// answer either writes a whole response or returns an error and has written
// nothing.
func (s *Server) answer(w *response) error {
	if w.table == nil {
		return s.serveDiscovery(w)
	}
	if err := w.misplaced(); err != nil {
		return err
	}
	switch w.verb {
	case "list":
		return s.list(w)
	case "watch":
		return s.watch(w)
	case "get":
		return s.get(w)
	case "create":
		return s.create(w)
	case "update":
		return s.update(w)
	case "patch":
		return s.patch(w)
	case "delete":
		return s.delete(w)
	case "deletecollection":
		return s.deleteCollection(w)
	}
	return apierrors.NewMethodNotSupported(w.gvr.GroupResource(), w.verb)
}

// misplaced refuses paths that the resource does not have.
func (r *request) misplaced() error {
	namespaced := r.table.res.namespaced
	switch {
	case r.namespace != "" && !namespaced,
		r.name != "" && namespaced && r.namespace == "",
		r.subresource != "" && r.subresource != "status":
		return errNoSuchPath()
	case r.Method != http.MethodGet && namespaced && r.namespace == "":
		return apierrors.NewMethodNotSupported(r.gvr.GroupResource(), r.verb)
	}
	return nil
}

func errNoSuchPath() error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "", 0, true)
}
