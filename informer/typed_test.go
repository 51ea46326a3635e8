package informer_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
)

type typed = cache.TypedSharedIndexInformer[*corev1.ConfigMap]

// asTyped runs a test through client-go's typed wrapper.
func asTyped(t *testing.T, test func(t *testing.T, w *world, p *process, i typed)) {
	t.Helper()
	asClientGo(t, func(t *testing.T, w *world) {
		p := w.prepare(func(o *informer.Options) { o.ResyncPeriod = time.Minute })
		test(t, w, p, cache.NewTypedSharedIndexInformer[*corev1.ConfigMap](p.informer))
	})
}

// typedRecorder is a handler that gets objects of its type.
type typedRecorder struct {
	mu   sync.Mutex
	told []string
}

func (r *typedRecorder) tell(event string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, event)
}

func (r *typedRecorder) OnAdd(obj *corev1.ConfigMap, initial bool) {
	word := "add "
	if initial {
		word = "initial "
	}
	r.tell(word + obj.Name)
}

func (r *typedRecorder) OnUpdate(old, obj *corev1.ConfigMap) {
	r.tell("update " + old.Name + " " + old.Data["value"] + " to " + obj.Data["value"])
}

func (r *typedRecorder) OnDelete(obj cache.DeletedObject[*corev1.ConfigMap]) {
	word := "delete "
	if obj.FinalStateUnknown != nil {
		word = "delete unknown " + must(cache.DeletionHandlingObjectToName(*obj.FinalStateUnknown)).String() + " = "
	}
	r.tell(word + obj.GetKey() + " " + obj.GetObjectName().Name + " " + obj.OptionalObj.Data["value"])
}

func (r *typedRecorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	told := r.told
	r.told = nil
	return told
}

// TestTyped_Handlers checks what typed handlers are told, tombstones included.
func TestTyped_Handlers(t *testing.T) {
	asTyped(t, func(t *testing.T, w *world, p *process, i typed) {
		w.create("a")
		r := &typedRecorder{}
		p.recorder = &recorder{registration: must(i.AddTypedEventHandler(r))}
		p.run()
		p.synced()
		w.update("a", "new")
		w.create("b")
		w.delete("a")
		synctest.Wait()
		want := []string{"initial a", "update a created to new", "add b", "delete default/a a new"}
		if got := r.take(); !slices.Equal(got, want) {
			t.Errorf("told %v, want %v", got, want)
		}
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if got, want := r.take(), []string{"update b created to created"}; !slices.Equal(got, want) {
			t.Errorf("told %v, want a resync", got)
		}
		w.whileDown(func() { w.delete("b") })
		time.Sleep(50 * time.Second) // before the next resync
		synctest.Wait()
		if got, want := r.take(), []string{"delete unknown default/b = default/b b created"}; !slices.Equal(got, want) {
			t.Errorf("told %v, want %v", got, want)
		}
		p.stop()
	})
}

// TestTyped_Options checks that options of a typed handler arrive.
func TestTyped_Options(t *testing.T) {
	asTyped(t, func(t *testing.T, w *world, p *process, i typed) {
		w.create("a")
		never, often := &typedRecorder{}, &typedRecorder{}
		second := time.Second
		must(i.AddTypedEventHandler(never, cache.HandlerOptions{ResyncPeriod: new(time.Duration)}))
		p.recorder = &recorder{registration: must(i.AddTypedEventHandler(often, cache.HandlerOptions{ResyncPeriod: &second}))}
		if _, err := i.AddTypedEventHandler(never, cache.HandlerOptions{}, cache.HandlerOptions{}); err == nil {
			t.Error("two sets of options were accepted")
		}
		p.run()
		p.synced()
		time.Sleep(5500 * time.Millisecond)
		synctest.Wait()
		if len(never.take()) != 1 || len(often.take()) != 6 {
			t.Error("the resync periods are not those of the options")
		}
		p.stop()
	})
}

// TestTyped_Filter checks that objects enter and leave the view of a filter.
func TestTyped_Filter(t *testing.T) {
	asTyped(t, func(t *testing.T, w *world, p *process, i typed) {
		w.create("a", "b")
		r := &typedRecorder{}
		p.recorder = &recorder{registration: must(i.AddTypedEventHandler(cache.TypedFilteringResourceEventHandler[*corev1.ConfigMap]{
			FilterFunc: func(cm *corev1.ConfigMap) bool { return cm.Data["value"] == "seen" },
			Handler:    r,
		}))}
		p.run()
		p.synced()
		w.update("a", "seen")
		w.update("a", "hidden")
		w.update("b", "seen")
		w.delete("b", "a")
		synctest.Wait()
		want := []string{"add a", "delete default/a a seen", "add b", "delete default/b b seen"}
		if got := r.take(); !slices.Equal(got, want) {
			t.Errorf("told %v, want %v", got, want)
		}
		p.stop()
	})
}

// TestTyped_Indexers checks indices of typed functions, and readers of the typed
// indexer.
func TestTyped_Indexers(t *testing.T) {
	asTyped(t, func(t *testing.T, w *world, p *process, i typed) {
		w.create("a", "b")
		w.update("b", "new")
		index := func(cm *corev1.ConfigMap) ([]string, error) { return []string{cm.Data["value"]}, nil }
		if err := i.AddTypedIndexers(cache.TypedIndexers[*corev1.ConfigMap]{"before": index}); err != nil {
			t.Fatal(err)
		}
		p.recorder = p.handle()
		p.run()
		p.synced()
		if err := i.GetTypedIndexer().AddTypedIndexers(cache.TypedIndexers[*corev1.ConfigMap]{"after": index}); err != nil {
			t.Fatal(err)
		}
		if err := i.AddTypedIndexers(cache.TypedIndexers[*corev1.ConfigMap]{"after": index}); err == nil {
			t.Error("an index was added twice")
		}
		for _, name := range []string{"before", "after"} {
			found, err := i.GetTypedIndexer().ByTypedIndex(name, "new")
			if err != nil || len(found) != 1 || found[0].Name != "b" {
				t.Errorf("index %s: %v, %v", name, found, err)
			}
			found, err = i.GetTypedIndexer().TypedIndex(name, configMap("x", "created"))
			if err != nil || len(found) != 1 || found[0].Name != "a" {
				t.Errorf("index %s: %v, %v", name, found, err)
			}
		}
		if _, err := i.GetTypedIndexer().ByTypedIndex("none", ""); err == nil {
			t.Error("an index that does not exist was read")
		}
		p.stop()
	})
}

// TestTyped_Listers checks client-go's generated listers over the indexer.
func TestTyped_Listers(t *testing.T) {
	asTyped(t, func(t *testing.T, w *world, p *process, i typed) {
		w.create("a", "b")
		p.recorder = p.handle()
		p.run()
		p.synced()
		lister := corelisters.NewConfigMapLister(i.GetTypedIndexer())
		all, err := lister.ConfigMaps("default").List(labels.Everything())
		if err != nil || len(all) != 2 {
			t.Errorf("listed %v, %v", all, err)
		}
		if found, err := lister.ConfigMaps("default").Get("a"); err != nil || found.Name != "a" {
			t.Errorf("found %v, %v", found, err)
		}
		if found, err := lister.ConfigMaps("other").Get("a"); err == nil {
			t.Errorf("found %v in a namespace without objects", found)
		}
		p.stop()
	})
}
