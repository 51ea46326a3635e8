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

func TestIndexer_Reset_ForgetsEverything(t *testing.T) {
	file := storetest.NewMemory()
	p := start(t, file, startOptions{})
	p.list("1", pod("a", "1", "x"), pod("b", "1", "x"))
	p.apply(Update{RV: "2", Changes: departing(remove("a")), Cluster: "c1"})
	p.Reset()
	p.wantObjects()
	if p.LastStoreSyncResourceVersion() != "" || len(p.Known().ListKeys()) != 0 || len(p.keysIn("app", "x")) != 0 {
		t.Error("something is left in memory")
	}
	got := p.dump()
	if len(got.Objects)+len(got.Departed)+len(got.Indices) != 0 || got.Header.Complete || got.Header.RV != "" || got.Header.Cluster != "" {
		t.Errorf("the file holds %+v", got)
	}
	p.list("1", pod("c", "1", "y"))
	p.verify()
	p = start(t, file, startOptions{})
	p.wantObjects(pod("c", "1", "y"))
}

func TestIndexer_Reset_WithForeignRecords(t *testing.T) {
	file := storetest.NewMemory()
	start(t, file, startOptions{}).list("1", pod("a", "1", "x"))
	p := start(t, file, startOptions{fingerprint: "f2"})
	p.Reset()
	if got := p.Known().ListKeys(); len(got) != 0 {
		t.Errorf("known keys %v", got)
	}
	p.wantHeader("", false, "f2")
}

func TestIndexer_Reset_InMemory(t *testing.T) {
	x := New(Options{})
	if err := x.Add(pod("a", "1", "")); err != nil {
		t.Fatal(err)
	}
	x.Reset()
	if x.Len() != 0 || len(x.ListKeys()) != 0 {
		t.Error("objects are left")
	}
}

func TestIndexer_Detach_KeepsServing(t *testing.T) {
	file := storetest.NewMemory()
	p := start(t, file, startOptions{})
	p.list("1", pod("a", "1", "x"))
	if _, persistent := p.Durability(); !persistent {
		t.Error("not persistent before Detach")
	}
	if err := p.Detach(); err != nil {
		t.Fatal(err)
	}
	p.apply(Update{RV: "2", Changes: []Change{put(pod("b", "2", "x"))}})
	if err := p.AddIndexers(cache.Indexers{"node": byNode}); err != nil {
		t.Fatal(err)
	}
	p.wantObjects(pod("a", "1", "x"), pod("b", "2", "x"))
	if _, persistent := p.Durability(); persistent {
		t.Error("persistent after Detach")
	}
	if err := errors.Join(p.Detach(), p.Flush(context.Background())); err != nil {
		t.Error(err)
	}
	if departed, err := p.Departed(); departed != nil || err != nil {
		t.Errorf("Departed: %v, %v", departed, err)
	}
	p = start(t, file, startOptions{})
	p.wantObjects(pod("a", "1", "x"))
	if p.origin.RV != "1" {
		t.Errorf("origin %+v", p.origin)
	}
}

func TestIndexer_Detach_ReleasesTheIdentity(t *testing.T) {
	s := storetest.NewMemory().Open()
	for range 2 {
		c, err := s.Collection(storetest.Pods(), "test")
		if err != nil {
			t.Fatal(err)
		}
		x := New(Options{})
		if _, err := x.Attach(c, podCodec(t), "f1"); err != nil {
			t.Fatal(err)
		}
		if err := x.Detach(); err != nil {
			t.Fatal(err)
		}
	}
}

type closeFails struct {
	store.Collection
	err error
}

func (c closeFails) Close() error { return c.err }

func TestIndexer_Detach_ReportsWhatWasNotFlushed(t *testing.T) {
	disk := errors.New("disk full")
	for _, tc := range []struct{ cause, want error }{{disk, disk}, {store.ErrClosed, nil}} {
		p := start(t, storetest.NewMemory(), startOptions{wrap: func(c store.Collection) store.Collection { return closeFails{c, tc.cause} }})
		if err := p.Detach(); !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
			t.Errorf("Detach returned %v, want %v", err, tc.want)
		}
	}
}

// TestIndexer_Durability_DoesNotWaitForTheDisk asks while a change waits for one.
func TestIndexer_Durability_DoesNotWaitForTheDisk(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	s := &spy{}
	p := start(t, storetest.NewMemory(), startOptions{wrap: s.around})
	p.list("1", pod("a", "1", "x"))
	s.onApply = func(store.Batch) error {
		close(entered)
		<-release
		return nil
	}
	var changing sync.WaitGroup
	changing.Go(func() { p.apply(Update{RV: "2", Changes: []Change{put(pod("b", "2", "x"))}}) })
	<-entered
	if d, persistent := p.Durability(); !persistent || d.RV != "1" {
		t.Errorf("got %+v, %t", d, persistent)
	}
	close(release)
	changing.Wait()
	s.onApply = nil
	if err := p.Detach(); err != nil {
		t.Fatal(err)
	}
	if d, persistent := p.Durability(); persistent || d.RV != "2" {
		t.Errorf("after Detach: %+v, %t", d, persistent)
	}
}
