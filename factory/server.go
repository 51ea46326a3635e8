package factory

import (
	"context"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	clientset kubernetes.Interface
	// cluster is the UID of the namespace kube-system, the customary identity
	// of a cluster: it lives as long as the cluster's data.
	cluster *answer[string]
	// schemas maps an openapi path, such as apis/apps/v1, to the URL of its
	// document, which carries a hash of the content.
	schemas *answer[map[string]string]
}

func newServer(clientset kubernetes.Interface) *server {
	s := &server{clientset: clientset}
	s.cluster = newAnswer(s.askCluster)
	s.schemas = newAnswer(s.askSchemas)
	return s
}

func (s *server) askCluster(ctx context.Context) (string, error) {
	if s.clientset == nil {
		return "", errNoClient
	}
	ns, err := s.clientset.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	switch {
	case withheld(err):
		return "", nil
	case err != nil:
		return "", err
	}
	return string(ns.UID), nil
}

// schemaOf returns a function for the fingerprint of one group-version's schema.
func (s *server) schemaOf(gv schema.GroupVersion) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		urls, err := s.schemas.get(ctx)
		if err != nil {
			return "", err
		}
		return hashIn(urls[openAPIPath(gv)]), nil
	}
}

func (s *server) askSchemas(ctx context.Context) (map[string]string, error) {
	client := s.openAPI(ctx)
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

// openAPI returns nil for a clientset that has no openapi client. client-go's
// fakes say so by a panic, which is of no more interest than a nil.
func (s *server) openAPI(ctx context.Context) (client openapi.ClientWithContext) {
	defer func() {
		if recover() != nil {
			client = nil
		}
	}()
	return s.clientset.Discovery().OpenAPIV3WithContext(ctx)
}

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
