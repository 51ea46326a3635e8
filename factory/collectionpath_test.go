package factory

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/warmcache/warmcache/store"
)

func TestOrigin_CollectionOf(t *testing.T) {
	for uri, want := range map[string]store.Identity{
		"/api/v1/pods":                             {Version: "v1", Resource: "pods"},
		"/api/v1/namespaces":                       {Version: "v1", Resource: "namespaces"},
		"/api/v1/namespaces/web/pods":              {Version: "v1", Resource: "pods", Namespace: "web"},
		"/api/v1/namespaces/namespaces/pods":       {Version: "v1", Resource: "pods", Namespace: "namespaces"},
		"/apis/apps/v1/deployments":                {Group: "apps", Version: "v1", Resource: "deployments"},
		"/apis/apps/v1/namespaces/web/deployments": {Group: "apps", Version: "v1", Resource: "deployments", Namespace: "web"},
		"/apis/example.com/v1/namespaces":          {Group: "example.com", Version: "v1", Resource: "namespaces"},
		"/api/v1/pods?limit=1&timeout=5s&timeoutSeconds=3&allowWatchBookmarks=true&pretty=1": {
			Version: "v1", Resource: "pods",
		},
		"/api/v1/pods?labelSelector=" + url.QueryEscape("b in (y,x),a=1"): {
			Version: "v1", Resource: "pods", LabelSelector: "a=1,b in (x,y)",
		},
		"/api/v1/pods?fieldSelector=" + url.QueryEscape("spec.nodeName=n,metadata.name!=x"): {
			Version: "v1", Resource: "pods", FieldSelector: "metadata.name!=x,spec.nodeName=n",
		},
		"/api/v1/pods?labelSelector=&fieldSelector=": {Version: "v1", Resource: "pods"},
	} {
		for _, host := range []string{"127.0.0.1:6443", "https://x", "https://x/", "https://x/k8s/clusters/c-1", "https://x/k8s/clusters/c-1/"} {
			r := requestTo(t, http.MethodGet, host, uri)
			if got, err := newOrigin(&rest.Config{Host: host}).collectionOf(r); got != want || err != nil {
				t.Errorf("%s at %s: %+v, %v; want %+v", uri, host, got, err, want)
			}
		}
	}
}

func TestOrigin_CollectionOf_Refuses(t *testing.T) {
	for _, uri := range []string{
		"/api", "/api/v1", "/api/v1/", "/apis/apps/v1", "/apis/apps", "/version", "/",
		"/api/v1/namespaces/web",          // one object
		"/api/v1/pods/p",                  // one object
		"/api/v1/namespaces/web/pods/p",   // one object
		"/api/v1/namespaces/web/status",   // part of one object
		"/api/v1/namespaces/web/finalize", // part of one object
		"/api/v1/namespaces//pods",
		"/api/v1/watch/pods",
		"/api/v1/watch/namespaces/web/pods",
		"/openapi/v3/api/v1",
		"/api/v1/pods?watch=true",
		"/api/v1/pods?continue=x",
		"/api/v1/pods?resourceVersion=0",
		"/api/v1/pods?resourceVersion=7&resourceVersionMatch=Exact",
		"/api/v1/pods?sendInitialEvents=true",
		"/api/v1/pods?shardSelector=x",
		"/api/v1/pods?somethingNew=x",
		"/api/v1/pods?labelSelector=a&labelSelector=b",
		"/api/v1/pods?labelSelector=" + url.QueryEscape("a in"),
		"/api/v1/pods?fieldSelector=nonsense",
	} {
		r := requestTo(t, http.MethodGet, "https://x", uri)
		if got, err := newOrigin(&rest.Config{Host: "https://x"}).collectionOf(r); err == nil {
			t.Errorf("%s: %+v, want an error", uri, got)
		}
	}
}

func TestOrigin_CollectionOf_OnlyGetBelowItsAddress(t *testing.T) {
	o := newOrigin(&rest.Config{Host: "https://x/k8s/clusters/c-1"})
	for _, r := range []*http.Request{
		requestTo(t, http.MethodDelete, "https://x/k8s/clusters/c-1", "/api/v1/pods"),
		requestTo(t, http.MethodGet, "https://x", "/api/v1/pods"),
		requestTo(t, http.MethodGet, "https://x/k8s/clusters/c-12", "/api/v1/pods"),
	} {
		if got, err := o.collectionOf(r); err == nil {
			t.Errorf("%s %s: %+v, want an error", r.Method, r.URL, got)
		}
	}
	invalid := newOrigin(&rest.Config{Host: "host/with/path"})
	if got, err := invalid.collectionOf(requestTo(t, http.MethodGet, "https://x", "/api/v1/pods")); err == nil {
		t.Errorf("%+v with an address that is none, want an error", got)
	}
}

// requestTo returns a request as a client of the host makes it.
func requestTo(t *testing.T, method, host, uri string) *http.Request {
	t.Helper()
	base, _, err := rest.DefaultServerUrlFor(&rest.Config{Host: host})
	if err != nil {
		t.Fatal(err)
	}
	path, query, _ := strings.Cut(uri, "?")
	u := base.JoinPath(path)
	u.RawQuery = query
	r, err := http.NewRequestWithContext(t.Context(), method, u.String(), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
