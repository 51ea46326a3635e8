package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/warmcache/warmcache/internal/apitest"
)

const (
	// reachLimit is how long a cluster may take to answer the first request.
	reachLimit = 15 * time.Second
	// namespacePause is how long a cluster gets to furnish a new namespace.
	namespacePause = 2 * time.Second
	// cleanupLimit is how long removing what was created may take. A server
	// deletes a few hundred objects a second.
	cleanupLimit = 15 * time.Minute
)

// cluster is an API server and the namespace in it that belongs to the demo.
type cluster struct {
	// name is what the report calls it.
	name string
	// host or kubeconfig lead a child there.
	host, kubeconfig string
	kind             kind
	namespace        string

	client *kubernetes.Clientset
	// objects reads and changes the objects by their metadata, whatever kind
	// they are.
	objects metadata.ResourceInterface
	// store creates an object.
	store func(context.Context, runtime.Object) error
	// stop ends an embedded server; nil for a real one.
	stop func() error
}

// openCluster returns the cluster that the user asked for, with a new namespace.
// The caller must close it.
func openCluster(ctx context.Context, kubeconfig string) (*cluster, error) {
	if kubeconfig == "" {
		return embeddedCluster(ctx)
	}
	return realCluster(ctx, kubeconfig)
}

// embeddedCluster starts an API server in this process. The children reach it
// over a loopback port.
func embeddedCluster(ctx context.Context) (*cluster, error) {
	server, err := apitest.New(apitest.Options{})
	if err != nil {
		return nil, err
	}
	c := &cluster{
		name:      "embedded",
		host:      server.URL(),
		kind:      kindFor(true),
		namespace: "warmrestart",
		// Not over HTTP, which takes several times as long and shows nothing.
		store: func(_ context.Context, obj runtime.Object) error { return server.Create(obj) },
		stop:  server.Close,
	}
	err = c.connect(&rest.Config{Host: c.host})
	if err == nil {
		err = c.createNamespace(ctx)
	}
	if err != nil {
		_ = server.Close()
		return nil, err
	}
	return c, nil
}

// realCluster finds out that the cluster can be used, and makes a namespace in it
// that no other run has. Whatever is wrong up to there is the user's to mend.
func realCluster(ctx context.Context, kubeconfig string) (*cluster, error) {
	config, err := loadKubeconfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	c := &cluster{
		name:       config.Host,
		kubeconfig: kubeconfig,
		kind:       kindFor(false),
		namespace:  "warmrestart-" + strings.ToLower(rand.Text()[:8]),
	}
	c.store = c.post
	if err := c.connect(config); err != nil {
		return nil, badInput("kubeconfig %s: %w", kubeconfig, err)
	}
	if err := c.reach(ctx); err != nil {
		return nil, badInput("cluster %s of kubeconfig %s cannot be used: %w", config.Host, kubeconfig, err)
	}
	return c, nil
}

// loadKubeconfig returns the current context's configuration.
func loadKubeconfig(path string) (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
	raw, err := rules.Load()
	var config *rest.Config
	if err == nil {
		// Not the deferred loader: it takes a pod's own cluster for an empty
		// file.
		config, err = clientcmd.NewDefaultClientConfig(*raw, nil).ClientConfig()
	}
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, badInput("kubeconfig %s: it names no cluster", path)
	case err != nil:
		return nil, badInput("kubeconfig %s: %w", path, err)
	}
	return config, nil
}

// clientConfig is what all clients of the demo have in common: protobuf, no rate
// limit of their own, no warnings in between.
func clientConfig(config *rest.Config) *rest.Config {
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.QPS = -1
	config.UserAgent = "warmrestart"
	config.WarningHandlerWithContext = rest.NoWarnings{}
	return config
}

// connect makes the clients of the parent.
func (c *cluster) connect(config *rest.Config) (err error) {
	config = clientConfig(config)
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	c.objects = objects.Resource(c.kind.gvr).Namespace(c.namespace)
	return nil
}

// reach finds out whether the cluster answers, before anything is created in it,
// and creates the namespace.
func (c *cluster) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, reachLimit, fmt.Errorf("no answer within %s", reachLimit))
	defer cancel()
	_, err := c.objects.List(ctx, metav1.ListOptions{Limit: 1})
	if err == nil {
		err = c.createNamespace(ctx)
		if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsAlreadyExists(err) {
			// It may have been created all the same.
			_ = c.close()
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	// Controllers put objects of their own into every namespace, such as
	// kube-root-ca.crt, and say nowhere that they have.
	select {
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), c.close())
	case <-time.After(namespacePause):
		return nil
	}
}

// post creates an object of any kind, as its generated client would.
func (c *cluster) post(ctx context.Context, obj runtime.Object) error {
	return c.client.CoreV1().RESTClient().Post().
		Namespace(c.namespace).
		Resource(c.kind.gvr.Resource).
		Body(obj).
		Do(ctx).Error()
}

// namespace returns one to be created.
func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func (c *cluster) createNamespace(ctx context.Context) error {
	_, err := c.client.CoreV1().Namespaces().Create(ctx, namespace(c.namespace), metav1.CreateOptions{})
	return err
}

// list returns what the server has now.
func (c *cluster) list(ctx context.Context) (state, error) {
	list, err := c.objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing what the server has: %w", err)
	}
	s := make(state, len(list.Items))
	for i := range list.Items {
		key, v := keyAndVersion(&list.Items[i])
		s[key] = v
	}
	return s, nil
}

// close removes what the demo has created. It does not use the context of the
// demo, which may have ended.
func (c *cluster) close() error {
	if c.stop != nil {
		return c.stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
	defer cancel()
	// The objects first: a namespace is emptied by a controller, which a bare
	// API server does not have. A large collection takes several requests.
	err := c.objects.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	for ctx.Err() == nil && (apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)) {
		err = c.objects.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	}
	nsErr := c.client.CoreV1().Namespaces().Delete(ctx, c.namespace, metav1.DeleteOptions{})
	if apierrors.IsNotFound(nsErr) {
		return nil
	}
	if err = errors.Join(err, nsErr); err != nil {
		return fmt.Errorf("namespace %s may not be gone, remove it with kubectl: %w", c.namespace, err)
	}
	return nil
}
