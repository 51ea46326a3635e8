package factory_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/warmcache/warmcache/factory"
	"github.com/warmcache/warmcache/indexer"
	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
)

func ExampleNew() {
	// In a controller these come from kubernetes.NewForConfig and bolt.Open.
	client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop"}})
	var db store.Store // nil keeps everything in memory

	f, err := factory.New(client, db, factory.WithNamespace("web"), factory.WithResync(10*time.Hour))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Shutdown()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	pods := f.Core().V1().Pods().Lister()
	f.StartWithContext(ctx)
	if err := f.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		fmt.Println(err)
		return
	}
	pod, err := pods.Pods("web").Get("shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(pod.Name)
	// Output: shop
}

// Pods stay in the file, with a cache of at most 64 MiB in front. All other types are in
// memory.
func ExampleWithResidencyFor() {
	client := fake.NewClientset(
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop", Labels: map[string]string{"app": "shop"}}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "db"}},
	)
	dir, err := os.MkdirTemp("", "warmcache")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := bolt.Open(filepath.Join(dir, "cache.db"), bolt.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close() // when nobody reads any more

	f, err := factory.New(client, db, factory.WithResidencyFor(informer.Disk, 64<<20, &corev1.Pod{}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Shutdown()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	pods := f.Core().V1().Pods().Informer()
	f.StartWithContext(ctx)
	if err := f.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		fmt.Println(err)
		return
	}
	// A lister would have all pods in memory to find one.
	shops := indexer.Query{Selector: labels.SelectorFromSet(labels.Set{"app": "shop"})}
	for pod, err := range indexer.Iterate[*corev1.Pod](pods.GetStore(), shops) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(pod.Name)
	}
	// Output: shop
}

func ExampleNewDynamic() {
	shop := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Shop",
		"metadata": map[string]any{"namespace": "web", "name": "books"},
	}}
	shops := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "shops"}
	// In a controller these come from dynamic.NewForConfig and bolt.Open.
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{shops: "ShopList"}, shop)
	var db store.Store

	f, err := factory.NewDynamic(client, db)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Shutdown()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	lister := f.ForResource(shops).Lister()
	f.StartWithContext(ctx)
	if err := f.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := lister.ByNamespace("web").Get("books"); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("found")
	// Output: found
}

// A program keeps the factory that it has, and persists what takes long to list.
func ExampleAdopt() {
	client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop"}})
	var db store.Store // from bolt.Open

	f := informers.NewSharedInformerFactory(client, 10*time.Hour)
	defer f.Shutdown()
	// Before anything else asks f for pods.
	if err := factory.Adopt(f, db, []runtime.Object{&corev1.Pod{}}); err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	pods := f.Core().V1().Pods().Lister()
	f.Start(ctx.Done())
	f.WaitForCacheSync(ctx.Done())
	pod, err := pods.Pods("web").Get("shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(pod.Name)
	// Output: shop
}
