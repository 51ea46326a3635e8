package informer

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/warmcache/warmcache/fifo"
	"github.com/warmcache/warmcache/indexer"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

// damageable lets a test say that what is stored is damaged.
type damageable struct {
	store.Store
	collection store.Collection
}

func (s *damageable) Collection(id store.Identity, owner string) (store.Collection, error) {
	var err error
	s.collection, err = s.Store.Collection(id, owner)
	return s.collection, err
}

// opened returns an informer in disk residency with one object, whose batches a test
// applies itself.
func opened(t *testing.T, s store.Store) *sharedIndexInformer {
	t.Helper()
	ctx, logger := context.Background(), klog.Logger{}
	made, err := New(&cache.ListWatch{}, &corev1.ConfigMap{}, Options{
		Store: s, Residency: Disk, Logger: &logger,
		Identity: store.Identity{Version: "v1", Resource: "configmaps"},
	})
	if err != nil {
		t.Fatal(err)
	}
	i := made.(*sharedIndexInformer)
	i.indexer.SetLogger(logger)
	i.prepare(ctx, i.open(ctx))
	if !i.load(ctx) {
		t.Fatal("not loaded")
	}
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", UID: "1", ResourceVersion: "7"}}
	list := fifo.Batch{List: fifo.ListEnd, RV: "7", Deltas: []fifo.Delta{{Type: cache.Replaced, Key: "ns/a", Object: obj}}}
	if err := i.apply(ctx, list); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.indexer.Detach(); err != nil {
			t.Error(err)
		}
	})
	return i
}

// TestReset_OfWhatIsLost checks that the server is not asked for what another one had
// at a version, when its objects are damaged and to be forgotten at the same time.
func TestReset_OfWhatIsLost(t *testing.T) {
	for name, read := range map[string]bool{"unnoticed": false, "noticed": true} {
		t.Run(name, func(t *testing.T) {
			s := &damageable{Store: storetest.NewMemory().Open()}
			i := opened(t, s)
			i.delivery.departed.late = append(i.delivery.departed.late, indexer.Departed{Key: "ns/x"})
			s.collection.Quarantine(errors.New("test"))
			if read {
				if _, _, err := i.indexer.GetByKey("ns/b"); err == nil {
					t.Fatal("read")
				}
			}
			for n, b := range []fifo.Batch{{Reset: true}, {}} {
				var lost *fifo.LostError
				if err := i.apply(context.Background(), b); errors.As(err, &lost) {
					t.Errorf("batch %d: %v", n, err)
				}
			}
			if len(i.delivery.departed.late) > 0 {
				t.Error("deletes of the other cluster wait for handlers")
			}
			if got := i.indexer.LastStoreSyncResourceVersion(); got != "" {
				t.Errorf("at version %s", got)
			}
		})
	}
}

// TestReset_HandlersHearOfWhatTheyWereShown checks that handlers are not told of the end
// of objects of another cluster that their replay has not come to.
func TestReset_HandlersHearOfWhatTheyWereShown(t *testing.T) {
	i := opened(t, storetest.NewMemory().Open())
	listen := func() *listener {
		registration, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{})
		if err != nil {
			t.Fatal(err)
		}
		return registration.(*listener)
	}
	shown, unshown := listen(), listen()
	ctx := context.Background()
	if err := i.apply(ctx, fifo.Batch{CaughtUp: &fifo.CaughtUp{}}); err != nil {
		t.Fatal(err)
	}
	if _, p := shown.take(); p == nil || p.chunk.Len() != 1 {
		t.Fatalf("took %+v, want the object", p)
	}
	if err := i.apply(ctx, fifo.Batch{Reset: true}); err != nil {
		t.Fatal(err)
	}
	for l, want := range map[*listener]int{shown: 1, unshown: 0} {
		if ns := l.mu.waiting; len(ns) != want {
			t.Errorf("%d notifications wait, want %d", len(ns), want)
		}
	}
}
