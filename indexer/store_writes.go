package indexer

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// The writing half of cache.Indexer. An informer uses Apply; these serve code
// that treats the indexer as a plain cache.Store, mostly tests that fill one.
// Except for Replace and Bookmark they do not move the persisted version: an
// object alone does not tell that everything before it has been applied.

// Add implements cache.Store.
func (x *Indexer) Add(obj any) error { return x.Update(obj) }

// Update implements cache.Store.
func (x *Indexer) Update(obj any) error {
	return x.single(cache.Transaction{Type: cache.TransactionTypeUpdate, Object: obj})
}

// Delete implements cache.Store. It accepts a cache.DeletedFinalStateUnknown.
func (x *Indexer) Delete(obj any) error {
	return x.single(cache.Transaction{Type: cache.TransactionTypeDelete, Object: obj})
}

func (x *Indexer) single(t cache.Transaction) error {
	change, err := newChange(t)
	if err != nil {
		return err
	}
	return x.applyObserved(Update{Changes: []Change{change}}, t.Object)
}

// applyObserved applies u and moves LastStoreSyncResourceVersion to that of the
// last object, if it has one, as client-go's store does.
func (x *Indexer) applyObserved(u Update, last any) error {
	x.write.Lock()
	defer x.write.Unlock()
	if _, err := x.updateLocked(u); err != nil {
		return err
	}
	if accessor, err := meta.Accessor(last); err == nil {
		x.setVersion(accessor.GetResourceVersion())
	}
	return nil
}

// Transaction implements cache.TransactionStore. What has no key, or no type that
// client-go knows, is reported and left out.
func (x *Indexer) Transaction(txns ...cache.Transaction) *cache.TransactionError {
	var changes []Change
	successful := []int{} // as in client-go, not nil
	var errs []error
	var last any
	for i, t := range txns {
		change, err := newChange(t)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		changes, successful, last = append(changes, change), append(successful, i), t.Object
	}
	if len(changes) > 0 {
		if err := x.applyObserved(Update{Changes: changes}, last); err != nil {
			successful, errs = []int{}, append(errs, err)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return &cache.TransactionError{SuccessfulIndices: successful, TotalTransactions: len(txns), Errors: errs}
}

func newChange(t cache.Transaction) (Change, error) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(t.Object)
	if err != nil {
		return Change{}, cache.KeyError{Obj: t.Object, Err: err}
	}
	switch t.Type {
	case cache.TransactionTypeAdd, cache.TransactionTypeUpdate:
		return Change{Key: key, Object: t.Object}, nil
	case cache.TransactionTypeDelete:
		return Change{Key: key}, nil
	}
	return Change{}, fmt.Errorf("%w: %q, of %s", ErrTransactionType, t.Type, key)
}

// Replace implements cache.Store.
func (x *Indexer) Replace(list []any, resourceVersion string) error {
	listed := make(map[string]struct{}, len(list))
	update := Update{RV: resourceVersion, Complete: true}
	for _, obj := range list {
		change, err := newChange(cache.Transaction{Type: cache.TransactionTypeUpdate, Object: obj})
		if err != nil {
			return err
		}
		listed[change.Key] = struct{}{}
		update.Changes = append(update.Changes, change)
	}
	x.write.Lock()
	defer x.write.Unlock()
	known, err := x.knownKeysLocked()
	if err != nil {
		return err
	}
	for _, key := range known {
		if _, ok := listed[key]; !ok {
			update.Changes = append(update.Changes, Change{Key: key})
		}
	}
	_, err = x.updateLocked(update)
	return err
}

// Bookmark implements cache.Store. Before Load it does nothing.
func (x *Indexer) Bookmark(rv string) {
	x.write.Lock()
	defer x.write.Unlock()
	if _, err := x.updateLocked(Update{RV: rv}); err == nil {
		x.setVersion(rv)
	}
}
