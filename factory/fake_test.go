package factory

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
)

// TestFactory_FakeClientset_ListsEachTime starts twice on one file with fakes of
// different sizes, as tests of users do. A watch that was resumed would make the
// second one panic.
func TestFactory_FakeClientset_ListsEachTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	for _, pods := range []int{1, 500} {
		var objects []runtime.Object
		for i := range pods {
			objects = append(objects, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprint("pod-", i)}})
		}
		db := bolttest.Open(t, path, bolt.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		f := must(New(fake.NewClientset(objects...), db, WithListBelow(-1)))
		inf := f.Core().V1().Pods().Informer()
		f.StartWithContext(ctx)
		if err := f.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
			t.Fatal(err)
		}
		if status, _ := informer.StatusOf(inf); status.Objects != pods || status.Lists != 1 {
			t.Errorf("%d objects, want %d: %+v", status.Objects, pods, status)
		}
		cancel()
		f.Shutdown()
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
