package subject

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/meter"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
)

// NodeIndex is the index that every subject has, besides that of namespaces.
const NodeIndex = "node"

// residencies of those kinds that have one.
var residencies = map[Kind]informer.Residency{Memory: informer.Memory, Disk: informer.Disk}

// poll is how often a condition is looked at that has no channel.
const poll = 2 * time.Millisecond

// Subject is an informer. Its methods are for one goroutine.
type Subject struct {
	informer cache.SharedIndexInformer
	// synced is the handler's registration, or the informer's if there is none.
	synced  cache.DoneChecker
	traffic *meter.Traffic
	updates atomic.Int64
	kind    Kind

	running sync.WaitGroup
	stop    context.CancelFunc
	close   func() error
}

// New returns an informer that does not run yet. The caller must Close it.
func New(s Spec) (*Subject, error) {
	config := &rest.Config{
		Host: s.Host, QPS: -1, UserAgent: "bench",
		ContentConfig: rest.ContentConfig{
			ContentType:        runtime.ContentTypeProtobuf,
			AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
		},
	}
	x := &Subject{kind: s.Kind, stop: func() {}, close: func() error { return nil }}
	x.traffic = meter.Attach(config, "pods")
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	pods := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", "", fields.Everything())
	if err := x.newInformer(s, cache.ToListWatcherWithWatchListSemantics(pods, client)); err != nil {
		return nil, errors.Join(err, x.close())
	}
	if err := x.addHandler(s); err != nil {
		return nil, errors.Join(err, x.close())
	}
	return x, nil
}

func (x *Subject) newInformer(s Spec, lw cache.ListerWatcher) error {
	indexers := cache.Indexers{NodeIndex: byNode, cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	if s.Kind == ClientGo {
		x.informer = cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, indexers)
		return nil
	}
	db, err := bolt.Open(s.File, bolt.Options{})
	if err != nil {
		return err
	}
	x.close = db.Close
	o := informer.Options{
		Store:         db,
		Identity:      store.Identity{Version: "v1", Resource: "pods"},
		Indexers:      indexers,
		IndexVersions: map[string]string{NodeIndex: "1"},
		// A small collection would be listed, which is quicker and would be
		// another measurement.
		ListBelow:    -1,
		Residency:    residencies[s.Kind],
		MemoryBudget: s.Budget,
	}
	if s.Resumed {
		o.Start = informer.Resumed
	}
	x.informer, err = informer.New(lw, &corev1.Pod{}, o)
	return err
}

func byNode(obj any) ([]string, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("%T is not a Pod", obj)
	}
	return []string{pod.Spec.NodeName}, nil
}

// addHandler adds one that counts.
func (x *Subject) addHandler(s Spec) error {
	x.synced = x.informer.HasSyncedChecker()
	if s.NoHandler {
		return nil
	}
	registration, err := x.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, _ any) { x.updates.Add(1) },
	})
	if err == nil {
		x.synced = registration.HasSyncedChecker()
	}
	return err
}

// Sync starts the informer and returns once the handler has been told of the whole
// initial state.
func (x *Subject) Sync(ctx context.Context) error {
	ctx, x.stop = context.WithCancel(ctx)
	x.running.Go(func() { x.informer.RunWithContext(ctx) })
	if !cache.WaitFor(ctx, "", x.synced) {
		return context.Cause(ctx)
	}
	return nil
}

// Await returns once the handler has been told of this many updates in all.
func (x *Subject) Await(ctx context.Context, updates int64) error {
	return x.until(ctx, func() (bool, error) { return x.updates.Load() >= updates, nil })
}

// Updates is how many the handler has been told of.
func (x *Subject) Updates() int64 { return x.updates.Load() }

// Settle returns once nothing is left to do: the state is proven to be current,
// and durable.
func (x *Subject) Settle(ctx context.Context) error {
	return x.until(ctx, func() (bool, error) {
		status, ours := informer.StatusOf(x.informer)
		if !ours {
			return true, nil
		}
		if !status.Persistent || status.Durability.Err != nil {
			return false, fmt.Errorf("nothing is written to the file: %w", status.Durability.Err)
		}
		if want := residencies[x.kind]; status.Residency != want {
			return false, fmt.Errorf("the residency is %v, not %v", status.Residency, want)
		}
		durable := status.PersistedRV == status.RV && status.Durability.Pending == 0
		return status.Confirmed && durable, nil
	})
}

func (x *Subject) until(ctx context.Context, done func() (bool, error)) error {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// Query asks the index of nodes for each of the nodes, and returns how many objects
// came in all.
func (x *Subject) Query(nodes []string) (objects int, err error) {
	for _, node := range nodes {
		found, err := x.informer.GetIndexer().ByIndex(NodeIndex, node)
		if err != nil {
			return 0, err
		}
		objects += len(found)
	}
	return objects, nil
}

// Objects is the number of objects in the cache.
func (x *Subject) Objects() int {
	if status, ours := informer.StatusOf(x.informer); ours {
		return status.Objects
	}
	return len(x.informer.GetStore().ListKeys())
}

// Traffic is what the informer has received.
func (x *Subject) Traffic() *meter.Traffic { return x.traffic }

// Close ends the informer gracefully and closes its file.
func (x *Subject) Close() error {
	x.stop()
	x.running.Wait()
	return x.close()
}
