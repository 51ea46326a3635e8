package damage

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/warmcache/warmcache/codec"
	"github.com/warmcache/warmcache/indexer"
	"github.com/warmcache/warmcache/store"
)

// spec is a kind of objects that an informer keeps.
type spec struct {
	name  string
	id    store.Identity
	codec *codec.Codec
	// object makes the object of a name with filler bytes of content.
	object func(m metav1.ObjectMeta, filler string) runtime.Object
}

// indexName is the index of every spec, by the values of an annotation.
const indexName = "groups"

func byGroups(obj any) ([]string, error) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	return strings.Fields(accessor.GetAnnotations()[indexName]), nil
}

var specs = []*spec{
	newSpec("pods", store.FormTyped, &corev1.Pod{}, func(m metav1.ObjectMeta, filler string) runtime.Object {
		return &corev1.Pod{ObjectMeta: m, Spec: corev1.PodSpec{NodeName: "node-" + m.ResourceVersion, Hostname: filler}}
	}),
	newSpec("configmaps", store.FormTyped, &corev1.ConfigMap{}, func(m metav1.ObjectMeta, filler string) runtime.Object {
		return &corev1.ConfigMap{ObjectMeta: m, Data: map[string]string{"data": filler}}
	}),
	newSpec("widgets", store.FormUnstructured, &unstructured.Unstructured{}, func(m metav1.ObjectMeta, filler string) runtime.Object {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Widget", "spec": map[string]any{"filler": filler, "size": int64(len(filler))},
		}}
		u.SetNamespace(m.Namespace)
		u.SetName(m.Name)
		u.SetUID(m.UID)
		u.SetResourceVersion(m.ResourceVersion)
		u.SetAnnotations(m.Annotations)
		return u
	}),
}

func newSpec(resource string, form store.Form, example runtime.Object, object func(metav1.ObjectMeta, string) runtime.Object) *spec {
	c, err := codec.New(example)
	if err != nil {
		panic(err)
	}
	return &spec{name: resource, id: store.Identity{Version: "v1", Resource: resource, Form: form}, codec: c, object: object}
}

// make returns the object of a name at a version.
func (s *spec) make(name string, version int, filler string) runtime.Object {
	return s.object(metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID("uid-" + name[:min(len(name), 40)]), ResourceVersion: fmt.Sprint(version),
		Annotations: map[string]string{indexName: fmt.Sprintf("group-%d all", version%7)},
	}, filler)
}

// newIndexer returns an indexer as an informer makes it.
func newIndexer() *indexer.Indexer {
	quiet := klog.New(nil)
	return indexer.New(indexer.Options{
		Indexers:      cache.Indexers{indexName: byGroups},
		IndexVersions: map[string]string{indexName: "1"},
		Logger:        &quiet,
	})
}

// contents are what one collection holds, with hashes in place of records.
type contents struct {
	// Header is the zero Header if there is none.
	Header store.Header
	// Objects are hashes of records by key.
	Objects map[string]uint64
	// Departed are hashes of departed records by key and UID.
	Departed map[string]uint64
}

func hashOf(parts ...[]byte) uint64 {
	h := fnv.New64a()
	for _, p := range parts {
		_, _ = h.Write(p) // never fails
	}
	return h.Sum64()
}

func departedOf(tx store.Tx) (map[string]uint64, error) {
	all := map[string]uint64{}
	err := tx.Departed(func(d store.Departed) bool {
		since := d.Since.Format(time.RFC3339Nano)
		all[d.Key+"\x00"+d.UID] = hashOf([]byte(fmt.Sprint(since, d.Attempts, d.Age)), d.Value)
		return true
	})
	return all, err
}

// objectsOf hashes the objects of an indexer as their records, which are equal
// for equal objects.
func (s *spec) objectsOf(x *indexer.Indexer) (map[string]uint64, error) {
	all := map[string]uint64{}
	for _, key := range x.ListKeys() {
		item, _, err := x.GetByKey(key)
		if err != nil {
			return nil, err
		}
		record, err := s.codec.Encode(item.(runtime.Object))
		if err != nil {
			return nil, err
		}
		all[key] = hashOf(record)
	}
	return all, nil
}
