// Package operations are single reads of an indexer, as Go benchmarks: those of disk
// residency against decoding the same objects, those of memory residency against
// client-go's store.
package operations

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/bench/internal/cluster"
	"github.com/warmcache/warmcache/codec"
	"github.com/warmcache/warmcache/indexer"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
)

const (
	// fingerprint of all files here, which are written and read by one program.
	fingerprint = "bench"
	// batch is how many objects are written at a time.
	batch = 1000
	// nodeIndex has cluster.PodsPerNode objects for each value.
	nodeIndex = "node"
)

func byNode(obj any) ([]string, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("%T is not a Pod", obj)
	}
	return []string{pod.Spec.NodeName}, nil
}

func indexers() cache.Indexers {
	return cache.Indexers{nodeIndex: byNode, cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
}

// pod is number i as a server would have it.
func pod(i int) *corev1.Pod {
	p := cluster.Real.Pod(i)
	p.ResourceVersion = "1"
	return p
}

func key(i int) string { return keyOf(pod(i)) }

func keyOf(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// openIndexer is an indexer over a file.
type openIndexer struct {
	*indexer.Indexer
	db         *bolt.DB
	collection store.Collection
}

// open does what an informer does before it can answer reads from its file.
func open(path string, r indexer.Residency, budget int64) (*openIndexer, error) {
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		return nil, err
	}
	x := &openIndexer{db: db}
	if err := x.attach(r, budget); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return x, nil
}

func (x *openIndexer) attach(r indexer.Residency, budget int64) (err error) {
	pods := store.Identity{Version: "v1", Resource: "pods", Form: store.FormTyped}
	if x.collection, err = x.db.Collection(pods, "bench"); err != nil {
		return err
	}
	records, err := codec.New(&corev1.Pod{})
	if err != nil {
		return err
	}
	x.Indexer = indexer.New(indexer.Options{
		Indexers: indexers(), IndexVersions: map[string]string{nodeIndex: "1"},
		Residency: r, MemoryBudget: budget,
	})
	if _, err := x.Attach(x.collection, records, fingerprint); err != nil {
		return err
	}
	return x.Load(context.Background())
}

func (x *openIndexer) close() error { return errors.Join(x.Detach(), x.db.Close()) }

// write makes a file with this many pods.
func write(dir string, pods int) (path string, err error) {
	path = filepath.Join(dir, fmt.Sprintf("%d.db", pods))
	x, err := open(path, indexer.Disk, 0)
	if err != nil {
		return "", err
	}
	if err := fill(x.Indexer, pods); err != nil {
		return "", errors.Join(err, x.close())
	}
	return path, x.close()
}

func fill(x *indexer.Indexer, pods int) error {
	for first := 0; first < pods; first += batch {
		last := min(first+batch, pods)
		u := indexer.Update{Incomplete: last < pods, Complete: last == pods}
		if u.Complete {
			u.RV = "1"
		}
		for i := first; i < last; i++ {
			p := pod(i)
			u.Changes = append(u.Changes, indexer.Change{Key: keyOf(p), Object: p})
		}
		if _, err := x.Apply(u); err != nil {
			return err
		}
	}
	return x.Flush(context.Background())
}
