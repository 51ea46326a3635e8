package informer_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store"
)

// sparsely lets an informer list what differs only.
func (w *world) sparsely(o *informer.Options) {
	client := must(metadata.NewForConfig(metadata.ConfigFor(w.server.RESTConfig())))
	o.Metadata = client.Resource(configMaps)
	o.Get = func(ctx context.Context, namespace, name string) (runtime.Object, error) {
		cm, err := w.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return cm, nil
	}
}

// inLargeWorld runs a test of 20 objects of 200 KB in either residency.
func inLargeWorld(t *testing.T, test func(t *testing.T, w *world, names []string)) {
	for name, m := range map[string]maker{"persistent": persistent, onDiskName: onDisk} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.make, w.onDisk, w.padding = m, name == onDiskName, strings.Repeat("x", 200_000)
				var names []string
				for n := range 20 {
					names = append(names, "o"+strconv.Itoa(n))
				}
				w.create(names...)
				test(t, w, names)
			})
		})
	}
}

// TestInformer_SparseList checks that a restart reads what has changed, and nothing else,
// when the server has forgotten the stored version.
func TestInformer_SparseList(t *testing.T) {
	inLargeWorld(t, func(t *testing.T, w *world, _ []string) {
		w.start(w.sparsely).synced().kill()
		w.whileDown(func() {
			w.update("o1", "new")
			w.delete("o2", "o3")
			w.create("o3", "n1")
		})
		p := w.start(w.sparsely).synced()
		p.converged()
		s := p.status()
		if s.Lists != 1 || s.SparseLists != 1 || !s.Confirmed || !strings.Contains(s.OutcomeReason, "forgotten") {
			t.Errorf("status %+v, want one list, a sparse one", s)
		}
		departed := 0
		for _, e := range p.recorder.take() {
			if strings.HasPrefix(e, "delete ") {
				departed++
			}
		}
		if departed != 2 {
			t.Errorf("%d objects departed, want 2", departed)
		}
		lists, gets := 0, 0
		for _, r := range w.server.Requests() {
			switch {
			case r.Resource != "configmaps":
			case r.Verb == "get":
				gets++
			case r.Verb == "list" && r.Query.Get("limit") != "1":
				lists++
			}
		}
		if lists != 1 || gets != 3 {
			t.Errorf("%d lists and %d reads of single objects, want 1 and 3", lists, gets)
		}
		p.stop()
	})
}

// TestInformer_SparseList_DamageMeanwhile checks that what a list left out is listed after all
// if it turns out that it cannot be read.
func TestInformer_SparseList_DamageMeanwhile(t *testing.T) {
	inLargeWorld(t, func(t *testing.T, w *world, names []string) {
		for n := range 40 { // more than are read one by one
			names = append(names, "more"+strconv.Itoa(n))
			w.create(names[len(names)-1])
		}
		w.start(w.sparsely).synced().kill()
		w.whileDown(func() { w.update("o1", "new") })
		c := must(w.memory.Open().Collection(withForm(identity), "test"))
		if err := c.Apply(store.Batch{Ops: []store.Op{{Key: "default/o5", Value: store.Seal([]byte("damaged"))}}}); err != nil {
			t.Fatal(err)
		}
		p := w.start(w.sparsely).synced()
		p.converged()
		if s := p.status(); s.Objects != len(names) || s.Lists == s.SparseLists {
			t.Errorf("status %+v, want %d objects, and a list of all", s, len(names))
		}
		p.stop()
	})
}

// TestInformer_SparseList_LostMeanwhile checks that everything is listed when an object that a
// list left out, because it was stored, is not there any more when the list is applied.
func TestInformer_SparseList_LostMeanwhile(t *testing.T) {
	inLargeWorld(t, func(t *testing.T, w *world, names []string) {
		w.start(w.sparsely).synced().kill()
		w.whileDown(func() { w.update("o1", "new") })
		var p *process
		lose := sync.OnceFunc(func() {
			objects := p.informer.GetIndexer()
			for {
				if lost, exists, err := objects.GetByKey("default/o5"); err != nil || exists {
					check(t, errors.Join(err, objects.Delete(lost)))
					return
				}
				time.Sleep(10 * time.Millisecond) // it is being loaded
			}
		})
		p = w.prepare(w.sparsely, func(o *informer.Options) {
			get := o.Get
			o.Get = func(ctx context.Context, namespace, name string) (runtime.Object, error) {
				lose()
				return get(ctx, namespace, name)
			}
		})
		p.recorder = p.handle()
		p.run()
		p.synced()
		p.converged()
		if s := p.status(); s.Objects != len(names) || s.Lists != 2 || s.SparseLists != 1 {
			t.Errorf("status %+v, want %d objects, and a list of all after a sparse one", s, len(names))
		}
		p.stop()
	})
}

// TestInformer_SparseList_WhileRunning checks it when a watch expires.
func TestInformer_SparseList_WhileRunning(t *testing.T) {
	inLargeWorld(t, func(t *testing.T, w *world, _ []string) {
		p := w.start(w.sparsely).synced()
		time.Sleep(2 * time.Second) // until the size is known
		w.whileDown(func() {
			w.update("o1", "new")
			w.delete("o2")
		})
		time.Sleep(time.Minute)
		p.converged()
		if s := p.status(); s.Lists != 2 || s.SparseLists != 1 {
			t.Errorf("status %+v, want two lists, of which one sparse", s)
		}
		p.stop()
	})
}

// TestInformer_SparseList_LeavesSelection checks that an object is deleted that leaves what is
// selected between the list of metadata and the moment when it is read by its name.
func TestInformer_SparseList_LeavesSelection(t *testing.T) {
	inLargeWorld(t, func(t *testing.T, w *world, names []string) {
		w.selector = "hidden!=yes"
		w.start(w.sparsely).synced().kill()
		w.whileDown(func() { w.update("o1", "new") })
		p := w.start(w.sparsely, func(o *informer.Options) {
			get := o.Get
			o.Get = func(ctx context.Context, namespace, name string) (runtime.Object, error) {
				hidden := w.configMap(name, "hidden")
				hidden.Labels = map[string]string{"hidden": "yes"}
				check(t, w.server.Update(hidden))
				return get(ctx, namespace, name)
			}
		}).synced()
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := p.status(); s.SparseLists != 1 || s.Objects != len(names)-1 {
			t.Errorf("status %+v, want %d objects after a list of what differs", s, len(names)-1)
		}
		if _, known := p.recorder.known()["default/o1"]; known {
			t.Error("the handler was not told")
		}
		p.stop()
	})
}
