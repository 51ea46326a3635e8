// Command controller is client-go's workqueue controller with informers that
// survive their process: the constructor of the informer factory is chosen by
// -cache-file, and nothing else depends on the choice.
//
// It keeps a directory equal to the ConfigMaps of a namespace, or of all: a file
// per object, which is removed with the object. The directory outlives the process,
// as what most controllers manage does. An object that is deleted while the
// controller is away leaves its file behind for ever with client-go's informers,
// because nobody tells the next process that it was there; ours do.
//
// README.md shows it at work and says what a controller must do to be told.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// options are the command line.
type options struct {
	kubeconfig string
	namespace  string
	// directory is where the files are.
	directory string
	// cacheFile is where the informers keep what they know. Empty means
	// client-go's informers.
	cacheFile string
	workers   int
}

func main() {
	var o options
	klog.InitFlags(nil)
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "path of a kubeconfig; without it $KUBECONFIG, ~/.kube/config or the pod's service account is used")
	flag.StringVar(&o.namespace, "namespace", "", "namespace of the ConfigMaps; empty for all")
	flag.StringVar(&o.directory, "directory", "", "where to keep a file per ConfigMap (required)")
	flag.StringVar(&o.cacheFile, "cache-file", "", "where to keep the informer's objects; empty for client-go's informers")
	flag.IntVar(&o.workers, "workers", 2, "how many ConfigMaps to reconcile at a time")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "controller:", err)
		stop()
		os.Exit(1)
	}
}

// run runs the controller in a cluster until ctx ends.
func (o options) run(ctx context.Context) error {
	config, err := o.config()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	return o.runWith(ctx, client)
}

func (o options) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
}

// runWith is run with a client.
func (o options) runWith(ctx context.Context, client kubernetes.Interface) error {
	switch {
	case o.directory == "":
		return errors.New("-directory is required")
	case o.workers < 1:
		return fmt.Errorf("-workers must be at least 1, not %d", o.workers)
	}
	f, closeFile, err := o.newFactory(client)
	if err != nil {
		return err
	}
	c, err := newController(f.Core().V1().ConfigMaps(), directory{o.directory})
	if err != nil {
		return errors.Join(err, closeFile())
	}
	f.StartWithContext(ctx)
	c.run(ctx, o.workers)
	f.Shutdown()
	return closeFile()
}
