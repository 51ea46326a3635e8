package factory

import (
	"context"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/openapi"
)

// server is what the informers of a factory want to know about the API server,
// apart from objects. It asks at most once for all of them.
//
// Both answers may be empty, which means that the server does not tell (no
// permission, a fake). That is a result like any other. An error means that the
// server could not be asked; the next informer asks again.
type server struct {
	// cluster is the UID of the namespace kube-system, the customary identity
	// of a cluster: it lives as long as the cluster's data.
	cluster *answer[string]
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

// newServer asks with what a client offers: namespace gets one, and openAPI
// returns a client for the schemas, or nil if there is none.
func newServer(
	namespace func(ctx context.Context, name string, o metav1.GetOptions) (metav1.Object, error),
	openAPI func(context.Context) openapi.ClientWithContext,
) *server {
	return &server{
		cluster: newAnswer(func(ctx context.Context) (string, error) { return clusterOf(ctx, namespace) }),
		schemas: newAnswer(func(ctx context.Context) (map[string]string, error) { return schemasOf(ctx, openAPI(ctx)) }),
	}
}

// serverOf asks with a clientset.
func serverOf(clientset kubernetes.Interface) *server {
	return newServer(
		func(ctx context.Context, name string, o metav1.GetOptions) (metav1.Object, error) {
			return clientset.CoreV1().Namespaces().Get(ctx, name, o)
		},
		func(ctx context.Context) openapi.ClientWithContext { return openAPIOf(ctx, clientset.Discovery()) },
	)
}

// withSchemas returns a server that asks d for the schemas.
func (s *server) withSchemas(d discovery.OpenAPIV3SchemaInterface) *server {
	with := *s
	with.schemas = newAnswer(func(ctx context.Context) (map[string]string, error) {
		return schemasOf(ctx, openAPIOf(ctx, d))
	})
	return &with
}

func clusterOf(ctx context.Context, namespace func(context.Context, string, metav1.GetOptions) (metav1.Object, error)) (string, error) {
	ns, err := namespace(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	switch {
	case withheld(err):
		return "", nil
	case err != nil:
		return "", err
	}
	return string(ns.GetUID()), nil
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

// noOpenAPI is for clients that do not lead to schemas.
func noOpenAPI(context.Context) openapi.ClientWithContext { return nil }

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
