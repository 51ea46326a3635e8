package indexer

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

// Nothing has to be read to remove an index.
func TestIndexer_Disk_DropsAnIndexWithoutReadingObjects(t *testing.T) {
	file := storetest.NewMemory()
	p := start(t, file, startOptions{indexers: cache.Indexers{"app": byApp, "node": byNode}})
	p.list("1", pod("a", "1", "x"), pod("b", "1", "y"))

	refuse := func(p *corev1.Pod) error { return errors.New(p.Name + " was read") }
	p = start(t, file, startOptions{residency: Disk, codec: picky{Codec: podCodec(t), decode: refuse}})
	if left := p.dump(); left.Header.Indices["node"] != "" || len(left.Indices["node"]) > 0 || left.Header.Indices["app"] == "" {
		t.Errorf("%+v, want the index app and not node", left)
	}
	if err := p.ReadErr(); err != nil {
		t.Error(err)
	}
	p = start(t, file, startOptions{residency: Disk})
	wantKeys(t, p, "app", "x", "ns/a")
}

// What Load cannot read has to be listed, which must be possible.
func TestIndexer_Disk_LoadFailsAndAListFollows(t *testing.T) {
	_, s := damagedFile(t)
	d := &damage{damagedTx: damagedTx{scan: fmt.Errorf("%w: test", store.ErrCorrupt)}}
	o := d.options()
	o.fingerprint = "f2"
	p := attachTo(t, s, o)
	wantUnreadable(t, "Load", p.Load(context.Background()))
	d.mended.Store(true)
	if !p.IsLost() {
		t.Fatal("nothing is lost")
	}
	if _, err := p.BeginAnew(); err != nil {
		t.Fatal(err)
	}
	p.list("2", pod("a", "2", "x"))
	p.verify()
	p.wantHeader("2", true, "f2")
}

// A store that is closed meanwhile is why nothing can be applied.
func TestIndexer_Disk_StoreClosedBeforeLoad(t *testing.T) {
	_, s := damagedFile(t)
	p := attachTo(t, s, startOptions{residency: Disk, fingerprint: "f2"})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Load(context.Background()); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Load: %v", err)
	}
	if _, err := p.Apply(Update{RV: "2", Changes: []Change{put(pod("a", "2", "x"))}}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Apply: %v", err)
	}
}

// An index that is stored already may be added at any time before Load.
func TestIndexer_Disk_AddIndexersThatAreStoredBeforeLoad(t *testing.T) {
	file := storetest.NewMemory()
	start(t, file, startOptions{indexers: cache.Indexers{"app": byApp, "node": byNode}}).list("1", pod("a", "1", "x"))
	p := attach(t, file, startOptions{residency: Disk})
	if err := p.AddIndexers(cache.Indexers{"node": byNode}); err != nil {
		t.Fatal(err)
	}
	p.load()
	wantKeys(t, p, "node", "node-1", "ns/a")
}
