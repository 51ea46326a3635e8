package factory_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/warmcache/warmcache/factory"
	"github.com/warmcache/warmcache/store"
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
