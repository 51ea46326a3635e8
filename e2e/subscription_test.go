package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/factory"
	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store"
)

// door is a way to an informer.
type door string

const (
	// typedDoor is factory.New, with types of client-go.
	typedDoor door = "typed"
	// dynamicDoor is factory.NewDynamic, which is told how to learn schemas.
	dynamicDoor door = "dynamic"
	// metadataDoor is factory.NewMetadata, which is not.
	metadataDoor door = "metadata"
	// schemeDoor is informer.New with a client of a scheme of the user's own:
	// hand-written types of custom resources.
	schemeDoor door = "scheme"
)

// selection is what the informers of one factory have in common.
type selection struct {
	Door                                    door
	Namespace, LabelSelector, FieldSelector string
}

// subscription is an informer of a child, made through any door.
type subscription struct {
	// Name is what events and snapshots call it.
	Name     string
	Resource schema.GroupVersionResource
	selection
}

// agent tells the requests of a subscription from those of others.
func (s selection) agent(base string) string {
	return fmt.Sprintf("%s#%s?%s&%s&%s", base, s.Door, s.Namespace, s.LabelSelector, s.FieldSelector)
}

func (s selection) tweak(o *metav1.ListOptions) {
	o.LabelSelector, o.FieldSelector = s.LabelSelector, s.FieldSelector
}

// source runs informers.
type source interface {
	StartWithContext(ctx context.Context)
	Shutdown()
}

var (
	_ source = (*factory.Factory)(nil)
	_ source = (*factory.DynamicFactory)(nil)
	_ source = (*factory.MetadataFactory)(nil)
)

// doors make the informers of a process, with one factory for each selection.
type doors struct {
	config  *rest.Config
	db      store.Store
	options []factory.Option
	// own are the options of informers that are not of a factory.
	own     informer.Options
	sources map[selection]source
}

// open returns the informer of a subscription.
func (d *doors) open(s subscription) (cache.SharedIndexInformer, error) {
	from, known := d.sources[s.selection]
	if !known {
		var err error
		if from, err = d.source(s.selection); err != nil {
			return nil, err
		}
		d.sources[s.selection] = from
	}
	switch from := from.(type) {
	case *factory.Factory:
		generic, err := from.ForResource(s.Resource)
		if err != nil {
			return nil, err
		}
		return generic.Informer(), nil
	case *factory.DynamicFactory:
		return from.ForResource(s.Resource).Informer(), nil
	case *factory.MetadataFactory:
		return from.ForResource(s.Resource).Informer(), nil
	case *ownInformers:
		return d.openOwn(s, from)
	}
	return nil, fmt.Errorf("no door leads to %T", from)
}

// source returns what makes and runs the informers of a selection.
func (d *doors) source(s selection) (source, error) {
	config := rest.CopyConfig(d.config)
	config.UserAgent = s.agent(config.UserAgent)
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	options := append([]factory.Option{factory.WithNamespace(s.Namespace), factory.WithTweakListOptions(s.tweak)}, d.options...)
	switch s.Door {
	case typedDoor:
		return factory.New(clientset, d.db, options...)
	case dynamicDoor:
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return factory.NewDynamic(client, d.db, append(options, factory.WithDiscovery(clientset.Discovery()))...)
	case metadataDoor:
		client, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return factory.NewMetadata(client, d.db, append(options, factory.WithPlaintextSecrets())...)
	case schemeDoor:
		return &ownInformers{}, nil
	}
	return nil, fmt.Errorf("no door is called %q", s.Door)
}

// openOwn makes an informer of hand-written types.
func (d *doors) openOwn(s subscription, own *ownInformers) (cache.SharedIndexInformer, error) {
	config := rest.CopyConfig(d.config)
	config.UserAgent = s.agent(config.UserAgent)
	lw, err := s.listerWatcher(config, widgetScheme)
	if err != nil {
		return nil, err
	}
	example, err := exampleOf(s.Resource)
	if err != nil {
		return nil, err
	}
	options := d.own
	options.Store = d.db
	options.Indexers = cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	options.Identity = store.Identity{
		Group: s.Resource.Group, Version: s.Resource.Version, Resource: s.Resource.Resource,
		Namespace: s.Namespace, LabelSelector: s.LabelSelector, FieldSelector: s.FieldSelector,
	}
	inf, err := informer.New(lw, example, options)
	if err == nil {
		own.informers = append(own.informers, inf)
	}
	return inf, err
}

// ownInformers are informers that nobody but the program itself starts.
type ownInformers struct {
	informers []cache.SharedIndexInformer
	running   sync.WaitGroup
}

// StartWithContext implements source.
func (o *ownInformers) StartWithContext(ctx context.Context) {
	for _, inf := range o.informers {
		o.running.Go(func() { inf.RunWithContext(ctx) })
	}
}

// Shutdown implements source.
func (o *ownInformers) Shutdown() { o.running.Wait() }

// listerWatcher lists and watches with a client of the types in a scheme.
func (s subscription) listerWatcher(config *rest.Config, types *runtime.Scheme) (cache.ListerWatcher, error) {
	gv := s.Resource.GroupVersion()
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &gv, "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(types).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return cache.NewFilteredListWatchFromClient(client, s.Resource.Resource, s.Namespace, s.tweak), nil
}

// list reads what the server has of what a subscription selects, in the form in
// which its informer holds it.
func (s subscription) list(ctx context.Context, config *rest.Config) (runtime.Object, error) {
	options := metav1.ListOptions{}
	s.tweak(&options)
	switch s.Door {
	case dynamicDoor:
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return client.Resource(s.Resource).Namespace(s.Namespace).List(ctx, options)
	case metadataDoor:
		client, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return client.Resource(s.Resource).Namespace(s.Namespace).List(ctx, options)
	}
	types := clientgoscheme.Scheme
	if s.Door == schemeDoor {
		types = widgetScheme
	}
	lw, err := s.listerWatcher(config, types)
	if err != nil {
		return nil, err
	}
	return cache.ToListerWatcherWithContext(lw).ListWithContext(ctx, options)
}

// fresh returns what the server has of what a subscription selects, from a
// consistent read.
func (s subscription) fresh(t *testing.T) map[string]state {
	t.Helper()
	config := plane.API.Config()
	config.UserAgent = "fresh"
	list, err := s.list(t.Context(), config)
	if err != nil {
		t.Fatalf("%s: %v", s.Name, err)
	}
	states, err := statesOfList(list)
	if err != nil {
		t.Fatalf("%s: %v", s.Name, err)
	}
	return states
}

func statesOfList(list runtime.Object) (map[string]state, error) {
	var objects []any
	err := meta.EachListItem(list, func(obj runtime.Object) error {
		objects = append(objects, obj)
		return nil
	})
	states, stateErr := statesOf(objects)
	return states, errors.Join(err, stateErr)
}
