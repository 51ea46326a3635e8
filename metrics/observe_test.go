package metrics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
)

// names returns the values of the label "informer" that a scrape has, with whether
// the informer is persistent.
func names(t *testing.T, c *Collector) map[string]string {
	t.Helper()
	names := map[string]string{}
	for _, line := range samples(t, c, "warmcache_informer_persistent") {
		var name string
		var value int
		if _, err := fmt.Sscanf(line, "warmcache_informer_persistent{informer=%q} %d", &name, &value); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		names[name] = map[int]string{0: "memory", 1: "file"}[value]
	}
	return names
}

func wantNames(t *testing.T, c *Collector, want map[string]string) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, names(t, c)); diff != "" {
		t.Errorf("reported informers (-want +got):\n%s", diff)
	}
}

// observe makes an informer of pods that is observed and does not run yet.
func (w *world) observe(db *bolt.DB, c *Collector, change ...func(*informer.Options)) *process {
	w.t.Helper()
	p := w.prepareIn(db, change...)
	p.collector = c
	c.Observe(p.informer)
	return p
}

// end stops the informer, and leaves the file open.
func (p *process) end() {
	p.cancel()
	<-p.done
}

const podsName = "v1/pods?form=typed"

// Two informers of one identity: the one that is persisted has the name to itself,
// the other one a suffix, and each keeps its name for as long as it runs.
func TestCollector_Observe_NamesByIdentity(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		db := bolttest.Open(w.t, w.path, bolt.Options{})
		defer db.Close()
		c := NewCollector(db)
		second, first := w.observe(db, c), w.observe(db, c)
		wantNames(t, c, map[string]string{podsName: "memory", podsName + "#2": "memory"})
		first.start()
		second.start()
		wantNames(t, c, map[string]string{podsName: "file", podsName + "#2": "memory"})
		first.end()
		wantNames(t, c, map[string]string{podsName + "#2": "memory"})
		third := w.observe(db, c).start()
		wantNames(t, c, map[string]string{podsName: "file", podsName + "#2": "memory"})
		second.end()
		third.end()
		wantNames(t, c, map[string]string{})
	})
}

// An informer that learns its identity when it runs has the name of its type before,
// and for good if it never does.
func TestCollector_Observe_NamesByTypeUntilIdentified(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		db := bolttest.Open(w.t, w.path, bolt.Options{})
		defer db.Close()
		c := NewCollector(db)
		identify := func(id store.Identity, err error) func(*informer.Options) {
			return func(o *informer.Options) {
				o.Identity = store.Identity{}
				o.Identify = func(context.Context) (store.Identity, error) { return id, err }
			}
		}
		known := w.observe(db, c, identify(store.Identity{Version: "v1", Resource: "pods"}, nil))
		unknown := w.observe(db, c, identify(store.Identity{}, errors.New("nobody knows")))
		wantNames(t, c, map[string]string{"*v1.Pod": "memory", "*v1.Pod#2": "memory"})
		known.start()
		unknown.start()
		wantNames(t, c, map[string]string{podsName: "file", "*v1.Pod": "memory"})
		known.end()
		unknown.end()
	})
}

func TestCollector_Observe_YieldsToAdd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		db := bolttest.Open(w.t, w.path, bolt.Options{})
		defer db.Close()
		c := NewCollector(db)
		p := w.observe(db, c)
		mustAdd(t, c, podsName, idle())
		wantNames(t, c, map[string]string{podsName: "memory", podsName + "#2": "memory"})
		p.start()
		wantNames(t, c, map[string]string{podsName: "memory", podsName + "#2": "file"})
		if err := c.Add(podsName+"#2", idle()); !errors.Is(err, ErrNameInUse) {
			t.Errorf("Add under the name of an observed informer: %v", err)
		}
		mustAdd(t, c, "mine", wrapped{p.informer}) // under a better name
		wantNames(t, c, map[string]string{podsName: "memory", "mine": "file"})
		p.end()
	})
}

func TestCollector_Observe_LeavesAlone(t *testing.T) {
	c := NewCollector(nil)
	inf := idle()
	c.Observe(nil)
	c.Observe(cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Pod{}, 0, nil))
	c.Observe(inf)
	c.Observe(inf)
	c.Observe(wrapped{inf})
	if got := slices.Collect(maps.Keys(names(t, c))); !slices.Equal(got, []string{"*v1.Pod"}) {
		t.Errorf("reported %q, want the one informer once", got)
	}
}

// What has stopped is not kept, also if nobody scrapes.
func TestCollector_Observe_ForgetsStopped(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		db := bolttest.Open(w.t, w.path, bolt.Options{})
		defer db.Close()
		c := NewCollector(db)
		for range 3 {
			w.observe(db, c).start().end()
			if n := len(c.mu.observed); n != 1 {
				t.Errorf("%d informers are kept, want the last one at most", n)
			}
		}
		wantNames(t, c, map[string]string{})
	})
}

func TestCollector_Observe_ScrapesDuringChanges(t *testing.T) {
	c := NewCollector(nil)
	var changes sync.WaitGroup
	for i := range 4 {
		changes.Go(func() {
			for range 25 {
				c.Observe(idle())
				if err := c.Add(fmt.Sprint("*v1.Pod#", i), idle()); err == nil {
					c.Remove(fmt.Sprint("*v1.Pod#", i))
				}
			}
		})
	}
	for range 50 {
		samples(t, c) // fails if two have one name
	}
	changes.Wait()
	if got := len(names(t, c)); got != 100 {
		t.Errorf("%d informers, want 100", got)
	}
}

// TestCollector_Observe_KeepsANameThatIsNotInUse has an informer whose name another
// one might take while it is reported under a name of the user's.
func TestCollector_Observe_KeepsANameThatIsNotInUse(t *testing.T) {
	inWorld(t, func(_ *testing.T, w *world) {
		db := bolttest.Open(w.t, w.path, bolt.Options{})
		c := NewCollector(db)
		first := w.observe(db, c).start()
		samples(w.t, c)
		mustAdd(w.t, c, "mine", first.informer)
		second := w.observe(db, c).start()
		samples(w.t, c)
		c.Remove("mine")
		samples(w.t, c) // a pedantic registry refuses duplicates
		second.stop()
		first.stop()
	})
}
