package indexer

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

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
