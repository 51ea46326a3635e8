package factory

import (
	"bytes"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/apitest"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

// must returns x, for errors that a test does not expect.
func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// newStore returns an empty store.
func newStore() store.Store { return storetest.NewMemory().Open() }

// built is one call of newInformer.
type built struct {
	lw      cache.ListerWatcher
	example runtime.Object
	options informer.Options
}

// record makes f remember how it builds informers.
func record(f *Factory) *[]built { return recordBuilder(f.builder) }

// recordBuilder makes b remember how it builds informers.
func recordBuilder(b *builder) *[]built {
	var calls []built
	build := b.newInformer
	b.newInformer = func(lw cache.ListerWatcher, example runtime.Object, o informer.Options) (cache.SharedIndexInformer, error) {
		calls = append(calls, built{lw, example, o})
		return build(lw, example, o)
	}
	return &calls
}

// only returns the single call, or fails the test.
func only(t *testing.T, calls *[]built) built {
	t.Helper()
	if len(*calls) != 1 {
		t.Fatalf("%d informers were built, want 1", len(*calls))
	}
	return (*calls)[0]
}

// statusOf returns the status of one of our informers.
func statusOf(inf cache.SharedIndexInformer) informer.Status {
	status, ok := informer.StatusOf(inf)
	if !ok {
		panic("not an informer of ours")
	}
	return status
}

// discoveryClient returns a client for what a server says about itself.
func discoveryClient(t *testing.T, server *apitest.Server) *discovery.DiscoveryClient {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(server.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// logBuffer is a logger's output.
type logBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

func newLog() (klog.Logger, *logBuffer) {
	b := &logBuffer{}
	return textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(b))), b
}
