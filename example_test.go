package warmcache_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/warmcache/warmcache/factory"
	"github.com/warmcache/warmcache/store/bolt"
)

// The usage that the README shows: one more line to open the file, and another
// constructor for the factory.
func Example() {
	run := func(ctx context.Context, client kubernetes.Interface, path string) error {
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			return err
		}
		defer db.Close()

		f, err := factory.New(client, db) // an informers.SharedInformerFactory
		if err != nil {
			return err
		}
		defer f.Shutdown()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // then Shutdown, then Close
		pods := f.Core().V1().Pods().Lister()
		f.StartWithContext(ctx)
		if err := f.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
			return err
		}
		all, err := pods.List(labels.Everything())
		fmt.Println(len(all), "pods")
		return err
	}

	dir, err := os.MkdirTemp("", "warmcache-example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop"}})
	if err := run(context.Background(), client, filepath.Join(dir, "cache.db")); err != nil {
		fmt.Println(err)
	}
	// Output: 1 pods
}
