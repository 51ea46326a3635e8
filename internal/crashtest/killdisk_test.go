package crashtest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/indexer"
	"github.com/warmcache/warmcache/informer"
)

// TestKill_DiskResidency_NothingMissedAndNothingWrong is the same with informers
// whose objects are in the file only. Now and then a life has them in memory: the
// file is the same.
func TestKill_DiskResidency_NothingMissedAndNothingWrong(t *testing.T) {
	killAgainAndAgain(t, 100, 0.9)
}

// reindex makes the next process write the index of each collection anew, bit by bit
// while it resumes.
func (k *killer) reindex() {
	k.life.IndexVersion = map[string]string{"1": "2", "2": "1"}[k.life.IndexVersion]
	k.life.Flush, k.life.SlowIndex, k.life.ListBelow = time.Millisecond, true, -1
}

// checkReads returns an error unless all ways to read an informer in disk residency
// agree. Nothing must change meanwhile.
func checkReads(inf cache.SharedIndexInformer) error {
	if status, _ := informer.StatusOf(inf); status.Residency != informer.Disk || status.ReadErr != nil || status.ReadErrors > 0 {
		return fmt.Errorf("the status is %+v, want objects on disk, and no failed read", status)
	}
	x := inf.GetIndexer()
	listed := map[string]version{}
	for _, item := range x.List() {
		v := versionOfAny(item)
		listed[v.key] = v
	}
	var problems []error
	disagree := func(way string, got map[string]version) {
		for _, problem := range difference(listed, got) {
			problems = append(problems, fmt.Errorf("unlike a list, %s %s", way, problem))
		}
	}
	iterated, err := iterateAll(x, indexer.Query{})
	disagree("an iteration", iterated)
	gotten, getErr := getAll(x, x.ListKeys())
	disagree("a Get of each key", gotten)
	byNamespace := map[string]version{}
	for _, namespace := range x.ListIndexFuncValues(cache.NamespaceIndex) {
		items, byErr := x.ByIndex(cache.NamespaceIndex, namespace)
		of, iterateErr := iterateAll(x, indexer.Query{Namespace: namespace})
		err = errors.Join(err, byErr, iterateErr)
		if len(items) != len(of) {
			problems = append(problems, fmt.Errorf("namespace %s: %d objects by index, %d by an iteration", namespace, len(items), len(of)))
		}
		maps.Copy(byNamespace, of)
	}
	disagree("all namespaces", byNamespace)
	return errors.Join(err, getErr, errors.Join(problems...), checkIndex(x))
}

// checkIndex compares keys and objects of each value of the index.
func checkIndex(x cache.Indexer) error {
	for _, value := range x.ListIndexFuncValues(indexName) {
		keys, err := x.IndexKeys(indexName, value)
		if err != nil {
			return err
		}
		of, err := iterateAll(x, indexer.Query{Index: indexName, Value: value})
		if err != nil {
			return err
		}
		slices.Sort(keys)
		if got := slices.Sorted(maps.Keys(of)); !slices.Equal(keys, got) {
			return fmt.Errorf("value %q: the keys are %q, an iteration has %q", value, keys, got)
		}
	}
	return nil
}

// iterateAll returns what an iteration yields, which is in the order of keys.
func iterateAll(x cache.Indexer, q indexer.Query) (map[string]version, error) {
	found, last := map[string]version{}, ""
	for obj, err := range indexer.Iterate[object](x, q) {
		if err != nil {
			return nil, err
		}
		v := versionOf(obj)
		if v.key <= last {
			return nil, fmt.Errorf("%s comes after %s", v.key, last)
		}
		found[v.key], last = v, v.key
	}
	return found, nil
}

func getAll(x cache.Indexer, keys []string) (map[string]version, error) {
	found := map[string]version{}
	for _, key := range keys {
		item, exists, err := x.GetByKey(key)
		if err != nil {
			return nil, err
		}
		if exists {
			found[key] = versionOfAny(item)
		}
	}
	return found, nil
}
