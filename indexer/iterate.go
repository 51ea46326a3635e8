package indexer

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/codec"
	"github.com/warmcache/warmcache/store"
)

// Query selects objects. The zero value selects all.
type Query struct {
	// Namespace limits the result to one namespace.
	Namespace string
	// Index, if not empty, limits it to the objects that have Value in this index.
	Index, Value string
	// Selector, if not nil, limits it by labels. In disk residency, labels are read
	// without decoding the object.
	Selector labels.Selector
}

// Objects yields what q selects, in the order of their keys, and no more than a few
// hundred records are in memory at a time. They are shared with other readers and must
// not be modified.
//
// The sequence is not one snapshot: an object that is there from the beginning to the
// end is yielded once, and one that comes, changes or goes meanwhile may or may not be,
// in a state that it has had meanwhile. No lock and no transaction is held while the
// loop body runs, which may take its time, change the indexer, or leave.
//
// An error ends the sequence; a query with a Value and no Index is one. It wraps ErrUnreadable if the objects cannot be read: the
// sequence never ends early without one.
func (x *Indexer) Objects(q Query) iter.Seq2[runtime.Object, error] {
	return func(yield func(runtime.Object, error) bool) {
		if q.Index == "" && q.Value != "" {
			yield(nil, fmt.Errorf("the query has the value %q and no index", q.Value))
			return
		}
		if d := x.disk.Load(); d != nil {
			d.objects(q, yield)
		} else {
			x.objectsInMemory(q, yield)
		}
	}
}

// Iterate is Objects for a store of an informer of this library, as GetStore and
// GetIndexer return it, and for objects of one Go type. The error wraps ErrForeignStore
// for any other store; objects of another type are an error as well.
func Iterate[T any](s cache.Store, q Query) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		x, ok := s.(*Indexer)
		if !ok {
			yield(none, fmt.Errorf("%w: %T", ErrForeignStore, s))
			return
		}
		for obj, err := range x.Objects(q) {
			typed, ok := any(obj).(T)
			if err == nil && !ok {
				err = fmt.Errorf("an object of type %T is not a %T", obj, none)
			}
			if !yield(typed, err) || err != nil {
				return
			}
		}
	}
}

func (d *disk) objects(q Query, yield func(runtime.Object, error) bool) {
	visit, err := d.visitorOf(q)
	if err != nil {
		yield(nil, err)
		return
	}
	for after := ""; ; {
		chunk, more, err := d.scan(after, skipUnlabelled(q.Selector), visit)
		if err != nil {
			yield(nil, err)
			return
		}
		for n := range chunk.Len() {
			obj, err := chunk.Object(n)
			if !yield(obj, err) || err != nil {
				return
			}
		}
		if !more {
			return
		}
		after = chunk.last
	}
}

// visitorOf returns what finds the objects of q, but for the selector.
func (d *disk) visitorOf(q Query) (visitor, error) {
	if q.Index == "" {
		return visitNamespace(q.Namespace), nil
	}
	i, err := d.readyIndex(q.Index)
	switch {
	case err != nil:
		return nil, err
	case i.stored:
		return visitIndex(i.name, q.Value, q.Namespace), nil
	case q.Namespace != "" && q.Namespace != q.Value:
		return func(store.Tx, string, func(key, value []byte) bool) error { return nil }, nil
	case q.Value == "":
		return visitClusterScoped, nil
	}
	return visitNamespace(q.Value), nil
}

// visitNamespace finds the objects of one namespace, or all.
func visitNamespace(namespace string) visitor {
	if namespace == "" {
		return visitAll
	}
	prefix := namespace + "/"
	return func(tx store.Tx, after string, take func(key, value []byte) bool) error {
		return tx.Scan(max(prefix, following(after)), func(key, value []byte) bool {
			return bytes.HasPrefix(key, []byte(prefix)) && take(key, value)
		})
	}
}

// visitClusterScoped finds the objects without a namespace.
func visitClusterScoped(tx store.Tx, after string, take func(key, value []byte) bool) error {
	return skipScan(tx, following(after), func(key, value []byte) (next string, more bool) {
		if namespace, namespaced := namespaceOf(key); namespaced {
			return afterNamespace(namespace), true
		}
		return "", take(key, value)
	})
}

// visitIndex finds the objects with a value of a stored index.
func visitIndex(name, value, namespace string) visitor {
	prefix := ""
	if namespace != "" {
		prefix = namespace + "/"
	}
	return func(tx store.Tx, after string, take func(key, value []byte) bool) error {
		// Entries of objects that are gone count for nothing: see takeKeys.
		for more := true; more; {
			var keys []string
			err := tx.IndexKeys(name, value, max(prefix, following(after)), func(key []byte) bool {
				if !strings.HasPrefix(string(key), prefix) {
					return false
				}
				keys = append(keys, string(key))
				return len(keys) < lookRecords
			})
			if err != nil {
				return err
			}
			wanted := true
			err = takeKeys(tx, keys, func(key, value []byte) bool {
				wanted = take(key, value)
				return wanted
			})
			if err != nil {
				return err
			}
			if more = wanted && len(keys) == lookRecords; more {
				after = keys[len(keys)-1]
			}
		}
		return nil
	}
}

// skipUnlabelled returns what leaves out records whose labels do not match.
func skipUnlabelled(selector labels.Selector) func(value []byte) (bool, error) {
	if selector == nil || selector.Empty() {
		return nil
	}
	return func(value []byte) (bool, error) {
		envelope, err := codec.ReadEnvelope(value)
		return !selector.Matches(labels.Set(envelope.Labels)), err
	}
}

// objectsInMemory is Objects in memory residency.
func (x *Indexer) objectsInMemory(q Query, yield func(runtime.Object, error) bool) {
	keys := x.ListKeys()
	if q.Index != "" {
		var err error
		if keys, err = x.IndexKeys(q.Index, q.Value); err != nil {
			yield(nil, err)
			return
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		if q.Namespace != "" && !strings.HasPrefix(key, q.Namespace+"/") {
			continue
		}
		item, exists, _ := x.GetByKey(key)
		obj, ok := item.(runtime.Object)
		if !exists || ok && !hasLabels(obj, q.Selector) || q.Index != "" && !x.hasValue(q, item) {
			continue // it has changed since its key was listed, or never matched
		}
		if !ok {
			yield(nil, fmt.Errorf("object %s is a %T, which is not a runtime.Object", key, item))
			return
		}
		if !yield(obj, nil) {
			return
		}
	}
}

// hasValue says whether obj has the value of the index that q asks for.
func (x *Indexer) hasValue(q Query, obj any) bool {
	values, err := x.indexNamed(q.Index).call(obj)
	return err == nil && slices.Contains(values, q.Value)
}

func hasLabels(obj runtime.Object, selector labels.Selector) bool {
	if selector == nil || selector.Empty() {
		return true
	}
	accessor, err := meta.Accessor(obj)
	return err == nil && selector.Matches(labels.Set(accessor.GetLabels()))
}
