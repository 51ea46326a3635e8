package informer_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
)

func byValue(obj any) ([]string, error) {
	return []string{obj.(*corev1.ConfigMap).Data["value"]}, nil
}

func TestInformer_AddIndexers(t *testing.T) {
	asClientGo(t, func(t *testing.T, w *world) {
		w.create("a", "b")
		w.update("b", "new")
		p := w.prepare()
		find := func(index, value string) int {
			objs, err := p.informer.GetIndexer().ByIndex(index, value)
			if err != nil {
				t.Errorf("index %s: %v", index, err)
			}
			return len(objs)
		}
		if err := p.informer.AddIndexers(cache.Indexers{"before": byValue}); err != nil {
			t.Fatal(err)
		}
		p.recorder = p.handle()
		p.run()
		p.synced()
		if err := p.informer.AddIndexers(cache.Indexers{"after": byValue}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"before", "after", cache.NamespaceIndex} {
			if err := p.informer.AddIndexers(cache.Indexers{"x" + name: byValue, name: byValue}); err == nil {
				t.Errorf("index %s was added twice", name)
			}
			if _, ok := p.informer.GetIndexer().GetIndexers()["x"+name]; ok {
				t.Error("a part of conflicting indexers was added")
			}
		}
		if find("before", "new") != 1 || find("after", "created") != 1 || find(cache.NamespaceIndex, "default") != 2 {
			t.Error("objects are missing from an index")
		}
		w.update("a", "new")
		synctest.Wait()
		if find("before", "new") != 2 || find("after", "new") != 2 || find("after", "created") != 0 {
			t.Error("an index was not updated")
		}
		p.stop()
	})
}

// TestInformer_IndexFunctionFails checks that neither errors nor panics of index
// functions keep objects from anybody.
func TestInformer_IndexFunctionFails(t *testing.T) {
	bothModes(t, func(t *testing.T, w *world) {
		w.create("a", "bad", "worse")
		failing := func(obj any) ([]string, error) {
			switch obj.(*corev1.ConfigMap).Name {
			case "bad":
				return nil, errors.New("broken index function")
			case "worse":
				panic("broken index function")
			}
			return []string{"all"}, nil
		}
		for _, warm := range []bool{false, true} {
			p := w.start(func(o *informer.Options) { o.Indexers["failing"] = failing }).synced()
			p.converged()
			if objs, err := p.informer.GetIndexer().ByIndex("failing", "all"); len(objs) != 1 || err != nil {
				t.Errorf("indexed %d objects, %v", len(objs), err)
			}
			// A warm start in disk residency indexes nothing.
			failed := warm && w.onDisk || p.status().IndexErrors > 0
			if s := p.status(); !failed || s.Objects != 3 {
				t.Errorf("status %+v", s)
			}
			p.kill()
		}
	})
}

// The mutation detector can only be switched on by the environment of a process.

func TestInformer_MutationDetector(t *testing.T) {
	for _, which := range []string{"Initial", "Loaded", "Departed", "Added", "Updated", "Late", "Nothing"} {
		t.Run(which, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestMutationChild$", "-test.v")
			cmd.Env = append(os.Environ(), "KUBE_CACHE_MUTATION_DETECTOR=true", "WARMCACHE_TEST_MUTATE="+which)
			out, err := cmd.CombinedOutput()
			detected := err != nil && strings.Contains(string(out), "cache *v1.ConfigMap modified")
			if detected != (which != "Nothing") {
				t.Errorf("detected: %v, %v; output\n%s", detected, err, out)
			}
			if which == "Nothing" && !strings.Contains(string(out), "PASS: TestMutationChild") {
				t.Errorf("the child did not run:\n%s", out)
			}
		})
	}
}

func TestMutationChild(t *testing.T) {
	which := os.Getenv("WARMCACHE_TEST_MUTATE")
	if which == "" {
		t.Skip("run by TestInformer_MutationDetector")
	}
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a", "gone")
		if which == "Loaded" || which == "Departed" {
			w.start().synced().kill()
		}
		w.delete("gone")
		p := w.prepare()
		mutate := func(obj any) { obj.(*corev1.ConfigMap).Data["value"] = "mutated" }
		if _, err := p.informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(obj any, initial bool) {
				gone := obj.(*corev1.ConfigMap).Name == "gone"
				mutateThis := map[string]bool{
					"Initial": initial, "Loaded": initial && !gone, "Departed": gone, "Added": !initial,
				}
				if mutateThis[which] {
					mutate(obj)
				}
			},
			UpdateFunc: func(_, obj any) {
				if which == "Updated" {
					mutate(obj)
				}
			},
		}); err != nil {
			t.Fatal(err)
		}
		p.run()
		<-p.informer.HasSyncedChecker().Done()
		w.create("b")
		w.update("b", "new")
		synctest.Wait()
		if which == "Late" {
			must(p.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: mutate}))
		}
		time.Sleep(3 * time.Second)
		p.stop()
	})
}
