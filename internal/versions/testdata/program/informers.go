package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/factory"
	"github.com/warmcache/warmcache/indexer"
	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store"
)

// newInformer returns the informer of the resource.
func (p *program) newInformer(db store.Store) (cache.SharedIndexInformer, error) {
	if p.Resource == widgets.Resource {
		return p.widgets(db)
	}
	return p.configMaps(db)
}

func (p *program) policy() informer.StartPolicy {
	if p.Offline {
		return informer.Stale(stale)
	}
	return informer.Confirmed
}

// configMaps have a type that is the same in all versions, and come from a factory.
func (p *program) configMaps(db store.Store) (cache.SharedIndexInformer, error) {
	client, err := kubernetes.NewForConfig(&rest.Config{Host: p.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf}})
	if err != nil {
		return nil, err
	}
	options := []factory.Option{
		factory.WithNamespace(p.Namespace),
		factory.WithListBelow(-1),
		factory.WithStartPolicy(p.policy()),
		factory.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector, o.FieldSelector = p.Labels, p.Fields }),
	}
	if p.IndexVersion != "" {
		options = append(options, factory.WithIndexVersions(map[string]string{indexName: p.IndexVersion}))
	}
	if p.Transform {
		options = append(options, factory.WithTransform(p.transform, p.TransformVersion))
	}
	if p.Disk {
		options = append(options, factory.WithResidency(informer.Disk, indexer.MinMemoryBudget))
	}
	f, err := factory.New(client, db, options...)
	if err != nil {
		return nil, err
	}
	return f.Core().V1().ConfigMaps().Informer(), nil
}

// widgets have a type of the program, which changes.
func (p *program) widgets(db store.Store) (cache.SharedIndexInformer, error) {
	group := widgets.GroupVersion()
	client, err := rest.RESTClientFor(&rest.Config{
		Host: p.URL, APIPath: "/apis",
		ContentConfig: rest.ContentConfig{
			GroupVersion: &group, NegotiatedSerializer: serializer.NewCodecFactory(newScheme()).WithoutConversion(),
		},
	})
	if err != nil {
		return nil, err
	}
	o := informer.Options{
		Store: db, ListBelow: -1, Start: p.policy(),
		Identity: store.Identity{Group: widgets.Group, Version: widgets.Version, Resource: widgets.Resource},
	}
	if p.Disk {
		o.Residency = informer.Disk
	}
	return informer.New(cache.NewListWatchFromClient(client, widgets.Resource, metav1.NamespaceAll, fields.Everything()), &Widget{}, o)
}
