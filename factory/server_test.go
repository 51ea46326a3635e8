package factory

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	fakedynamic "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
)

// script is an HTTP server that answers with the current handler and counts.
type script struct {
	handler  atomic.Pointer[http.HandlerFunc]
	requests atomic.Int32
}

func (s *script) set(h http.HandlerFunc) { s.handler.Store(&h) }

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	(*s.handler.Load())(w, r)
}

func serve(t *testing.T) (kubernetes.Interface, *script) {
	t.Helper()
	s := &script{}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	httpClient := server.Client()
	client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, httpClient)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(httpClient.CloseIdleConnections)
	return client, s
}

func status(code int, reason metav1.StatusReason) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"` + string(reason) + `"}`))
	}
}

func body(path, json string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(json))
	}
}

const kubeSystem = `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"u-1"}}`

// clusterAndSchema returns the functions that two informers of f got.
func clusterAndSchema(t *testing.T, f *Factory) (cluster, schema [2]func(context.Context) (string, error)) {
	t.Helper()
	calls := record(f)
	f.Core().V1().Pods().Informer()
	f.Apps().V1().Deployments().Informer()
	if len(*calls) != 2 {
		t.Fatalf("%d informers, want 2", len(*calls))
	}
	for i, c := range *calls {
		cluster[i], schema[i] = c.options.Cluster, c.options.Schema
	}
	return cluster, schema
}

func TestFactory_Cluster_AskedOnce(t *testing.T) {
	client, server := serve(t)
	cluster, _ := clusterAndSchema(t, must(New(client, newStore())))

	server.set(status(http.StatusInternalServerError, metav1.StatusReasonInternalError))
	if id, err := cluster[0](t.Context()); err == nil {
		t.Errorf("cluster = %q while the server fails, want an error", id)
	}
	server.set(body("/api/v1/namespaces/kube-system", kubeSystem))
	server.requests.Store(0)
	for _, ask := range cluster {
		if id, err := ask(t.Context()); id != "u-1" || err != nil {
			t.Errorf("cluster = %q, %v; want u-1", id, err)
		}
	}
	if n := server.requests.Load(); n != 1 {
		t.Errorf("%d requests for two informers, want 1", n)
	}
}

func TestFactory_Cluster_UnknownWhenWithheld(t *testing.T) {
	for code, reason := range map[int]metav1.StatusReason{
		http.StatusForbidden: metav1.StatusReasonForbidden,
		http.StatusNotFound:  metav1.StatusReasonNotFound,
	} {
		client, server := serve(t)
		server.set(status(code, reason))
		cluster, _ := clusterAndSchema(t, must(New(client, newStore())))
		for _, ask := range cluster {
			if id, err := ask(t.Context()); id != "" || err != nil {
				t.Errorf("%d: cluster = %q, %v; want unknown", code, id, err)
			}
		}
		if n := server.requests.Load(); n != 2 { // for the namespace and the keys
			t.Errorf("%d: %d requests for two informers, want 2", code, n)
		}
	}
}

func TestFactory_Cluster_Unauthorized(t *testing.T) {
	client, server := serve(t)
	server.set(status(http.StatusUnauthorized, metav1.StatusReasonUnauthorized))
	cluster, _ := clusterAndSchema(t, must(New(client, newStore())))
	if id, err := cluster[0](t.Context()); err == nil {
		t.Errorf("cluster = %q, want an error: credentials may be renewed", id)
	}
}

const openAPIIndex = `{"paths":{
	"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=C0"},
	"apis/apps/v1":{"serverRelativeURL":"/openapi/v3/apis/apps/v1?hash=A1"},
	"apis/batch/v1":{"serverRelativeURL":"/openapi/v3/apis/batch/v1"},
	"apis/policy/v1":{"serverRelativeURL":"%zz"}}}`

func TestFactory_Schema_AskedOncePerStart(t *testing.T) {
	client, server := serve(t)
	f := must(New(client, newStore()))
	_, hash := clusterAndSchema(t, f)

	server.set(status(http.StatusInternalServerError, metav1.StatusReasonInternalError))
	if got, err := hash[0](t.Context()); err == nil {
		t.Errorf("schema = %q while the server fails, want an error", got)
	}
	server.set(body("/openapi/v3", openAPIIndex))
	server.requests.Store(0)
	for i, want := range []string{"C0", "A1"} {
		if got, err := hash[i](t.Context()); got != want || err != nil {
			t.Errorf("schema = %q, %v; want %s", got, err, want)
		}
	}
	if n := server.requests.Load(); n != 1 {
		t.Errorf("%d requests for two informers, want 1", n)
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	f.StartWithContext(ended)
	f.Shutdown()
	server.set(body("/openapi/v3", strings.ReplaceAll(openAPIIndex, "C0", "C9")))
	if got, err := hash[0](t.Context()); got != "C9" || err != nil {
		t.Errorf("schema = %q, %v after another start; want C9", got, err)
	}
}

func TestServer_SchemaOf_Unknown(t *testing.T) {
	client, server := serve(t)
	server.set(body("/openapi/v3", openAPIIndex))
	s := serverOf(client)
	for _, gv := range []schema.GroupVersion{
		{Group: "example.com", Version: "v1"}, // not in the index
		{Group: "batch", Version: "v1"},       // no hash
		{Group: "policy", Version: "v1"},      // not a URL
	} {
		if got, err := s.schemaOf(gv)(t.Context()); got != "" || err != nil {
			t.Errorf("%v: schema = %q, %v; want unknown", gv, got, err)
		}
	}
}

func TestServer_SchemaOf_WithheldIsUnknown(t *testing.T) {
	client, server := serve(t)
	server.set(status(http.StatusForbidden, metav1.StatusReasonForbidden))
	if got, err := serverOf(client).schemaOf(corev1.SchemeGroupVersion)(t.Context()); got != "" || err != nil {
		t.Errorf("schema = %q, %v; want unknown", got, err)
	}
}

func TestServer_FakeClientset(t *testing.T) {
	s := serverOf(fake.NewClientset())
	if got, err := s.schemaOf(corev1.SchemeGroupVersion)(t.Context()); got != "" || err != nil {
		t.Errorf("schema = %q, %v; want unknown", got, err)
	}
	if got, err := s.cluster.get(t.Context()); got != "" || err != nil {
		t.Errorf("cluster = %q, %v; want unknown", got, err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "u-1"}}
	if got, err := serverOf(fake.NewClientset(ns)).cluster.get(t.Context()); got != "u-1" || err != nil {
		t.Errorf("cluster = %q, %v; want u-1", got, err)
	}
}

// TestServer_Cluster_ByIssuerKeys checks the identity of a cluster for those who may not
// read its namespaces.
func TestServer_Cluster_ByIssuerKeys(t *testing.T) {
	for _, test := range []struct {
		name, jwks string
		code       int
		want       string
	}{
		{"keys", `{"keys":[{"kid":"b","kty":"RSA"},{"kid":"a"}]}`, http.StatusOK, "keys:a,b"},
		{"keys without names", `{"keys":[{"kty":"RSA"},{"kid":"a"}]}`, http.StatusOK, "keys:a"},
		{"no keys", `{"keys":[]}`, http.StatusOK, ""},
		{"something else", `<html>`, http.StatusOK, ""},
		{"forbidden", "", http.StatusForbidden, ""},
		{"not served", "", http.StatusNotFound, ""},
		{"not acceptable", "", http.StatusNotAcceptable, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			client, server := serve(t)
			server.set(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path != "/openid/v1/jwks":
					status(http.StatusForbidden, metav1.StatusReasonForbidden)(w, r)
				case test.code != http.StatusOK:
					w.WriteHeader(test.code)
				default:
					w.Header().Set("Content-Type", "application/jwk-set+json")
					_, _ = w.Write([]byte(test.jwks))
				}
			})
			dynamic := must(NewDynamic(fakedynamic.NewSimpleDynamicClient(runtime.NewScheme()), newStore(), WithDiscovery(client.Discovery())))
			for door, ask := range map[string]func(context.Context) (string, error){"clientset": serverOf(client).clusterID, "client with discovery": dynamic.server.clusterID} {
				if got, err := ask(t.Context()); got != test.want || err != nil {
					t.Errorf("%s: cluster = %q, %v; want %q", door, got, err, test.want)
				}
			}
		})
	}
	t.Run("out of reach", func(t *testing.T) {
		client, server := serve(t)
		server.set(func(w http.ResponseWriter, r *http.Request) {
			code, reason := http.StatusForbidden, metav1.StatusReasonForbidden
			if r.URL.Path == "/openid/v1/jwks" {
				code, reason = http.StatusInternalServerError, metav1.StatusReasonInternalError
			}
			status(code, reason)(w, r)
		})
		if got, err := serverOf(client).clusterID(t.Context()); err == nil {
			t.Errorf("cluster = %q, want an error: the next informer asks again", got)
		}
	})
}

// TestServer_ClusterFor_AsksAnewForWhoAsksAgain checks that an informer which asks a second
// time is not told what it was told before.
func TestServer_ClusterFor_AsksAnewForWhoAsksAgain(t *testing.T) {
	client, server := serve(t)
	s := serverOf(client)
	first, second := s.clusterFor(), s.clusterFor()
	for n, step := range []struct {
		ask      func(context.Context) (string, error)
		uid      string
		want     string
		requests int32
	}{
		{first, "a", "a", 1},
		{second, "b", "a", 1}, // has not asked yet
		{first, "b", "b", 2},
		{second, "c", "c", 3},
	} {
		server.set(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(&corev1.Namespace{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
				ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: types.UID(step.uid)},
			})
		})
		if got, err := step.ask(t.Context()); got != step.want || err != nil {
			t.Errorf("%d: cluster = %q, %v; want %q", n, got, err, step.want)
		}
		if got := server.requests.Load(); got != step.requests {
			t.Errorf("%d: %d requests, want %d", n, got, step.requests)
		}
	}
}
