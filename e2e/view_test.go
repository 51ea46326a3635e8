package e2e

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// view is what a handler has been told: the state it would act on.
type view struct {
	mu struct {
		sync.Mutex
		// versions has the resourceVersion of each present object by its key.
		versions map[string]string
		counts   counts
		// changed is closed and replaced at each event.
		changed chan struct{}
		// problems are events that contradict what came before.
		problems []string
	}
}

// counts are the events delivered.
type counts struct {
	Adds, InitialAdds, Updates, Deletes int
}

func newView() *view {
	v := &view{}
	v.mu.versions = map[string]string{}
	v.mu.changed = make(chan struct{})
	return v
}

// handler returns the handler that feeds the view.
func (v *view) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			v.present(obj, false)
			v.count(func(c *counts) {
				c.Adds++
				if initial {
					c.InitialAdds++
				}
			})
		},
		UpdateFunc: func(_, obj any) {
			v.present(obj, true)
			v.count(func(c *counts) { c.Updates++ })
		},
		DeleteFunc: func(obj any) {
			v.absent(obj)
			v.count(func(c *counts) { c.Deletes++ })
		},
	}
}

// present records an object that must, or must not, have been known before.
func (v *view) present(obj any, wantKnown bool) {
	key, version := identify(obj)
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, known := v.mu.versions[key]; known != wantKnown {
		v.mu.problems = append(v.mu.problems, fmt.Sprintf("%s at %s: known before: %v, want %v", key, version, known, wantKnown))
	}
	v.mu.versions[key] = version
}

func (v *view) absent(obj any) {
	key, version := identify(obj)
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, known := v.mu.versions[key]; !known {
		v.mu.problems = append(v.mu.problems, fmt.Sprintf("%s at %s: deleted, but was not known", key, version))
	}
	delete(v.mu.versions, key)
}

// count counts an event and wakes who waits for one.
func (v *view) count(event func(*counts)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	event(&v.mu.counts)
	close(v.mu.changed)
	v.mu.changed = make(chan struct{})
}

// identify returns key and version of what a handler was given. The version of a
// tombstone is that of the last known state.
func identify(obj any) (key, version string) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Sprintf("%T: %v", obj, err), ""
	}
	return cache.MetaObjectToName(accessor).String(), accessor.GetResourceVersion()
}

// waitFor waits until the view equals want and returns an error with the
// difference if it does not before ctx ends.
func (v *view) waitFor(ctx context.Context, want map[string]string) error {
	for {
		v.mu.Lock()
		changed, got := v.mu.changed, maps.Clone(v.mu.versions)
		v.mu.Unlock()
		if maps.Equal(got, want) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("handlers know something else than the server has (-server +handlers):\n%s", cmp.Diff(want, got))
		}
	}
}

func (v *view) delivered() (c counts, problems []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.mu.counts, v.mu.problems
}
