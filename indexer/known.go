package indexer

import (
	"bytes"
	"errors"
	"maps"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/warmcache/warmcache/store"
)

// Known returns the view of the indexer that a list is reconciled against. Unlike
// the indexer itself it includes objects that are stored but not served.
func (x *Indexer) Known() *Known { return &Known{x} }

// Known implements fifo.KnownObjects.
type Known struct{ x *Indexer }

// ListKeys returns the keys of all objects, served or not.
func (k *Known) ListKeys() []string {
	k.x.write.Lock()
	unserved := slices.Collect(maps.Keys(k.x.write.unread))
	k.x.write.Unlock()
	return append(k.x.objects.ListKeys(), unserved...)
}

// GetByKey returns the served object, or nil and true for one that is not
// served.
func (k *Known) GetByKey(key string) (item any, exists bool, err error) {
	if item, exists = k.x.objects.Get(key); exists {
		return item, true, nil
	}
	k.x.write.Lock()
	defer k.x.write.Unlock()
	_, exists = k.x.write.unread[key]
	return nil, exists, nil
}

// Unchanged reports whether obj equals what is recorded under key, byte for byte
// once encoded. Comparing versions alone would miss what changes an object
// without touching it: a new default in its CRD, or a restored server that has
// reached the same version by another way.
func (k *Known) Unchanged(key string, obj any) (bool, error) {
	old, exists := k.x.objects.Get(key)
	if !exists || versionOf(old) != versionOf(obj) {
		return false, nil
	}
	k.x.write.Lock()
	collection, suspended := k.x.write.collection, k.x.write.suspended
	k.x.write.Unlock()
	if collection == nil || suspended != nil {
		return apiequality.Semantic.DeepEqual(old, obj), nil
	}
	record, err := k.x.encode(obj)
	if err != nil {
		// Applying it will find out the same, and deal with it.
		return false, nil //nolint:nilerr // see above
	}
	same := false
	err = collection.View(func(tx store.Tx) error {
		stored, err := tx.Get(key)
		same = err == nil && bytes.Equal(stored, record)
		return err
	})
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrClosed) {
		return false, nil
	}
	return same, err
}

// versionOf returns the resourceVersion of an object, or "" if it has none.
func versionOf(obj any) string {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return accessor.GetResourceVersion()
}
