// Command controllerruntime is a controller of controller-runtime with informers
// that survive their process: -cache-file chooses the constructor of the informers,
// and nothing else depends on the choice.
//
// It mirrors the ConfigMaps of one namespace that have the label mirror=yes into
// another namespace: copies are created, changed and deleted as their originals are.
// An original that is deleted while the controller is away leaves its copy behind
// for ever with controller-runtime's own informers, because nobody tells the next
// process that it was there; ours do.
//
// README.md shows it at work.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// options are the command line.
type options struct {
	// source has the originals, target the copies.
	source, target string
	// cacheFile is where the informers keep what they know. Empty means
	// controller-runtime's informers.
	cacheFile string
}

func main() {
	var o options
	klog.InitFlags(nil)
	flag.StringVar(&o.source, "source", "", "namespace of the originals (required)")
	flag.StringVar(&o.target, "target", "", "namespace of the copies (required)")
	flag.StringVar(&o.cacheFile, "cache-file", "", "where to keep the informers' objects; empty for controller-runtime's informers")
	flag.Parse() // Package config has added -kubeconfig.
	log.SetLogger(klog.Background())

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "controllerruntime:", err)
		stop()
		os.Exit(1)
	}
}

// run runs the controller until ctx ends.
func (o options) run(ctx context.Context) error {
	if o.source == "" || o.target == "" || o.source == o.target {
		return errors.New("-source and -target must name two namespaces")
	}
	cfg, err := config.GetConfig()
	if err != nil {
		return err
	}
	i, err := o.informers(cfg)
	if err != nil {
		return err
	}
	m, err := o.newManager(i)
	if err != nil {
		return errors.Join(err, i.close())
	}
	err = m.Start(ctx) // returns when all informers have stopped
	return errors.Join(err, i.close())
}

func (o options) newManager(i informers) (manager.Manager, error) {
	m, err := manager.New(i.config, manager.Options{
		Metrics: server.Options{BindAddress: "0"},
		Cache: cache.Options{
			NewInformer: i.newInformer,
			ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {
				Namespaces: map[string]cache.Config{o.source: {}},
				Label:      labels.SelectorFromSet(labels.Set{"mirror": "yes"}),
			}},
		},
	})
	if err != nil {
		return nil, err
	}
	r := &mirror{originals: m.GetCache(), copies: m.GetClient(), target: o.target}
	return m, builder.ControllerManagedBy(m).For(&corev1.ConfigMap{}).Complete(r)
}

// informers is what depends on whether they survive.
type informers struct {
	config *rest.Config
	// newInformer is nil for controller-runtime's own.
	newInformer newInformerFunc
	// close closes the file, if there is one.
	close func() error
}
