package factory

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/rest"

	"github.com/warmcache/warmcache/internal/isnil"
	"github.com/warmcache/warmcache/reflector"
)

// server is what the informers of a factory want to know about the API server,
// apart from objects. It asks at most once for all of them.
//
// Both answers may be empty, which means that the server does not tell (no
// permission, a fake). That is a result like any other. An error means that the
// server could not be asked; the next informer asks again.
type server struct {
	// cluster is the UID of the namespace kube-system, the customary identity
	// of a cluster: it lives as long as the cluster's data. For those who may not
	// read it, it is made of the keys of the cluster's tokens; see issuerKeys.
	cluster   *answer[string]
	namespace namespaceGetter
	// schemas maps an openapi path, such as apis/apps/v1, to the URL of its
	// document, which carries a hash of the content.
	schemas *answer[map[string]string]
	// changes says that nobody calls forget before a start, so that an answer is good
	// only for those who waited for it.
	changes bool
}

// forget makes the next informers ask again: the server may have been upgraded since
// an earlier start, or be that of another cluster.
func (s *server) forget() {
	s.cluster.forget()
	s.schemas.forget()
}

// clusterID returns the identity of the cluster.
func (s *server) clusterID(ctx context.Context) (string, error) {
	id, err := s.cluster.get(ctx)
	if s.changes {
		s.cluster.forget()
	}
	return id, err
}

// clusterFor returns clusterID for one informer. Who asks again has a reason not to believe
// what everybody was told before.
func (s *server) clusterFor() func(context.Context) (string, error) {
	var answered atomic.Bool
	return func(ctx context.Context) (string, error) {
		if answered.Load() {
			s.cluster.forget()
		}
		id, err := s.clusterID(ctx)
		if err == nil {
			answered.Store(true)
		}
		return id, err
	}
}

type namespaceGetter func(ctx context.Context, name string, o metav1.GetOptions) (metav1.Object, error)

// newServer asks with what a client offers: namespace gets one, and d, if it returns
// a client, leads to the schemas and the keys of tokens.
func newServer(namespace namespaceGetter, d func() discovery.OpenAPIV3SchemaInterface) *server {
	return &server{
		cluster:   newAnswer(func(ctx context.Context) (string, error) { return clusterOf(ctx, namespace, d()) }),
		schemas:   newAnswer(func(ctx context.Context) (map[string]string, error) { return schemasOf(ctx, openAPIOf(ctx, d())) }),
		namespace: namespace,
	}
}

// serverOf asks with a clientset.
func serverOf(clientset kubernetes.Interface) *server {
	return newServer(
		func(ctx context.Context, name string, o metav1.GetOptions) (metav1.Object, error) {
			return clientset.CoreV1().Namespaces().Get(ctx, name, o)
		},
		func() discovery.OpenAPIV3SchemaInterface { return clientset.Discovery() },
	)
}

// withDiscovery returns a server that asks d for what namespaces do not tell.
func (s *server) withDiscovery(d discovery.OpenAPIV3SchemaInterface) *server {
	with := newServer(s.namespace, func() discovery.OpenAPIV3SchemaInterface { return d })
	with.changes = s.changes
	return with
}

func clusterOf(ctx context.Context, namespace namespaceGetter, d discovery.OpenAPIV3SchemaInterface) (string, error) {
	ns, err := namespace(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	switch {
	case withheld(err):
		return issuerKeys(ctx, d)
	case err != nil:
		return "", err
	}
	return string(ns.GetUID()), nil
}

// issuerKeys returns the identity of a cluster that is made of the keys with which it
// signs the tokens of service accounts. Every service account may read them, unless the
// role system:service-account-issuer-discovery was unbound. Keys without a name are not
// told apart.
func issuerKeys(ctx context.Context, d discovery.OpenAPIV3SchemaInterface) (string, error) {
	client, ok := d.(interface{ RESTClient() rest.Interface })
	if !ok || isnil.Value(d) || isnil.Value(client.RESTClient()) {
		return "", nil
	}
	body, err := client.RESTClient().Get().AbsPath("/openid/v1/jwks").SetHeader("Accept", "application/jwk-set+json").DoRaw(ctx)
	if withheld(err) || apierrors.IsNotAcceptable(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var set struct {
		Keys []struct {
			ID string `json:"kid"`
		} `json:"keys"`
	}
	if json.Unmarshal(body, &set) != nil {
		return "", nil //nolint:nilerr // What is not what it is meant to be tells nothing.
	}
	var ids []string
	for _, key := range set.Keys {
		if key.ID != "" && !strings.Contains(key.ID, ",") {
			ids = append(ids, key.ID)
		}
	}
	if len(ids) == 0 {
		return "", nil
	}
	slices.Sort(ids)
	return reflector.IssuerKeys + strings.Join(ids, ","), nil
}

// schemaOf returns a function for the fingerprint of one group-version's schema.
func (s *server) schemaOf(gv schema.GroupVersion) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		urls, err := s.schemas.get(ctx)
		if s.changes {
			s.schemas.forget()
		}
		if err != nil {
			return "", err
		}
		return hashIn(urls[openAPIPath(gv)]), nil
	}
}

func schemasOf(ctx context.Context, client openapi.ClientWithContext) (map[string]string, error) {
	if client == nil {
		return nil, nil
	}
	documents, err := client.PathsWithContext(ctx)
	switch {
	case withheld(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	urls := make(map[string]string, len(documents))
	for path, document := range documents {
		urls[path] = document.ServerRelativeURL()
	}
	return urls, nil
}

// openAPIOf returns nil if there is no openapi client. client-go's fakes say so by
// a panic, which is of no more interest than a nil, or than a nil d.
func openAPIOf(ctx context.Context, d discovery.OpenAPIV3SchemaInterface) (client openapi.ClientWithContext) {
	defer func() {
		if recover() != nil {
			client = nil
		}
	}()
	return discovery.OpenAPIV3ToSchemaInterfaceWithContext(d).OpenAPIV3WithContext(ctx)
}

// noDiscovery is for clients that lead to nothing but objects.
func noDiscovery() discovery.OpenAPIV3SchemaInterface { return nil }

// withheld tells an API server's refusal, which will not change while this
// process starts its informers, from a failure to reach it.
func withheld(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
}

// openAPIPath is the key of a group-version in the index of /openapi/v3.
func openAPIPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.Group + "/" + gv.Version
}

// hashIn returns the hash parameter of a document's URL, empty if there is none.
func hashIn(documentURL string) string {
	u, err := url.Parse(documentURL)
	if err != nil {
		return ""
	}
	return u.Query().Get("hash")
}
