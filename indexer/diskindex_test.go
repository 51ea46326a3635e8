package indexer

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

// severalParts is how many objects take several parts to be indexed.
const severalParts = 3*buildChunk + buildChunk/2

func manyPods(rv string) (pods []*corev1.Pod) {
	for i := range severalParts {
		pods = append(pods, pod(podName(i), rv, "x"))
	}
	return pods
}

func TestIndexer_Disk_AddIndexersWhileChangesGoOn(t *testing.T) {
	p := start(t, storetest.NewMemory(), startOptions{residency: Disk})
	p.list("1", manyPods("1")...)
	stop := make(chan struct{})
	var changing sync.WaitGroup
	changing.Go(func() {
		for n := 2; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			i := (n * 7919) % (severalParts + 100) // some are new
			if c := remove(podName(i)); n%3 == 0 {
				p.apply(Update{Changes: []Change{c}, RV: strconv.Itoa(n)})
			} else {
				p.apply(Update{Changes: []Change{put(pod(podName(i), strconv.Itoa(n%5), "y"))}, RV: strconv.Itoa(n)})
			}
		}
	})
	if err := p.AddIndexers(cache.Indexers{"node": byNode}); err != nil {
		t.Error(err)
	}
	close(stop)
	changing.Wait()
	p.verify()
}

// Who asks for an index that is being written waits, and gets all of the result. All
// others go on.
func TestIndexer_Disk_ReadsWaitForTheirIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered, release := make(chan struct{}), make(chan struct{})
		var once sync.Once
		s := &spy{}
		p := start(t, storetest.NewMemory(), startOptions{residency: Disk, wrap: s.around})
		p.list("1", manyPods("1")...)
		s.onApply = func(b store.Batch) error {
			if len(b.Index) > 0 {
				once.Do(func() {
					close(entered)
					<-release
				})
			}
			return nil
		}
		go func() {
			if err := p.AddIndexers(cache.Indexers{"node": byNode}); err != nil {
				t.Error(err)
			}
		}()
		<-entered
		results := make(chan int, 3)
		go func() { objs, _ := p.ByIndex("node", "node-1"); results <- len(objs) }()
		go func() { keys, _ := p.IndexKeys("node", "node-1"); results <- len(keys) }()
		go func() {
			results <- len(collect(t, p.Indexer, Query{Index: "node", Value: "node-1"}))
		}()
		values := make(chan []string, 1)
		go func() { values <- p.ListIndexFuncValues("node") }()
		synctest.Wait()
		if len(results)+len(values) > 0 {
			t.Error("an index has answered that is not written")
		}
		if keys := p.keysIn("app", "x"); len(keys) != severalParts || len(p.ListKeys()) != severalParts {
			t.Error("another index is not complete")
		}
		close(release)
		for range 3 {
			if n := <-results; n != severalParts {
				t.Errorf("%d objects, want %d", n, severalParts)
			}
		}
		if got := <-values; !slices.Equal(got, []string{"node-1"}) {
			t.Errorf("values %v", got)
		}
	})
}

// A crash in the middle of writing an index must leave none that is taken for whole: not
// by the program that was writing it, nor by the one before.
func TestIndexer_Disk_CrashWhileAnIndexIsWritten(t *testing.T) {
	for name, after := range map[string]startOptions{
		"a new version": {residency: Disk, versions: map[string]string{"app": "2"}, indexers: cache.Indexers{"app": byAppAnew}},
		"another index": {residency: Disk, versions: map[string]string{"app": "1", "node": "1"}, indexers: cache.Indexers{"app": byApp, "node": byNode}},
	} {
		t.Run(name, func(t *testing.T) {
			before := startOptions{residency: Disk, versions: map[string]string{"app": "1"}}
			r := &recorder{}
			o := before
			o.wrap = r.wrap
			start(t, storetest.NewMemory(), o).list("1", manyPods("1")...)
			first := len(r.batches)
			o = after
			o.wrap = r.wrap
			start(t, r.replay(t, first), o)
			if written := len(r.batches) - first; written < 4 {
				t.Fatalf("the index was written with %d batches", written)
			}
			for n := first; n <= len(r.batches); n++ {
				for _, next := range []startOptions{after, before, {indexers: after.indexers, versions: after.versions}} {
					p := start(t, r.replay(t, n), next)
					p.apply(Update{RV: "2", Changes: []Change{put(pod(podName(0), "2", "y")), remove(podName(1))}})
					p.verify()
				}
			}
		})
	}
}
