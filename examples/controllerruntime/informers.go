package main

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/factory"
	"github.com/warmcache/warmcache/store/bolt"
)

type newInformerFunc = func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer

// informers chooses the constructor. All that is ours is here.
func (o options) informers(cfg *rest.Config) (informers, error) {
	if o.cacheFile == "" {
		return informers{config: cfg, close: func() error { return nil }}, nil
	}
	db, err := bolt.Open(o.cacheFile, bolt.Options{})
	if err != nil {
		return informers{}, err
	}
	newInformer, err := factory.NewInformerFunc(db)
	if err != nil {
		return informers{}, errors.Join(err, db.Close())
	}
	return informers{config: factory.Identify(cfg), newInformer: newInformer, close: db.Close}, nil
}
