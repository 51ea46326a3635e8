package main

import (
	"errors"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/warmcache/warmcache/factory"
	"github.com/warmcache/warmcache/store/bolt"
)

// newFactory returns client-go's factory or ours, and what closes the file.
func (o options) newFactory(client kubernetes.Interface) (f informers.SharedInformerFactory, closeFile func() error, err error) {
	if o.cacheFile == "" {
		f := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(o.namespace))
		return f, func() error { return nil }, nil
	}
	db, err := bolt.Open(o.cacheFile, bolt.Options{})
	if err != nil {
		return nil, nil, err
	}
	ours, err := factory.New(client, db, factory.WithNamespace(o.namespace))
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return ours, db.Close, nil
}
