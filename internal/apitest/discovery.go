package apitest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"
)

// serverVersion is the release whose behaviour this server follows.
var serverVersion = version.Info{
	Major: "1", Minor: "37", GitVersion: "v1.37.2", GitTreeState: "clean",
	GoVersion: "go1.26", Compiler: "gc", Platform: "linux/amd64",
}

// serveDiscovery answers what is not about a resource: the unaggregated
// discovery documents, which every client falls back to, and health.
func (s *Server) serveDiscovery(w *response) error {
	if w.Method != http.MethodGet {
		return errNoSuchPath()
	}
	parts := strings.Split(strings.Trim(w.URL.Path, "/"), "/")
	switch {
	case len(parts) == 1:
		return s.serveRoot(w, parts[0])
	case len(parts) == 2 && parts[0] == "openapi" && parts[1] == "v3":
		return w.document(s.openAPIIndex())
	case len(parts) == 2 && parts[0] == "api":
		return s.serveResources(w, schema.GroupVersion{Version: parts[1]})
	case len(parts) == 2 && parts[0] == "apis":
		return s.serveGroup(w, parts[1])
	case len(parts) == 3 && parts[0] == "apis":
		return s.serveResources(w, schema.GroupVersion{Group: parts[1], Version: parts[2]})
	}
	return errNoSuchPath()
}

func (s *Server) serveRoot(w *response, name string) error {
	switch name {
	case "version":
		return w.document(serverVersion)
	case "api":
		return w.document(metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{Kind: "APIVersions"},
			Versions: []string{"v1"},
		})
	case "apis":
		return w.document(metav1.APIGroupList{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
			Groups:   s.groups(),
		})
	case "healthz", "livez", "readyz":
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write([]byte("ok"))
		return nil
	}
	return errNoSuchPath()
}

func (s *Server) serveGroup(w *response, name string) error {
	for _, g := range s.groups() {
		if g.Name == name {
			g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			return w.document(g)
		}
	}
	return errNoSuchPath()
}

// groups lists the named groups with their versions, preferred ones first.
func (s *Server) groups() []metav1.APIGroup {
	versions := map[string][]string{}
	var names []string
	for _, r := range s.storage.resources() {
		group := r.gvr.Group
		if group == "" || slices.Contains(versions[group], r.gvr.Version) {
			continue
		}
		if versions[group] == nil {
			names = append(names, group)
		}
		versions[group] = append(versions[group], r.gvr.Version)
	}
	groups := make([]metav1.APIGroup, 0, len(names))
	for _, name := range names {
		groups = append(groups, apiGroup(name, versions[name]))
	}
	return groups
}

func apiGroup(name string, versions []string) metav1.APIGroup {
	slices.SortFunc(versions, func(a, b string) int { return priority(name, a) - priority(name, b) })
	g := metav1.APIGroup{Name: name}
	for _, v := range versions {
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + v, Version: v})
	}
	g.PreferredVersion = g.Versions[0]
	return g
}

// priority is the place of a version in the scheme's order of preference.
func priority(group, version string) int {
	return slices.Index(scheme.Scheme.PrioritizedVersionsForGroup(group), schema.GroupVersion{Group: group, Version: version})
}

func (s *Server) serveResources(w *response, gv schema.GroupVersion) error {
	list := metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: gv.String(),
	}
	for _, r := range s.storage.resources() {
		if r.gvr.GroupVersion() == gv {
			list.APIResources = append(list.APIResources, apiResource(r))
		}
	}
	if len(list.APIResources) == 0 {
		return errNoSuchPath()
	}
	return w.document(list)
}

func apiResource(r *resource) metav1.APIResource {
	return metav1.APIResource{
		Name:         r.gvr.Resource,
		SingularName: strings.ToLower(r.gvk.Kind),
		Namespaced:   r.namespaced,
		Kind:         r.gvk.Kind,
		Verbs:        metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
	}
}

func (w *response) document(doc any) error {
	body, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	w.body(http.StatusOK, form{}, body)
	return nil
}
