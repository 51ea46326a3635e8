package indexer

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/warmcache/warmcache/codec"
	"github.com/warmcache/warmcache/store"
)

// Refs returns which object is served under each of the keys, in which version, or the
// zero reference if none is. Before Load it is what is stored. Nothing is decoded but the
// envelopes of records.
func (x *Indexer) Refs(keys []string) ([]store.ObjectRef, error) {
	if d := x.disk.Load(); d != nil {
		s := d.snapshot()
		return s.refs(keys)
	}
	x.write.Lock()
	collection := x.write.collection
	stored := collection != nil && !x.write.loaded
	foreign := stored && x.write.foreignLocked()
	x.write.Unlock()
	switch {
	case foreign:
		return make([]store.ObjectRef, len(keys)), nil
	case stored:
		return refsIn(collection.View, keys)
	}
	refs := make([]store.ObjectRef, len(keys))
	for i, key := range keys {
		if obj, exists := x.objects.Get(key); exists {
			refs[i] = refOf(key, obj)
		}
	}
	return refs, nil
}

func refOf(key string, obj any) store.ObjectRef {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return store.ObjectRef{}
	}
	return store.ObjectRef{Key: key, UID: string(accessor.GetUID()), RV: accessor.GetResourceVersion()}
}

// refs is Refs in disk residency.
func (s *snapshot) refs(keys []string) ([]store.ObjectRef, error) {
	refs, err := refsIn(s.view, keys)
	if err != nil {
		return nil, s.failed(err)
	}
	for i, key := range keys {
		if s.foreign.hides(key, s.write) {
			refs[i] = store.ObjectRef{}
		}
	}
	return refs, nil
}

// refsIn reads the envelopes of records.
func refsIn(view func(func(store.Tx) error) error, keys []string) ([]store.ObjectRef, error) {
	refs := make([]store.ObjectRef, len(keys))
	err := view(func(tx store.Tx) error {
		for i, key := range keys {
			value, err := tx.Get(key)
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			envelope, err := codec.ReadEnvelope(value)
			if err != nil {
				return err
			}
			refs[i] = store.ObjectRef{Key: key, UID: string(envelope.UID), RV: envelope.ResourceVersion}
		}
		return nil
	})
	return refs, err
}

// Holds reports whether each of the keys has, served, the object of the given UID and
// version. The arguments are parallel.
func (k *Known) Holds(keys, uids, rvs []string) (bool, error) {
	refs, err := k.x.Refs(keys)
	if err != nil {
		return false, err
	}
	want := make([]store.ObjectRef, len(keys))
	for i, key := range keys {
		want[i] = store.ObjectRef{Key: key, UID: uids[i], RV: rvs[i]}
	}
	return slices.Equal(refs, want), nil
}
