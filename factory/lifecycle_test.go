package factory

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
)

// runSynced starts f, waits until it has synced, and stops it with the test.
func runSynced(t *testing.T, f *Factory) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(f.Shutdown)
	t.Cleanup(cancel)
	f.StartWithContext(ctx)
	if err := f.WaitForCacheSyncWithContext(t.Context()).AsError(); err != nil {
		t.Fatal(err)
	}
}

// unreachable is a clientset whose lists fail.
func unreachable() *fake.Clientset {
	client := fake.NewClientset()
	client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	return client
}

var (
	podType  = reflect.TypeFor[*corev1.Pod]()
	nodeType = reflect.TypeFor[*corev1.Node]()
)

// counting counts how often an informer is run.
type counting struct {
	cache.SharedIndexInformer
	mu   sync.Mutex
	runs int
}

func (c *counting) RunWithContext(ctx context.Context) {
	c.mu.Lock()
	c.runs++
	c.mu.Unlock()
	c.SharedIndexInformer.RunWithContext(ctx)
}

// countRuns makes f build counting informers.
func countRuns(f *Factory) map[reflect.Type]*counting {
	counts := map[reflect.Type]*counting{}
	build := f.newInformer
	f.newInformer = func(lw cache.ListerWatcher, example runtime.Object, o informer.Options) (cache.SharedIndexInformer, error) {
		inf, err := build(lw, example, o)
		c := &counting{SharedIndexInformer: inf}
		counts[reflect.TypeOf(example)] = c
		return c, err
	}
	return counts
}

func TestFactory_Start_OnlyNewInformers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := must(New(fake.NewClientset(), nil))
		counts := countRuns(f)
		f.Core().V1().Pods().Informer()
		f.StartWithContext(ctx)
		f.StartWithContext(ctx)
		f.Core().V1().Nodes().Informer()
		synctest.Wait()
		if counts[podType].runs != 1 || counts[nodeType].runs != 0 {
			t.Errorf("before the second start pods ran %d times and nodes %d, want 1 and 0", counts[podType].runs, counts[nodeType].runs)
		}
		if got := f.WaitForCacheSync(ctx.Done()); !reflect.DeepEqual(got, map[reflect.Type]bool{podType: true}) {
			t.Errorf("WaitForCacheSync = %v, want only what was started", got)
		}
		f.Start(ctx.Done())
		synctest.Wait()
		if counts[podType].runs != 1 || counts[nodeType].runs != 1 {
			t.Errorf("after it pods ran %d times and nodes %d, want 1 and 1", counts[podType].runs, counts[nodeType].runs)
		}
		cancel()
		f.Shutdown()
	})
}

func TestFactory_Start_AfterShutdown(t *testing.T) {
	f := must(New(fake.NewClientset(), nil))
	counts := countRuns(f)
	f.Core().V1().Pods().Informer()
	f.Shutdown()
	f.StartWithContext(t.Context())
	f.Shutdown()
	if counts[podType].runs != 0 {
		t.Error("an informer was started after Shutdown")
	}
	if got := f.WaitForCacheSync(nil); len(got) != 0 || got == nil {
		t.Errorf("WaitForCacheSync = %v, want an empty map", got)
	}
}

func TestFactory_Shutdown_Waits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := must(New(fake.NewClientset(), nil))
		inf := f.Core().V1().Pods().Informer()
		f.StartWithContext(ctx)
		var ended [2]bool
		for i := range ended {
			go func() {
				f.Shutdown()
				ended[i] = true
			}()
		}
		synctest.Wait()
		if ended != [2]bool{} {
			t.Error("Shutdown returned while an informer runs")
		}
		cancel()
		synctest.Wait()
		if ended != [2]bool{true, true} || !inf.IsStopped() {
			t.Error("Shutdown did not return after the informer ended")
		}
	})
}

func TestFactory_Shutdown_ReleasesInformerName(t *testing.T) {
	cache.ResetInformerNamesForTesting()
	name, err := cache.NewInformerName("released")
	if err != nil {
		t.Fatal(err)
	}
	must(New(fake.NewClientset(), nil, WithInformerName(name))).Shutdown()
	if _, err := cache.NewInformerName("released"); err != nil {
		t.Errorf("name is still taken: %v", err)
	}
	cache.ResetInformerNamesForTesting()
}

func TestFactory_WaitForCacheSync_ReportsWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := must(New(unreachable(), nil))
		f.Core().V1().Pods().Informer()
		f.StartWithContext(ctx)
		given, stop := context.WithCancelCause(t.Context())
		cause := errors.New("leader lost")
		stop(cause)
		got := f.WaitForCacheSyncWithContext(given)
		if synced, ok := got.Synced[podType]; synced || !ok || !errors.Is(got.Err, cause) {
			t.Errorf("WaitForCacheSyncWithContext = %+v, want pods unsynced because of the cause", got)
		}
		cancel()
		f.Shutdown()
	})
}

func TestFactory_ConcurrentUse(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := must(New(fake.NewClientset(pod("a")), nil))
	counts := countRuns(f)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			f.Core().V1().Pods().Informer()
			f.Core().V1().Nodes().Lister()
			f.StartWithContext(ctx)
			f.WaitForCacheSyncWithContext(ctx)
		})
	}
	wg.Wait()
	if counts[podType].runs != 1 || counts[nodeType].runs != 1 || len(counts) != 2 {
		t.Errorf("pods ran %d times and nodes %d, want 1 and 1", counts[podType].runs, counts[nodeType].runs)
	}
	cancel()
	f.Shutdown()
}
