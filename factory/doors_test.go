package factory

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store"
)

// eachDoor makes an informer of a resource through each constructor that knows what
// it lists. Those of NewInformerFunc find out when they run; see there.
var eachDoor = map[string]func(db store.Store, gvr schema.GroupVersionResource, opts ...Option) cache.SharedIndexInformer{
	"New": func(db store.Store, gvr schema.GroupVersionResource, opts ...Option) cache.SharedIndexInformer {
		return must(must(New(fake.NewClientset(), db, opts...)).ForResource(gvr)).Informer()
	},
	"NewDynamic": func(db store.Store, gvr schema.GroupVersionResource, opts ...Option) cache.SharedIndexInformer {
		return must(NewDynamic(dynamicfake.NewSimpleDynamicClient(scheme.Scheme), db, opts...)).ForResource(gvr).Informer()
	},
	"NewMetadata": func(db store.Store, gvr schema.GroupVersionResource, opts ...Option) cache.SharedIndexInformer {
		return must(NewMetadata(metadatafake.NewSimpleMetadataClient(scheme.Scheme), db, opts...)).ForResource(gvr).Informer()
	},
	"Adopt": func(db store.Store, gvr schema.GroupVersionResource, opts ...Option) cache.SharedIndexInformer {
		f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
		if err := Adopt(f, db, []runtime.Object{&corev1.Secret{}, &corev1.ConfigMap{}}, opts...); err != nil {
			panic(err)
		}
		return must(f.ForResource(gvr)).Informer()
	},
}

// statuses runs informers until they have synced, and returns their statuses then.
func statuses(t *testing.T, all ...cache.SharedIndexInformer) (s []informer.Status) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, inf := range all {
		running.Go(func() { inf.RunWithContext(ctx) })
		<-inf.HasSyncedChecker().Done()
		s = append(s, statusOf(inf))
	}
	cancel()
	running.Wait()
	return s
}

func TestEachDoor_IdentityInUse(t *testing.T) {
	for name, door := range eachDoor {
		synctest.Test(t, func(t *testing.T) {
			db := newStore()
			s := statuses(t, door(db, configMaps), door(db, configMaps))
			err := s[1].Durability.Err
			if !s[0].Persistent || s[1].Persistent || !errors.Is(err, store.ErrInUse) {
				t.Fatalf("%s: persistent %v and %v, %v", name, s[0].Persistent, s[1].Persistent, err)
			}
			// In this package's own tests the test runner is what stands behind them.
			if n := strings.Count(err.Error(), "_test.go:") + strings.Count(err.Error(), "testing.go:"); n != 2 {
				t.Errorf("%s: the error does not name both: %v", name, err)
			}
		})
	}
}

func TestEachDoor_Secrets(t *testing.T) {
	for name, door := range eachDoor {
		synctest.Test(t, func(t *testing.T) {
			refused := statuses(t, door(newStore(), secrets))[0]
			allowed := statuses(t, door(newStore(), secrets, WithPlaintextSecrets()))[0]
			if refused.Persistent || !errors.Is(refused.Durability.Err, informer.ErrPlaintextSecrets) || !allowed.Persistent {
				t.Errorf("%s: refused %+v, allowed %+v", name, refused, allowed)
			}
		})
	}
}

func TestEachDoor_WithoutPersistenceOf(t *testing.T) {
	for name, door := range eachDoor {
		synctest.Test(t, func(t *testing.T) {
			db := newStore()
			if s := statuses(t, door(db, configMaps, WithoutPersistenceOf(configMaps)))[0]; s.Persistent || s.Durability.Err != nil {
				t.Errorf("%s: %+v", name, s)
			}
			wantNothingStored(t, db)
		})
	}
}
