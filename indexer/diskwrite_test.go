package indexer

import (
	"testing"

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
