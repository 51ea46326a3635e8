package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// writers is the number of writes under way at once.
	writers = 16
	// maxChanges keeps the changes within what every server remembers for
	// watches, however many objects there are.
	maxChanges = 1000
)

// create makes the first n objects.
func (c *cluster) create(ctx context.Context, n int, p *progress) error {
	return inParallel(ctx, numbers(0, n), p, func(i int) error { return c.createOne(ctx, i) })
}

// createOne makes object number i.
func (c *cluster) createOne(ctx context.Context, i int) error {
	if err := c.store(ctx, c.kind.make(c.namespace, i)); err != nil {
		return fmt.Errorf("creating object %d: %w", i, err)
	}
	return nil
}

// plan says which of n objects are changed while no informer runs: a hundredth
// of them is deleted, another hundredth updated, as many are added, and one of
// the deleted ones comes back as another object of the same name.
type plan struct{ remove, update, add, recreate []int }

// planFor never touches an object twice, and deletes even the only one.
func planFor(n int) plan {
	some := min(max(n/100, 1), maxChanges)
	p := plan{
		remove: numbers(0, min(some, n)),
		update: numbers(min(some, n), min(2*some, n)),
		add:    numbers(n, n+some),
	}
	if n > 1 {
		p.recreate = p.remove[:1]
	}
	return p
}

// numbers returns those from first up to but not including end.
func numbers(first, end int) []int {
	ns := make([]int, 0, end-first)
	for i := first; i < end; i++ {
		ns = append(ns, i)
	}
	return ns
}

// change carries out the plan and returns the objects that were deleted. before
// is what the server had.
func (c *cluster) change(ctx context.Context, changes plan, before state, p *progress) ([]instance, error) {
	deleted := make([]instance, 0, len(changes.remove))
	for _, i := range changes.remove {
		key := c.namespace + "/" + objectName(i)
		deleted = append(deleted, instance{Key: key, UID: before[key].UID})
	}
	// Metadata can be patched whatever the kind.
	patch := []byte(`{"metadata":{"annotations":{"example.com/changed":"while down"}}}`)
	err := inParallel(ctx, changes.remove, p, func(i int) error {
		return c.objects.Delete(ctx, objectName(i), metav1.DeleteOptions{})
	})
	if err == nil {
		err = inParallel(ctx, changes.update, p, func(i int) error {
			_, err := c.objects.Patch(ctx, objectName(i), types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		})
	}
	if err == nil {
		err = inParallel(ctx, slices.Concat(changes.add, changes.recreate), p, func(i int) error { return c.createOne(ctx, i) })
	}
	if err == nil {
		// In a cluster the newest write is rarely one to the objects of a given
		// informer. That makes a difference: it cannot prove that it is up to
		// date by an event and has to wait for a bookmark.
		_, err = c.client.CoreV1().Namespaces().Patch(ctx, c.namespace, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("changing objects: %w", err)
	}
	return deleted, nil
}

// inParallel calls do for all numbers until one call fails or ctx ends, and
// returns the first error.
func inParallel(ctx context.Context, ns []int, p *progress, do func(int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, done atomic.Int64
	var wg sync.WaitGroup
	for range min(writers, len(ns)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(ns)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				if err := do(ns[i]); err != nil {
					cancel(err)
					return
				}
				p.detail("%d of %d objects written", done.Add(1), len(ns))
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
