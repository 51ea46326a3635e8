package indexer

import (
	"context"
	"errors"
	"sync"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

// gate lets a test do something while Load is between two chunks.
type gate struct {
	// reached is closed when Load has arrived, open lets it go on.
	reached, open chan struct{}
	views         int
	stop          int
}

func newGate(stop int) *gate {
	return &gate{reached: make(chan struct{}), open: make(chan struct{}), stop: stop}
}

// pass is called before each View: 1 is Attach, 2 the totals, 3 the first chunk.
func (g *gate) pass() error {
	if g.views++; g.views == g.stop {
		close(g.reached)
		<-g.open
	}
	return nil
}

// loading starts a process over a file with one pod, "a", whose Load runs in the
// background and waits before the given View.
func loading(ctx context.Context, t *testing.T, file *storetest.Memory, o startOptions, stop int) (*process, *gate, <-chan error) {
	t.Helper()
	start(t, file, startOptions{}).list("1", pod("a", "1", "x"))
	g := newGate(stop)
	s := &spy{onView: g.pass}
	o.wrap = s.around
	p := attach(t, file, o)
	done := make(chan error, 1)
	go func() { done <- p.Load(ctx) }()
	<-g.reached
	return p, g, done
}

func TestIndexer_Load_DoesNotBlockReads(t *testing.T) {
	for _, fingerprint := range []string{"f1", "f2"} {
		p, g, done := loading(context.Background(), t, storetest.NewMemory(), startOptions{fingerprint: fingerprint}, 4)
		p.wantObjects()
		if _, exists, err := p.GetByKey("ns/a"); exists || err != nil {
			t.Errorf("GetByKey: %t, %v", exists, err)
		}
		wantKeys(t, p, "app", "x")
		p.LastStoreSyncResourceVersion()
		p.GetIndexers()
		p.Durability()
		p.Known().ListKeys()
		if _, err := p.Apply(Update{RV: "2"}); !errors.Is(err, ErrNotLoaded) {
			t.Errorf("Apply returned %v", err)
		}
		close(g.open)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// Whenever an index is added, objects that are loaded later are in it, in memory
// and in the file.
func TestIndexer_AddIndexers_DuringLoad(t *testing.T) {
	for stop := 2; stop <= 4; stop++ {
		file := storetest.NewMemory()
		p, g, done := loading(context.Background(), t, file, startOptions{}, stop)
		before := p.dump()
		if err := p.AddIndexers(cache.Indexers{"node": byNode}); err != nil {
			t.Fatal(err)
		}
		if diff := storetest.Diff(before, p.dump()); diff != "" {
			t.Errorf("the file was changed before it was read:\n%s", diff)
		}
		close(g.open)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		p.wantObjects(pod("a", "1", "x"))
		wantKeys(t, p, "node", "node-1", "ns/a")
		wantKeys(t, p, "app", "x", "ns/a")
		p.verify()
	}
}

func TestIndexer_AddIndexers_BetweenAttachAndLoad(t *testing.T) {
	for _, stored := range []bool{false, true} {
		file := storetest.NewMemory()
		if stored {
			start(t, file, startOptions{}).list("1", pod("a", "1", "x"))
		}
		p := attach(t, file, startOptions{})
		if err := p.AddIndexers(cache.Indexers{"node": byNode}); err != nil {
			t.Fatal(err)
		}
		if err := p.Load(context.Background()); err != nil {
			t.Fatal(err)
		}
		p.list("2", pod("a", "1", "x"), pod("b", "2", "x"))
		p.verify()
	}
}

func TestIndexer_AddIndexers_ConcurrentWithLoad(t *testing.T) {
	for range 20 {
		file := storetest.NewMemory()
		start(t, file, startOptions{}).list("1", pod("a", "1", "x"), pod("b", "1", "y"))
		p := attach(t, file, startOptions{})
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := p.AddIndexers(cache.Indexers{"node": byNode}); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			for range 100 {
				_ = p.List()
				_, _ = p.ByIndex("app", "x")
			}
		})
		if err := p.Load(context.Background()); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		wantKeys(t, p, "node", "node-1", "ns/a", "ns/b")
		p.verify()
	}
}

func TestIndexer_Reset_DuringLoad(t *testing.T) {
	for _, fingerprint := range []string{"f1", "f2"} {
		p, g, done := loading(context.Background(), t, storetest.NewMemory(), startOptions{fingerprint: fingerprint}, 4)
		p.Reset()
		close(g.open)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		p.wantObjects()
		if got := p.Known().ListKeys(); len(got) != 0 {
			t.Errorf("known keys %v", got)
		}
		p.list("1", pod("b", "1", "x"))
		p.verify()
	}
}

func TestIndexer_Load_Interrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	file := storetest.NewMemory()
	p, g, done := loading(ctx, t, file, startOptions{}, 3)
	before := p.dump()
	cancel()
	close(g.open)
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Load returned %v", err)
	}
	p.wantObjects()
	// What is applied now would make the file complete without what it holds.
	if _, err := p.Apply(Update{RV: "2", Complete: true}); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("Apply returned %v, want ErrNotLoaded", err)
	}
	if diff := storetest.Diff(before, p.dump()); diff != "" {
		t.Errorf("the file was changed:\n%s", diff)
	}
	start(t, file, startOptions{}).wantObjects(pod("a", "1", "x"))
}

func TestIndexer_Load_InChunks(t *testing.T) {
	const n = 2*chunkRecords + 1
	file := storetest.NewMemory()
	p := start(t, file, startOptions{})
	u := Update{RV: "1", Complete: true}
	for i := range n {
		u.Changes = append(u.Changes, put(pod(podName(i), "1", "x")))
	}
	p.apply(u)
	for _, fingerprint := range []string{"f1", "f2"} {
		views := 0
		s := &spy{onView: func() error { views++; return nil }}
		p = start(t, file, startOptions{fingerprint: fingerprint, wrap: s.around})
		if got := len(p.Known().ListKeys()); got != n {
			t.Errorf("%d objects are known, want %d", got, n)
		}
		// Attach, totals, three chunks and the end.
		if views != 6 {
			t.Errorf("%d views", views)
		}
	}
}

func TestIndexer_Load_InMemory(t *testing.T) {
	x := New(Options{})
	if err := x.Load(context.Background()); err != nil {
		t.Error(err)
	}
	if err := x.Add(pod("a", "1", "x")); err != nil {
		t.Error(err)
	}
	if d, persistent := x.Durability(); persistent || d != (store.Durability{}) {
		t.Errorf("durability %+v, %t", d, persistent)
	}
}

func TestIndexer_Load_OnlyOnce(t *testing.T) {
	file := storetest.NewMemory()
	start(t, file, startOptions{}).list("1", pod("a", "1", "x"))
	p := start(t, file, startOptions{})
	p.apply(Update{RV: "2", Changes: []Change{put(pod("b", "2", "x"))}})
	if err := p.Load(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := p.LastStoreSyncResourceVersion(); got != "2" || p.Len() != 2 {
		t.Errorf("version %q with %d objects", got, p.Len())
	}
}

func TestIndexer_Flush_ReachesTheCollection(t *testing.T) {
	p := start(t, storetest.NewMemory(), startOptions{})
	p.list("7", pod("a", "1", "x"))
	if err := p.Flush(context.Background()); err != nil {
		t.Error(err)
	}
	if d, persistent := p.Durability(); !persistent || d.RV != "7" || d.Err != nil {
		t.Errorf("durability %+v, %t", d, persistent)
	}
}

// Writers, readers and AddIndexers may meet.
func TestIndexer_Concurrency(t *testing.T) {
	p := start(t, storetest.NewMemory(), startOptions{})
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for i := range 50 {
				obj := pod(podName(i%10+w), "1", "x")
				switch i % 5 {
				case 0:
					_ = p.Delete(obj)
				case 1:
					_ = p.Replace([]any{obj}, "2")
				default:
					_ = p.Update(obj)
				}
				p.List()
				_, _ = p.ByIndex("app", "x")
				_, _ = p.Known().Unchanged([]string{"ns/" + obj.Name}, []any{obj})
				p.LastStoreSyncResourceVersion()
			}
		})
	}
	wg.Go(func() { _ = p.AddIndexers(cache.Indexers{"node": byNode}) })
	wg.Wait()
	p.verify()
}
