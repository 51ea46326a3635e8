package factory

import (
	"maps"
	"sync"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/apitest"
	"github.com/warmcache/warmcache/store"
)

// anyFactory is what factories of all kinds have in common, client-go's and ours.
type anyFactory interface {
	Start(stop <-chan struct{})
	Shutdown()
	// informer is ForResource.
	informer(gvr schema.GroupVersionResource) cache.SharedIndexInformer
	// wait is WaitForCacheSync, by resource.
	wait(stop <-chan struct{}) map[string]bool
}

type typedFactory struct {
	informers.SharedInformerFactory
}

func (f typedFactory) informer(gvr schema.GroupVersionResource) cache.SharedIndexInformer {
	generic, err := f.ForResource(gvr)
	return must(generic, err).Informer()
}

func (f typedFactory) wait(stop <-chan struct{}) map[string]bool {
	synced := map[string]bool{}
	for t, s := range f.WaitForCacheSync(stop) {
		synced[must(clientsetResources().resourceFor(t)).gvr.Resource] = s
	}
	return synced
}

type untypedFactory struct {
	dynamicinformer.DynamicSharedInformerFactory
}

func (f untypedFactory) informer(gvr schema.GroupVersionResource) cache.SharedIndexInformer {
	return f.ForResource(gvr).Informer()
}

func (f untypedFactory) wait(stop <-chan struct{}) map[string]bool {
	synced := map[string]bool{}
	for gvr, s := range f.WaitForCacheSync(stop) {
		synced[gvr.Resource] = s
	}
	return synced
}

// settings are the options that factories of all kinds have.
type settings struct {
	namespace string
	tweak     func(*metav1.ListOptions)
	// db is used by factories that have a store; nil is a new one.
	db store.Store
}

func (s settings) store() store.Store {
	if s.db != nil {
		return s.db
	}
	return newStore()
}

// contestants make factories of every kind. Those of client-go say what is right.
func contestants(t *testing.T, server *apitest.Server) map[string]func(settings) anyFactory {
	t.Helper()
	typed, err := kubernetes.NewForConfig(server.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(server.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	meta, err := metadata.NewForConfig(server.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	options := func(s settings) []Option {
		return []Option{WithNamespace(s.namespace), WithTweakListOptions(s.tweak)}
	}
	all := map[string]func(settings) anyFactory{
		"client-go typed": func(s settings) anyFactory {
			return typedFactory{informers.NewSharedInformerFactoryWithOptions(typed, 0, informers.WithNamespace(s.namespace), informers.WithTweakListOptions(s.tweak))}
		},
		"client-go dynamic": func(s settings) anyFactory {
			return untypedFactory{dynamicinformer.NewFilteredDynamicSharedInformerFactory(dyn, 0, s.namespace, s.tweak)}
		},
		"client-go metadata": func(s settings) anyFactory {
			return untypedFactory{metadatainformer.NewFilteredSharedInformerFactory(meta, 0, s.namespace, s.tweak)}
		},
	}
	for name, storage := range storages {
		all[name+"typed"] = func(s settings) anyFactory {
			db, more := storage(s)
			return typedFactory{must(New(typed, db, append(options(s), more...)...))}
		}
		all[name+"dynamic"] = func(s settings) anyFactory {
			db, more := storage(s)
			return untypedFactory{must(NewDynamic(dyn, db, append(options(s), more...)...))}
		}
		all[name+"metadata"] = func(s settings) anyFactory {
			db, more := storage(s)
			return untypedFactory{must(NewMetadata(meta, db, append(options(s), more...)...))}
		}
	}
	return all
}

// storages are the ways in which a factory keeps its objects, by the first word of
// the names of contestants.
var storages = map[string]func(settings) (store.Store, []Option){
	"":            func(settings) (store.Store, []Option) { return nil, nil },
	"persistent ": func(s settings) (store.Store, []Option) { return s.store(), []Option{WithListBelow(-1)} },
	"disk ": func(s settings) (store.Store, []Option) {
		return s.store(), []Option{WithListBelow(-1), WithResidency(informer.Disk, 0)}
	},
}

// asClientGo runs a test against factories of every kind.
func asClientGo(t *testing.T, test func(t *testing.T, server *apitest.Server, newFactory func(settings) anyFactory)) {
	t.Helper()
	for _, name := range []string{
		"client-go typed", "client-go dynamic", "client-go metadata",
		"typed", "dynamic", "metadata", "persistent typed", "persistent dynamic", "persistent metadata",
		"disk typed", "disk dynamic", "disk metadata",
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, server *apitest.Server) {
				test(t, server, contestants(t, server)[name])
			})
		})
	}
}

func wantSynced(t *testing.T, got, want map[string]bool) {
	t.Helper()
	if got == nil || !maps.Equal(got, want) {
		t.Errorf("WaitForCacheSync = %v, want %v", got, want)
	}
}

func TestParity_Events(t *testing.T) {
	asClientGo(t, func(t *testing.T, server *apitest.Server, newFactory func(settings) anyFactory) {
		create(t, server, configMap("a"))
		f := newFactory(settings{})
		events := handle(t, f.informer(configMaps))
		stop := make(chan struct{})
		f.Start(stop)
		wantSynced(t, f.wait(stop), map[string]bool{"configmaps": true})
		synctest.Wait() // a change before a handler has its initial list may become part of that, on disk
		create(t, server, configMap("b"))
		changed := configMap("a")
		changed.Annotations = map[string]string{"changed": "yes"}
		if err := server.Update(changed); err != nil {
			t.Fatal(err)
		}
		if err := server.Delete(configMap("b")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		events.want(t, "initial default/a", "add default/b", "update default/a", "delete default/b")
		close(stop)
		f.Shutdown()
	})
}

// TestParity_Filters has objects that differ in one of namespace, name and label
// from what is selected.
func TestParity_Filters(t *testing.T) {
	asClientGo(t, func(t *testing.T, server *apitest.Server, newFactory func(settings) anyFactory) {
		for want, s := range map[string]settings{
			"kube-system/x": {namespace: "kube-system"},
			"default/x":     {namespace: "default", tweak: func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=x" }},
			"default/y":     {tweak: func(o *metav1.ListOptions) { o.LabelSelector = "labelled=yes" }},
		} {
			f := newFactory(s)
			events := handle(t, f.informer(configMaps))
			stop := make(chan struct{})
			f.Start(stop)
			f.wait(stop)
			synctest.Wait() // as in TestParity_Events
			labelled := configMap("y")
			labelled.Labels = map[string]string{"labelled": "yes"}
			system := configMap("x")
			system.Namespace = "kube-system"
			objs := []runtime.Object{configMap("x"), labelled, system}
			create(t, server, objs...)
			synctest.Wait()
			events.want(t, "add "+want)
			close(stop)
			f.Shutdown()
			if err := server.Delete(objs...); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestParity_Start checks which informers a start runs, and until when.
func TestParity_Start(t *testing.T) {
	asClientGo(t, func(t *testing.T, _ *apitest.Server, newFactory func(settings) anyFactory) {
		f := newFactory(settings{})
		first, second := make(chan struct{}), make(chan struct{})
		wantSynced(t, f.wait(first), map[string]bool{})
		earlier := f.informer(configMaps)
		f.Start(first)
		later := f.informer(nodes)
		wantSynced(t, f.wait(first), map[string]bool{"configmaps": true})
		if later.HasSynced() {
			t.Error("an informer runs that was requested after the start")
		}
		f.Start(second)
		wantSynced(t, f.wait(first), map[string]bool{"configmaps": true, "nodes": true})

		close(first)
		synctest.Wait()
		if !earlier.IsStopped() || later.IsStopped() {
			t.Errorf("stopped: %v and %v, want each with the channel of its start", earlier.IsStopped(), later.IsStopped())
		}
		f.Start(second)
		synctest.Wait()
		if !earlier.IsStopped() {
			t.Error("an informer that has ended was started again")
		}
		close(second)
		f.Shutdown()
		if !later.IsStopped() {
			t.Error("Shutdown returned before an informer ended")
		}
	})
}

func TestParity_WaitForCacheSync_Unsynced(t *testing.T) {
	asClientGo(t, func(t *testing.T, server *apitest.Server, newFactory func(settings) anyFactory) {
		server.Inject(apitest.Fault{Resource: "nodes", Status: 500})
		f := newFactory(settings{})
		synced := f.informer(configMaps)
		f.informer(nodes)
		stop, given := make(chan struct{}), make(chan struct{})
		f.Start(stop)
		<-synced.HasSyncedChecker().Done()
		close(given)
		wantSynced(t, f.wait(given), map[string]bool{"configmaps": true, "nodes": false})
		close(stop)
		f.Shutdown()
	})
}

func TestParity_Shutdown(t *testing.T) {
	asClientGo(t, func(t *testing.T, _ *apitest.Server, newFactory func(settings) anyFactory) {
		f := newFactory(settings{})
		f.informer(configMaps)
		stop := make(chan struct{})
		f.Start(stop)
		f.wait(stop)
		var mu sync.Mutex
		ended := 0
		for range 2 {
			go func() {
				f.Shutdown()
				mu.Lock()
				defer mu.Unlock()
				ended++
			}()
		}
		synctest.Wait()
		later := f.informer(nodes)
		f.Start(stop)
		synctest.Wait()
		if later.HasSynced() {
			t.Error("an informer was started after Shutdown was called")
		}
		mu.Lock()
		if ended != 0 {
			t.Errorf("%d calls of Shutdown returned while an informer runs", ended)
		}
		mu.Unlock()
		wantSynced(t, f.wait(stop), map[string]bool{"configmaps": true})
		close(stop)
		synctest.Wait()
		if mu.Lock(); ended != 2 {
			t.Errorf("%d calls of Shutdown returned, want 2", ended)
		}
		mu.Unlock()
		f.Shutdown()
	})
}

func TestParity_Shutdown_BeforeStart(t *testing.T) {
	asClientGo(t, func(t *testing.T, server *apitest.Server, newFactory func(settings) anyFactory) {
		f := newFactory(settings{})
		f.informer(configMaps)
		f.Shutdown()
		server.ResetRequests()
		f.Start(t.Context().Done())
		synctest.Wait()
		if requests := server.Requests(); len(requests) != 0 {
			t.Errorf("requests after Shutdown: %v", requests)
		}
		wantSynced(t, f.wait(t.Context().Done()), map[string]bool{})
		f.Shutdown()
	})
}

func TestParity_Concurrent(t *testing.T) {
	asClientGo(t, func(t *testing.T, server *apitest.Server, newFactory func(settings) anyFactory) {
		create(t, server, configMap("a"))
		f := newFactory(settings{})
		stop := make(chan struct{})
		var all sync.WaitGroup
		infs := make([]cache.SharedIndexInformer, 8)
		for i := range infs {
			all.Go(func() {
				infs[i] = f.informer(configMaps)
				f.Start(stop)
				f.wait(stop)
			})
		}
		all.Wait()
		for _, inf := range infs {
			if inf.GetIndexer() != infs[0].GetIndexer() || len(inf.GetStore().ListKeys()) != 1 {
				t.Error("there are several informers of one resource")
			}
		}
		var ending sync.WaitGroup
		for range 4 {
			ending.Go(f.Shutdown)
			ending.Go(func() { f.Start(stop) })
		}
		close(stop)
		ending.Wait()
	})
}

// TestParity_WatchList checks, in the server's log, that a factory on a real client
// begins with a watch-list where client-go does.
func TestParity_WatchList(t *testing.T) {
	asClientGo(t, func(t *testing.T, server *apitest.Server, newFactory func(settings) anyFactory) {
		f := newFactory(settings{})
		f.informer(configMaps)
		stop := make(chan struct{})
		f.Start(stop)
		wantSynced(t, f.wait(stop), map[string]bool{"configmaps": true})
		if n := server.Counts().FullLists; n != 0 {
			t.Errorf("%d lists, want a watch-list", n)
		}
		close(stop)
		f.Shutdown()
	})
}

// TestParity_Fakes has the timing of tests that use fakes: objects that are created
// after the list, before the watch, and after it began. On disk, the second may be part
// of the initial list.
func TestParity_Fakes(t *testing.T) {
	for name, newFactory := range map[string]func(kubernetes.Interface) informers.SharedInformerFactory{
		"client-go": func(c kubernetes.Interface) informers.SharedInformerFactory {
			return informers.NewSharedInformerFactory(c, 0)
		},
		"memory":     func(c kubernetes.Interface) informers.SharedInformerFactory { return must(New(c, nil)) },
		"persistent": func(c kubernetes.Interface) informers.SharedInformerFactory { return must(New(c, newStore())) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(configMap("listed"))
				client.PrependWatchReactor("configmaps", func(clienttesting.Action) (bool, watch.Interface, error) {
					return false, nil, client.Tracker().Add(configMap("between"))
				})
				f := newFactory(client)
				events := handle(t, f.Core().V1().ConfigMaps().Informer())
				stop := runFactory(t, f)
				defer stop()
				f.WaitForCacheSync(t.Context().Done())
				synctest.Wait()
				if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("watched"), metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				events.want(t, "initial default/listed", "add default/between", "add default/watched")
			})
		})
	}
}
