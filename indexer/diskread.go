package indexer

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/warmcache/warmcache/store"
)

// The reads of cache.Indexer in disk residency.

func (d *disk) list() []any {
	return patiently(d, "List", func() ([]any, error) {
		return d.gather(false, func(tx store.Tx, g *gatherer) error { return tx.Scan("", g.take) })
	})
}

func (d *disk) listKeys() []string {
	return patiently(d, "ListKeys", func() ([]string, error) {
		s := d.snapshot()
		keys := []string{}
		err := s.view(func(tx store.Tx) error {
			return tx.Scan("", func(key, _ []byte) bool {
				if k := string(key); !s.foreign.hides(k, s.write) {
					keys = append(keys, k)
				}
				return true
			})
		})
		return keys, err
	})
}

// index implements cache.Indexer.Index.
func (d *disk) index(name string, obj any) ([]any, error) {
	i, err := d.readyIndex(name)
	if err != nil {
		return nil, err
	}
	values, err := i.call(obj)
	if err != nil {
		return nil, err
	}
	return d.withValues(i, values)
}

func (d *disk) byIndex(name, value string) ([]any, error) {
	i, err := d.readyIndex(name)
	if err != nil {
		return nil, err
	}
	return d.withValues(i, []string{value})
}

// withValues returns the objects that have any of the values, each once.
func (d *disk) withValues(i *index, values []string) ([]any, error) {
	return d.gather(true, func(tx store.Tx, g *gatherer) error {
		if !i.stored {
			for _, namespace := range distinct(values) {
				if err := scanNamespace(tx, namespace, g.take); err != nil {
					return err
				}
			}
			return nil
		}
		keys, err := keysOf(tx, i.name, values)
		if err != nil {
			return err
		}
		return takeKeys(tx, keys, g.take)
	})
}

// takeKeys passes the objects of keys that an index has to take. One that is not there
// has been left in the index by a function that failed when its object went.
func takeKeys(tx store.Tx, keys []string, take func(key, value []byte) bool) error {
	for _, key := range keys {
		value, err := tx.Get(key)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if !take([]byte(key), value) {
			return nil
		}
	}
	return nil
}

// keysOf returns the keys that have any of the values in a stored index, each once.
func keysOf(tx store.Tx, name string, values []string) ([]string, error) {
	var keys []string
	for _, value := range distinct(values) {
		err := tx.IndexKeys(name, value, "", func(key []byte) bool {
			keys = append(keys, string(key))
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	if len(values) > 1 {
		keys = distinct(keys)
	}
	return keys, nil
}

// distinct returns the sorted strings of s, each once.
func distinct(s []string) []string {
	if len(s) < 2 {
		return s
	}
	s = slices.Sorted(slices.Values(s))
	return slices.Compact(s)
}

func (d *disk) indexKeys(name, value string) ([]string, error) {
	i, err := d.readyIndex(name)
	if err != nil {
		return nil, err
	}
	s := d.snapshot()
	keys := []string{}
	err = s.view(func(tx store.Tx) error {
		if i.stored {
			found, err := keysOf(tx, name, []string{value})
			keys = append(keys, found...)
			return err
		}
		return scanNamespace(tx, value, func(key, _ []byte) bool {
			if k := string(key); !s.foreign.hides(k, s.write) {
				keys = append(keys, k)
			}
			return true
		})
	})
	if err != nil {
		return nil, err
	}
	return keys, nil
}

func (d *disk) indexValues(name string) []string {
	return patiently(d, "ListIndexFuncValues", func() ([]string, error) {
		values := []string{}
		i, err := d.readyIndex(name)
		if err != nil {
			// As in client-go, an index that does not exist has no values.
			return values, nil //nolint:nilerr // see above
		}
		s := d.snapshot()
		err = s.view(func(tx store.Tx) error {
			if !i.stored {
				namespaces, err := namespacesIn(tx, s)
				values = append(values, namespaces...)
				return err
			}
			return tx.IndexValues(name, "", func(value []byte) bool {
				values = append(values, string(value))
				return true
			})
		})
		return values, err
	})
}

// readyIndex returns an index that may be asked. It waits as long as the index is
// being written.
func (d *disk) readyIndex(name string) (*index, error) {
	i := d.indices(name)
	if i == nil {
		return nil, fmt.Errorf("Index with name %s does not exist", name)
	}
	if i.ready.Load() || d.health.await(nil, i.ready.Load) {
		return i, nil
	}
	return nil, fmt.Errorf("%w: index %q was not written before the informer stopped", ErrUnreadable, name)
}

// scanNamespace calls take for the objects of one namespace: those whose keys begin
// with it. In the namespace "" are those that have none.
func scanNamespace(tx store.Tx, namespace string, take func(key, value []byte) bool) error {
	if namespace != "" {
		prefix := []byte(namespace + "/")
		return tx.Scan(string(prefix), func(key, value []byte) bool {
			return bytes.HasPrefix(key, prefix) && take(key, value)
		})
	}
	return visitClusterScoped(tx, "", take)
}

// namespacesIn returns the namespaces of all objects, ordered.
func namespacesIn(tx store.Tx, s snapshot) (namespaces []string, err error) {
	none := false
	err = skipScan(tx, "", func(key, _ []byte) (after string, more bool) {
		if s.foreign.hides(string(key), s.write) {
			return "", true
		}
		namespace, namespaced := namespaceOf(key)
		if !namespaced {
			none = true
			return "", true
		}
		namespaces = append(namespaces, namespace)
		return afterNamespace(namespace), true
	})
	if none {
		namespaces = append([]string{""}, namespaces...)
	}
	return namespaces, err
}

// skipScan calls visit for the objects from a key on, in the order of their keys. It
// goes on at after, unless that is empty.
func skipScan(tx store.Tx, from string, visit func(key, value []byte) (after string, more bool)) error {
	for again := true; again; {
		again = false
		err := tx.Scan(from, func(key, value []byte) bool {
			after, more := visit(key, value)
			if more && after != "" {
				from, again = after, true
			}
			return more && after == ""
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func namespaceOf(key []byte) (namespace string, namespaced bool) {
	namespace, _, namespaced = strings.Cut(string(key), "/")
	return namespace, namespaced
}

// afterNamespace returns what comes after all keys of a namespace: "0" is the byte
// after "/".
func afterNamespace(namespace string) string { return namespace + "0" }
