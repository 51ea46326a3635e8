package informer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

// TestNew_InvalidOptions checks that what cannot be meant is an error that names
// the field.
func TestNew_InvalidOptions(t *testing.T) {
	db := storetest.NewMemory().Open()
	var noListerWatcher *cache.ListWatch
	var noObject *corev1.ConfigMap
	for name, test := range map[string]struct {
		change func(lw *cache.ListerWatcher, example *runtime.Object, o *informer.Options)
		want   string
	}{
		"lister":          {func(lw *cache.ListerWatcher, _ *runtime.Object, _ *informer.Options) { *lw = nil }, "ListerWatcher"},
		"lister pointer":  {func(lw *cache.ListerWatcher, _ *runtime.Object, _ *informer.Options) { *lw = noListerWatcher }, "ListerWatcher"},
		"example":         {func(_ *cache.ListerWatcher, e *runtime.Object, _ *informer.Options) { *e = nil }, "Store needs an example"},
		"example pointer": {func(_ *cache.ListerWatcher, e *runtime.Object, _ *informer.Options) { *e = noObject }, "Store needs an example"},
		"store pointer":   {func(_ *cache.ListerWatcher, _ *runtime.Object, o *informer.Options) { o.Store = (*nilStore)(nil) }, "Store is a nil"},
		"no identity":     {func(_ *cache.ListerWatcher, _ *runtime.Object, o *informer.Options) { o.Identity = store.Identity{} }, "Identity: "},
		"bad identity":    {func(_ *cache.ListerWatcher, _ *runtime.Object, o *informer.Options) { o.Identity.Group = "a/b" }, "Identity: "},
		"form": {func(_ *cache.ListerWatcher, _ *runtime.Object, o *informer.Options) {
			o.Identity.Form = store.FormMetadata
		}, "Identity.Form"},
		"two identities": {func(_ *cache.ListerWatcher, _ *runtime.Object, o *informer.Options) { o.Identify = nobody }, "Identity and Identify"},
		"resync":         {func(_ *cache.ListerWatcher, _ *runtime.Object, o *informer.Options) { o.ResyncPeriod = -1 }, "ResyncPeriod"},
		"retention":      {func(_ *cache.ListerWatcher, _ *runtime.Object, o *informer.Options) { o.DepartedRetention = -1 }, "DepartedRetention"},
		"policy":         {func(_ *cache.ListerWatcher, _ *runtime.Object, o *informer.Options) { o.Start = informer.Stale(0) }, "Start: Stale needs"},
		"audit":          {func(_ *cache.ListerWatcher, _ *runtime.Object, o *informer.Options) { o.Audit.Period = 1 }, "Audit needs Metadata"},
		"audit period":   {func(_ *cache.ListerWatcher, _ *runtime.Object, o *informer.Options) { o.Audit.Period = -1 }, "Audit: Period -1ns"},
		"audit rate":     {func(_ *cache.ListerWatcher, _ *runtime.Object, o *informer.Options) { o.Audit.Rate = 5 }, "Audit: a Rate without a Period"},
		"metadata":       {func(_ *cache.ListerWatcher, _ *runtime.Object, o *informer.Options) { o.Metadata = (*metadataOf)(nil) }, "Metadata is a nil"},
		"labels": {func(_ *cache.ListerWatcher, _ *runtime.Object, o *informer.Options) {
			o.Identity.LabelSelector = "b = c ,a"
		}, `Identity.LabelSelector "b = c ,a" is spelled "a,b=c"`},
		"no labels": {func(_ *cache.ListerWatcher, _ *runtime.Object, o *informer.Options) { o.Identity.LabelSelector = "!!" }, "Identity.LabelSelector: "},
		"fields": {func(_ *cache.ListerWatcher, _ *runtime.Object, o *informer.Options) {
			o.Identity.FieldSelector = "a==b"
		}, `Identity.FieldSelector "a==b" is spelled "a=b"`},
		"index name": {func(_ *cache.ListerWatcher, _ *runtime.Object, o *informer.Options) {
			o.Indexers = cache.Indexers{"": cache.MetaNamespaceIndexFunc}
		}, "Indexers: a name has 0 bytes"},
		"index": {func(_ *cache.ListerWatcher, _ *runtime.Object, o *informer.Options) {
			o.Indexers = cache.Indexers{"a": nil}
		}, `Indexers: the function of index "a"`},
	} {
		t.Run(name, func(t *testing.T) {
			lw, example := cache.ListerWatcher(&cache.ListWatch{}), runtime.Object(&corev1.ConfigMap{})
			o := informer.Options{Store: db, Identity: identity}
			test.change(&lw, &example, &o)
			inf, err := informer.New(lw, example, o)
			if inf != nil || !errors.Is(err, informer.ErrInvalidOptions) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, %v; want ErrInvalidOptions with %q", inf, err, test.want)
			}
		})
	}
}

// nilStore is a store that is only good for a nil pointer.
type nilStore struct{ store.Store }

func nobody(context.Context) (store.Identity, error) { return store.Identity{}, nil }

// TestInformer_Identify checks an informer that learns its place only when it runs.
func TestInformer_Identify(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		late := func(o *informer.Options) {
			o.Identity = store.Identity{}
			o.Identify = func(context.Context) (store.Identity, error) { return identity, nil }
		}
		w.create("a")
		w.start(late).synced().kill()
		p := w.start(late).synced()
		if p.lists() != 0 || p.info().Identity != withForm(identity) {
			t.Errorf("%d lists, identity %v", p.lists(), p.info().Identity)
		}
		p.stop()
	})
}

func TestInformer_Identify_Fails(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a")
		reason := errors.New("nobody knows")
		p := w.start(func(o *informer.Options) {
			o.Identity = store.Identity{}
			o.Identify = func(context.Context) (store.Identity, error) { return store.Identity{}, reason }
		}).synced()
		p.converged()
		if s := p.status(); s.Persistent || !errors.Is(s.Durability.Err, reason) {
			t.Errorf("status %+v", s)
		}
		p.stop()
	})
}

// TestInformer_Identify_MemoryOnly is about objects that somebody does not want to
// be persisted: there is nothing wrong with the informer.
func TestInformer_Identify_MemoryOnly(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.start(func(o *informer.Options) {
			o.Identity = store.Identity{}
			o.Identify = func(context.Context) (store.Identity, error) {
				return store.Identity{}, fmt.Errorf("not these: %w", informer.ErrMemoryOnly)
			}
		}).synced()
		p.converged()
		if s := p.status(); s.Persistent || s.Durability.Err != nil {
			t.Errorf("status %+v, want that of an informer without a store", s)
		}
		p.stop()
	})
}

func TestInformer_IdentityInUse_NamesBothOwners(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		first := w.start(func(o *informer.Options) { o.Owner = "the first" }).synced()
		second := w.prepareIn(first.store, func(o *informer.Options) { o.Owner = "the second" })
		second.recorder = second.handle()
		second.run()
		second.synced()
		err := second.status().Durability.Err
		if !errors.Is(err, store.ErrInUse) || !strings.Contains(err.Error(), "the first") || !strings.Contains(err.Error(), "the second") {
			t.Errorf("status says %v, want the names of both", err)
		}
		second.stop()
		first.stop()
	})
}
