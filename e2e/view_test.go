package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// eventType is which method of a handler was called.
type eventType string

const (
	added   eventType = "added"
	updated eventType = "updated"
	deleted eventType = "deleted"
)

// event is one call of a handler.
type event struct {
	Resource string
	Type     eventType
	Initial  bool
	Key      string
	UID, RV  string
	// OldUID is the UID of the state that an update replaces.
	OldUID string
}

// reportTo returns a handler that turns calls into events.
func reportTo(observe func(event), resource string) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			e := newEvent(resource, added, obj)
			e.Initial = initial
			observe(e)
		},
		UpdateFunc: func(old, obj any) {
			e := newEvent(resource, updated, obj)
			e.OldUID = newEvent(resource, updated, old).UID
			observe(e)
		},
		DeleteFunc: func(obj any) { observe(newEvent(resource, deleted, obj)) },
	}
}

// newEvent identifies what a handler was given: for a tombstone, the last known
// state.
func newEvent(resource string, what eventType, obj any) event {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return event{Resource: resource, Type: what, Key: fmt.Sprintf("%T: %v", obj, err)}
	}
	return event{
		Resource: resource, Type: what, Key: cache.MetaObjectToName(accessor).String(),
		UID: string(accessor.GetUID()), RV: accessor.GetResourceVersion(),
	}
}

// view is what the handler of one process has been told: the state it would act
// on.
type view struct {
	mu struct {
		sync.Mutex
		// versions has the resourceVersion of each present object by its key.
		versions map[string]string
		counts   counts
		events   []event
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

// observe takes in one event and wakes who waits for one.
func (v *view) observe(e event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, known := v.mu.versions[e.Key]; known != (e.Type != added) {
		v.mu.problems = append(v.mu.problems, fmt.Sprintf("%s %s at %s; known before: %v", e.Key, e.Type, e.RV, known))
	}
	if e.Type == deleted {
		delete(v.mu.versions, e.Key)
	} else {
		v.mu.versions[e.Key] = e.RV
	}
	v.mu.counts.add(e)
	v.mu.events = append(v.mu.events, e)
	close(v.mu.changed)
	v.mu.changed = make(chan struct{})
}

func (c *counts) add(e event) {
	switch e.Type {
	case added:
		c.Adds++
		if e.Initial {
			c.InitialAdds++
		}
	case updated:
		c.Updates++
	case deleted:
		c.Deletes++
	}
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

// known returns the resourceVersion of each present object by its key.
func (v *view) known() map[string]string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.mu.versions)
}

func (v *view) delivered() (c counts, problems []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.mu.counts, v.mu.problems
}

// events returns the events so far in their order.
func (v *view) events() []event {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.mu.events)
}

// knowledge is what somebody knows who keeps notes of the events of all
// processes: an object stays in it until a delete, or an update that replaces it,
// has been delivered.
type knowledge struct {
	mu struct {
		sync.Mutex
		// versions has key and resourceVersion of each object by its UID: of a
		// name that was recreated, both objects need to be told apart.
		versions map[string]string
	}
}

func newKnowledge() *knowledge {
	k := &knowledge{}
	k.mu.versions = map[string]string{}
	return k
}

func (k *knowledge) observe(e event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.mu.versions, e.OldUID)
	if e.Type == deleted {
		delete(k.mu.versions, e.UID)
	} else {
		k.mu.versions[e.UID] = e.Key + " at " + e.RV
	}
}

func (k *knowledge) known() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.mu.versions)
}
