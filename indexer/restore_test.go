package indexer

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

var errTest = errors.New("test")

// listed starts a process that holds so many pods, more than one chunk.
func listed(t *testing.T, file *storetest.Memory, o startOptions, n int) *process {
	t.Helper()
	p := start(t, file, o)
	var pods []*corev1.Pod
	for i := range n {
		pods = append(pods, pod(podName(i), "1", fmt.Sprint("app-", i%7)))
	}
	p.list("1", pods...)
	return p
}

func TestIndexer_Restore_WritesWhatMemoryHas(t *testing.T) {
	file := storetest.NewMemory()
	p := listed(t, file, startOptions{}, restoreChunk+2)
	if isClosed(p.Lost()) {
		t.Fatal("lost from the beginning")
	}
	p.collection.Quarantine(errTest)
	// Changes in between are served, and restored.
	p.apply(Update{RV: "2", Changes: departing(put(pod("new", "2", "x")), remove(podName(3)))})
	if d, persistent := p.Durability(); !persistent || !errors.Is(d.Err, store.ErrCorrupt) {
		t.Errorf("durability %+v, %t", d, persistent)
	}
	if !isClosed(p.Lost()) {
		t.Fatal("not lost")
	}
	p.Restore()
	if isClosed(p.Lost()) {
		t.Error("still lost")
	}
	p.verify()
	p.wantHeader("2", true, "f1")
	p.apply(Update{RV: "3", Changes: []Change{put(pod("newer", "3", "x"))}})
	p.verify()
	next := start(t, file, startOptions{})
	if next.origin.RV != "3" || next.Len() != restoreChunk+3 {
		t.Errorf("the next start has %d objects, origin %+v", next.Len(), next.origin)
	}
}

// TestIndexer_Restore_CrashInBetween kills the process after each of the batches
// of Restore: only the last one lets the next start resume.
func TestIndexer_Restore_CrashInBetween(t *testing.T) {
	r := &recorder{}
	p := listed(t, storetest.NewMemory(), startOptions{wrap: r.wrap}, 2*restoreChunk)
	r.batches = nil
	p.collection.Quarantine(errTest)
	p.Restore()
	if len(r.batches) != 4 {
		t.Fatalf("%d batches, want a Clear, two chunks and a header", len(r.batches))
	}
	for n := 1; n < len(r.batches); n++ {
		if next := start(t, r.replay(t, n), startOptions{}); next.origin.RV != "" || next.Len() != (n-1)*restoreChunk {
			t.Errorf("after batch %d: %d objects, origin %+v", n, next.Len(), next.origin)
		}
	}
	if next := start(t, r.replay(t, len(r.batches)), startOptions{}); next.origin.RV != "1" {
		t.Errorf("after the last batch: origin %+v", next.origin)
	}
}

// TestIndexer_Restore_BesideEverything changes objects and indices meanwhile, and
// the header of a list that ends meanwhile must not vouch for the rest.
func TestIndexer_Restore_BesideEverything(t *testing.T) {
	var restoring sync.WaitGroup
	first := make(chan struct{})
	var once sync.Once
	s := &spy{onApply: func(b store.Batch) error {
		if b.Clear {
			once.Do(func() { close(first) })
		}
		return nil
	}}
	const n = 5 * restoreChunk
	p := listed(t, storetest.NewMemory(), startOptions{wrap: s.around}, n)
	p.collection.Quarantine(errTest)
	restoring.Go(p.Restore)
	<-first
	for i := range 200 {
		name := podName(i * 20)
		p.apply(Update{RV: fmt.Sprint(10 + i), Changes: departing(put(pod(name, "2", "changed")), remove(podName(i*20+1)))})
		p.apply(Update{RV: fmt.Sprint(10 + i), Complete: true})
		if i == 20 {
			if err := p.AddIndexers(cache.Indexers{"node": byNode}); err != nil {
				t.Error(err)
			}
		}
	}
	restoring.Wait()
	p.verify()
	p.wantHeader("209", true, "f1")
	if p.Len() != n-200 {
		t.Errorf("%d objects", p.Len())
	}
}

func TestIndexer_Restore_ListEndsMeanwhile(t *testing.T) {
	complete := false
	s := &spy{}
	p := listed(t, storetest.NewMemory(), startOptions{wrap: s.around}, 2*restoreChunk)
	p.collection.Quarantine(errTest)
	keys, err := p.beginRestore()
	if err != nil || len(keys) != 2*restoreChunk {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	s.onApply = func(b store.Batch) error {
		complete = complete || b.Header != nil && b.Header.Complete
		return nil
	}
	p.apply(Update{RV: "2", Complete: true})
	if complete {
		t.Error("the file was called complete before it was")
	}
	if err := p.restore(keys); err != nil || p.endRestore() {
		t.Errorf("restore: %v", err)
	}
	p.verify()
	p.wantHeader("2", true, "f1")
}

func TestIndexer_Restore_LostAgain(t *testing.T) {
	s := &spy{}
	p := listed(t, storetest.NewMemory(), startOptions{wrap: s.around}, 3*restoreChunk)
	p.collection.Quarantine(errTest)
	batches := 0
	s.onApply = func(store.Batch) error {
		if batches++; batches == 3 {
			p.collection.Quarantine(errTest)
		}
		return nil
	}
	p.Restore()
	if !isClosed(p.Lost()) {
		t.Fatal("want it lost again")
	}
	p.Restore()
	p.verify()
	p.wantHeader("1", true, "f1")
}

func TestIndexer_Restore_UnwritableObject(t *testing.T) {
	file := storetest.NewMemory()
	broken := false
	p := listed(t, file, startOptions{codec: picky{Codec: podCodec(t), encode: func(p *corev1.Pod) error {
		if broken && p.Name == podName(5) {
			return errTest
		}
		return nil
	}}}, 10)
	broken = true
	p.collection.Quarantine(errTest)
	p.Restore()
	if d, persistent := p.Durability(); persistent || !errors.Is(d.Err, errTest) {
		t.Errorf("durability %+v, %t", d, persistent)
	}
	if next := start(t, file, startOptions{}); next.origin.RV != "" {
		t.Errorf("origin %+v", next.origin)
	}
}

// Objects that memory does not have, because another program wrote them, are lost.
// The list that has to come makes the file complete.
func TestIndexer_Restore_ForeignRecords(t *testing.T) {
	file := storetest.NewMemory()
	start(t, file, startOptions{}).list("1", pod("a", "1", "x"), pod("b", "1", "x"))
	p := start(t, file, startOptions{fingerprint: "f2"})
	p.collection.Quarantine(errTest)
	p.Restore()
	p.wantHeader("1", false, "f2")
	p.apply(Update{Complete: true, RV: "2", Changes: departing(put(pod("a", "2", "x")), remove("b"))})
	p.verify()
	p.wantHeader("2", true, "f2")
}

func TestIndexer_Detach_RestoresWhatIsLost(t *testing.T) {
	file := storetest.NewMemory()
	p := listed(t, file, startOptions{}, 3)
	p.collection.Quarantine(errTest)
	if err := p.Detach(); err != nil {
		t.Fatal(err)
	}
	if next := start(t, file, startOptions{}); next.origin.RV != "1" || !next.origin.Clean || next.Len() != 3 {
		t.Errorf("%d objects, origin %+v", next.Len(), next.origin)
	}
}

// TestIndexer_Load_WhatIsQuarantined tells damage, which is a reason to distrust
// the whole file, from records that only this program does not understand.
func TestIndexer_Load_WhatIsQuarantined(t *testing.T) {
	for name, test := range map[string]struct {
		record []byte
		want   bool
	}{
		"damaged":        {[]byte("no checksum at all"), true},
		"not understood": {store.Seal([]byte("of another kind")), false},
	} {
		t.Run(name, func(t *testing.T) {
			file := storetest.NewMemory()
			start(t, file, startOptions{}).list("1", pod("b", "1", "x"))
			quarantined := false
			damage := damagedTx{value: onlyB(func([]byte) []byte { return test.record })}
			o := damage.wrap()
			wrap := o.wrap
			o.wrap = func(c store.Collection) store.Collection {
				return quarantineSpy{wrap(c), func() { quarantined = true }}
			}
			p := attach(t, file, o)
			if err := p.Load(t.Context()); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("Load: %v", err)
			}
			if quarantined != test.want {
				t.Errorf("quarantined: %t, want %t", quarantined, test.want)
			}
			p.wantEmptied()
			p.wantUsable(file)
		})
	}
}

type quarantineSpy struct {
	store.Collection
	seen func()
}

func (s quarantineSpy) Quarantine(cause error) {
	s.seen()
	s.Collection.Quarantine(cause)
}

func TestIndexer_Departed_DamageIsQuarantined(t *testing.T) {
	p := start(t, storetest.NewMemory(), startOptions{wrap: (&spy{tx: func(tx store.Tx) store.Tx { return brokenDeparted{tx} }}).around})
	p.list("1", pod("a", "1", "x"))
	if _, err := p.Departed(); !errors.Is(err, store.ErrCorrupt) {
		t.Fatalf("Departed: %v", err)
	}
	if !isClosed(p.Lost()) {
		t.Error("the file is still in use")
	}
	p.Restore()
	p.verify()
}

type brokenDeparted struct{ store.Tx }

func (brokenDeparted) Departed(func(store.Departed) bool) error {
	return fmt.Errorf("%w: test", store.ErrCorrupt)
}
