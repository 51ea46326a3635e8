package crashtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
	"github.com/warmcache/warmcache/store/storetest"
)

// TestGrowth_ReadersNeitherBlockNorAreBlocked lets a file grow by tens of
// megabytes, which makes bbolt map it anew unless it was given room, while
//
//   - the handler calls listers for every event,
//   - goroutines call listers all the time,
//   - goroutines iterate over a collection of the same file and call listers from
//     within, and
//   - one View is open from before the first byte to after the last.
//
// The last commit must arrive while that View is still open: a reader that blocks
// the writer, or a writer that blocks readers, never gets there.
func TestGrowth_ReadersNeitherBlockNorAreBlocked(t *testing.T) {
	objects := 480 // 30 MB
	if testing.Short() {
		objects = 240
	}
	w := newWorld(t)
	path := filepath.Join(t.TempDir(), "cache.db")
	db := bolttest.Open(t, path, bolt.Options{FlushInterval: time.Millisecond})
	side := sideCollection(t, db)

	var lister corelisters.ConfigMapLister
	handler := newRecorder()
	handler.work = func(obj any) {
		v := versionOfAny(obj)
		namespace, name, _ := cache.SplitMetaNamespaceKey(v.key)
		if got, err := lister.ConfigMaps(namespace).Get(name); err != nil || got.ResourceVersion < strconv.FormatUint(v.rv, 10) {
			t.Errorf("handler was told of %q and reads %v, %v", v, got, err)
		}
		readAll(t, lister)
	}
	c := startController(t, w, db, handler, func(inf cache.SharedIndexInformer) {
		lister = corelisters.NewConfigMapLister(inf.GetIndexer())
	})

	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				readAll(t, lister)
				if _, err := c.informer.GetIndexer().ByIndex(cache.NamespaceIndex, "large"); err != nil {
					t.Error(err)
				}
			}
		})
		readers.Go(func() {
			for ctx.Err() == nil {
				iterate(t, side, func() { readAll(t, lister) })
			}
		})
	}
	release := make(chan struct{})
	inside := make(chan struct{})
	readers.Go(func() {
		err := side.View(func(tx store.Tx) error {
			if _, err := tx.Get("ns/0"); err != nil {
				return err
			}
			close(inside)
			<-release
			_, err := tx.Get("ns/1")
			return err
		})
		if err != nil {
			t.Errorf("the View that was open all the time: %v", err)
		}
	})
	defer close(release)
	<-inside

	before := fileSize(t, path)
	var last metav1.Object
	for i := range objects {
		obj := large(i)
		if err := w.server.Create(obj); err != nil {
			t.Fatal(err)
		}
		last = obj
	}
	rv, err := strconv.ParseUint(last.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	persisted(t, c, rv)
	handler.await(t, "all objects", func() bool { return len(handler.mu.state) == objects })
	if grown, want := fileSize(t, path)-before, int64(objects)*64<<10; grown < want {
		t.Errorf("the file grew by %d bytes, want at least %d", grown, want)
	}
}

// sideCollection is a collection of the same file with some objects.
func sideCollection(t *testing.T, db *bolt.DB) store.Collection {
	t.Helper()
	side, err := db.Collection(storetest.Pods(), "test")
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	for i := range 20 {
		b.Ops = append(b.Ops, storetest.Put("ns/"+strconv.Itoa(i), strconv.Itoa(i)))
	}
	if err := side.Apply(b); err != nil {
		t.Fatal(err)
	}
	if err := side.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return side
}

// iterate goes through a collection in one View and calls fn for each object.
func iterate(t *testing.T, c store.Collection, fn func()) {
	err := c.View(func(tx store.Tx) error {
		return tx.Scan("", func(_, _ []byte) bool {
			fn()
			return true
		})
	})
	if err != nil {
		t.Errorf("iterating: %v", err)
	}
}

func readAll(t *testing.T, lister corelisters.ConfigMapLister) {
	if _, err := lister.List(labels.Everything()); err != nil {
		t.Error(err)
	}
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// large is an object of 64 KiB.
func large(i int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "large", Name: fmt.Sprint("large-", i),
			Labels:      map[string]string{tierLabel: "gold"},
			Annotations: map[string]string{valueAnnotation: fmt.Sprint(i)},
		},
		Data: map[string]string{"k": strings.Repeat("x", 64<<10)},
	}
}
