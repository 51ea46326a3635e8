package indexer

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

// Who has seen that the objects are gone finds none of them in the cache.
func TestIndexer_Disk_ResetRemovesAllAtOnce(t *testing.T) {
	s := &spy{}
	p := start(t, storetest.NewMemory(), startOptions{residency: Disk, wrap: s.around})
	p.list("1")
	p.apply(Update{RV: "2", Changes: []Change{put(pod("a", "2", "x"))}})
	calls := 0
	s.applied = func(store.Batch) {
		calls++
		if keys := p.ListKeys(); len(keys) != 0 {
			t.Errorf("the collection still has %v", keys)
		}
		if obj, exists, err := p.GetByKey("ns/a"); exists || err != nil {
			t.Errorf("GetByKey found %v, %v after a list that was empty", obj, err)
		}
	}
	p.Reset()
	if calls != 1 || p.CacheStats().Objects != 0 {
		t.Errorf("%d batches; %+v", calls, p.CacheStats())
	}
}

// Data of another cluster may be found while an index waits to be written.
func TestIndexer_Disk_ResetBeforeLoad(t *testing.T) {
	for name, change := range map[string]func(*startOptions){
		"index":       func(o *startOptions) { o.versions = map[string]string{"app": "2"} },
		"fingerprint": func(o *startOptions) { o.fingerprint = "f2" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, s := damagedFile(t)
				o := startOptions{residency: Disk, indexers: allIndexers}
				change(&o)
				p := attachTo(t, s, o)
				p.Reset()
				if err := p.Load(context.Background()); err != nil {
					t.Fatal(err)
				}
				p.list("2", pod("n", "2", "x"))
				wantKeys(t, p, "app", "x", "ns/n") // and does not wait for ever
				p.wantObjects(pod("n", "2", "x"))
				p.verify()
			})
		})
	}
}
