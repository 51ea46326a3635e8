package crashtest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/factory"
	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
)

// controller is a program in the test's own process: the informer of ConfigMaps
// of a typed factory, with one handler.
type controller struct {
	t        testing.TB
	world    *world
	client   *http.Client
	factory  *factory.Factory
	informer cache.SharedIndexInformer
	handler  *recorder
	cancel   context.CancelFunc
}

// startController starts an informer, after showing it to before, and waits until
// its handler has been given the initial state.
func startController(t testing.TB, w *world, db store.Store, handler *recorder, before ...func(cache.SharedIndexInformer)) *controller {
	t.Helper()
	c := &controller{t: t, world: w, handler: handler, client: &http.Client{Transport: &http.Transport{}}}
	clientset, err := kubernetes.NewForConfigAndClient(&rest.Config{
		Host: w.server.URL(), QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf},
	}, c.client)
	if err != nil {
		t.Fatal(err)
	}
	w.server.ResetRequests()
	// However little there is, a warm start resumes.
	c.factory, err = factory.New(clientset, db, factory.WithListBelow(-1))
	if err != nil {
		t.Fatal(err)
	}
	c.informer = c.factory.Core().V1().ConfigMaps().Informer()
	for _, show := range before {
		show(c.informer)
	}
	registration, err := c.informer.AddEventHandler(handler)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	t.Cleanup(c.stop)
	c.factory.StartWithContext(ctx)
	select {
	case <-registration.HasSyncedChecker().Done():
	case <-time.After(patience):
		t.Fatal("the informer does not sync")
	}
	return c
}

// stop ends the informer. It may be called again.
func (c *controller) stop() {
	c.cancel()
	c.factory.Shutdown()
	c.client.CloseIdleConnections()
}

// converge waits until the handler knows what the server has, and checks that
// the indexer does.
func (c *controller) converge() {
	c.t.Helper()
	s := specs[0]
	want := c.world.now(s)
	c.handler.await(c.t, "the server's state", func() bool { return maps.Equal(want, c.handler.mu.state) })
	got := map[string]version{}
	for _, item := range c.informer.GetIndexer().List() {
		v := versionOfAny(item)
		got[v.key] = v
	}
	for _, problem := range difference(want, got) {
		c.t.Errorf("indexer %s", problem)
	}
}

// resumed checks that no more than one object was listed at a time.
func (c *controller) resumed() {
	c.t.Helper()
	if n := c.world.server.Counts().FullLists; n != 0 {
		status, _ := informer.StatusOf(c.informer)
		c.t.Errorf("%d lists, the last because %q; want a resumed watch", n, status.ListReason)
	}
}

// awaitStatus waits for what is not announced.
func awaitStatus(t *testing.T, c *controller, what string, condition func(informer.Status) bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		status, _ := informer.StatusOf(c.informer)
		if condition(status) {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("waited too long for %s: %+v", what, status)
		}
	}
}

// persisted waits until the file has reached a version.
func persisted(t *testing.T, c *controller, rv uint64) {
	t.Helper()
	awaitStatus(t, c, fmt.Sprintf("version %d in the file", rv), func(s informer.Status) bool {
		return s.PersistedRV == fmt.Sprint(rv)
	})
}

// recorder is a handler that keeps what it is told. Its work, if set, is done at
// each call.
type recorder struct {
	work func(obj any)
	news chan struct{}

	mu struct {
		sync.Mutex
		state map[string]version
		// deletes counts calls of OnDelete.
		deletes int
	}
}

func newRecorder() *recorder {
	r := &recorder{news: make(chan struct{}, 1)}
	r.mu.state = map[string]version{}
	return r
}

func (r *recorder) OnAdd(obj any, _ bool) { r.record(obj, false) }
func (r *recorder) OnUpdate(_, obj any)   { r.record(obj, false) }
func (r *recorder) OnDelete(obj any)      { r.record(obj, true) }

func (r *recorder) record(obj any, deleted bool) {
	if r.work != nil {
		r.work(obj)
	}
	v := versionOfAny(obj)
	r.mu.Lock()
	defer r.mu.Unlock()
	if deleted {
		delete(r.mu.state, v.key)
		r.mu.deletes++
	} else {
		r.mu.state[v.key] = v
	}
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// await waits until the condition holds, with mu held.
func (r *recorder) await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		r.mu.Lock()
		holds := condition()
		r.mu.Unlock()
		if holds {
			return
		}
		select {
		case <-r.news:
		case <-deadline.C:
			t.Fatalf("waited too long for %s", what)
		}
	}
}

func (r *recorder) deletes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.deletes
}

func closeDB(t testing.TB, db *bolt.DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
