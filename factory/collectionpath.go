package factory

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/warmcache/warmcache/store"
)

// collectionOf returns what a request lists, without a form, or why it is not one
// that lists a collection, all of it or what selectors select.
func (o *origin) collectionOf(r *http.Request) (store.Identity, error) {
	base, err := o.base()
	if err != nil {
		return store.Identity{}, err
	}
	below, ok := strings.CutPrefix(r.URL.Path, base+"/")
	id, isCollection := collectionAt(strings.Split(below, "/"))
	if r.Method != http.MethodGet || !ok || !isCollection {
		return store.Identity{}, fmt.Errorf("%s %s is not the list of a collection", r.Method, r.URL.Path)
	}
	if err := selectBy(&id, r.URL.Query()); err != nil {
		return store.Identity{}, fmt.Errorf("%s %s: %w", r.Method, r.URL.RequestURI(), err)
	}
	return id, nil
}

// collectionAt reads the path of a collection, which is one of
//
//	api/VERSION/RESOURCE          api/VERSION/namespaces/NAMESPACE/RESOURCE
//	apis/GROUP/VERSION/RESOURCE   apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE
func collectionAt(segments []string) (id store.Identity, ok bool) {
	if slices.Contains(segments, "") {
		return store.Identity{}, false
	}
	switch {
	case len(segments) > 2 && segments[0] == "api":
		id.Version, segments = segments[1], segments[2:]
	case len(segments) > 3 && segments[0] == "apis":
		id.Group, id.Version, segments = segments[1], segments[2], segments[3:]
	default:
		return store.Identity{}, false
	}
	switch {
	case len(segments) == 1:
		id.Resource = segments[0]
	case len(segments) == 3 && segments[0] == "namespaces" && !isPartOfNamespace(segments[2]):
		id.Namespace, id.Resource = segments[1], segments[2]
	default:
		return store.Identity{}, false
	}
	return id, true
}

// isPartOfNamespace tells the subresources of a namespace from the resources in
// it, as the API server does.
func isPartOfNamespace(segment string) bool { return segment == "status" || segment == "finalize" }

// transferParameters say how the objects travel, not which.
var transferParameters = map[string]bool{
	"limit": true, "timeout": true, "timeoutSeconds": true, "allowWatchBookmarks": true, "pretty": true,
}

// selectBy puts the selectors of a query into id, in canonical form. It returns an
// error if anything else in the query changes what the request returns.
func selectBy(id *store.Identity, query url.Values) error {
	for name, values := range query {
		switch {
		case transferParameters[name]:
			continue
		case len(values) != 1 || name != "labelSelector" && name != "fieldSelector":
			return fmt.Errorf("what parameter %s selects cannot be told", name)
		}
	}
	byLabel, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return err
	}
	byField, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return err
	}
	id.LabelSelector, id.FieldSelector = byLabel.String(), byField.String()
	return nil
}
