package informer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/warmcache/warmcache/fifo"
)

var errDisk = errors.New("the disk has failed")

// shelf is an informer whose objects are in a map, from which handlers take them.
type shelf struct {
	*sharedIndexInformer
	t *testing.T
	// size is the number of objects in a chunk.
	size int
	// failChunk and failObject, if set, make reads fail.
	failChunk  func(after string) error
	failObject func(key string) error
	// applied, if set, is called between the change of objects and its distribution.
	applied func()
	// await, if set, is AwaitReadable.
	await func(stop <-chan struct{}) bool

	// applying is what changes are applied and distributed under. Unlike a mutex it
	// lets the time of a bubble go on while somebody waits for it.
	applying lock
	// guarded by applying:
	objects map[string]*corev1.ConfigMap
	rv      int
	chunks  int // handed out
	joined  int

	cancel context.CancelFunc
	done   chan struct{}
}

// onShelf runs a test in a bubble, with the named objects on the shelf.
func onShelf(t *testing.T, size int, names []string, test func(t *testing.T, s *shelf)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{
			sharedIndexInformer: &sharedIndexInformer{
				clock: clock.RealClock{}, processor: newProcessor(clock.RealClock{}), mutations: cache.NewCacheMutationDetector("test"),
			},
			t: t, size: size, applying: make(lock, 1), objects: map[string]*corev1.ConfigMap{}, done: make(chan struct{}),
		}
		for _, name := range names {
			s.objects[name] = s.made(name, "uid of "+name)
		}
		ctx, cancel := context.WithCancel(t.Context())
		s.cancel = cancel
		go func() {
			defer close(s.done)
			s.processor.run(ctx)
		}()
		defer s.stop()
		test(t, s)
	})
}

// lock is a sync.Locker.
type lock chan struct{}

func (l lock) Lock()   { l <- struct{}{} }
func (l lock) Unlock() { <-l }

func (s *shelf) stop() {
	s.cancel()
	<-s.done
}

func (s *shelf) source() *source { return &source{delivery: s.applying, objects: s} }

func (s *shelf) Chunk(after string) (chunk, error) {
	if s.failChunk != nil {
		if err := s.failChunk(after); err != nil {
			return nil, err
		}
	}
	s.chunks++
	c := &shelfChunk{shelf: s}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if key > after && len(c.objects) < s.size {
			c.objects = append(c.objects, s.objects[key])
		}
	}
	return c, nil
}

func (s *shelf) AwaitReadable(stop <-chan struct{}) bool {
	return s.await == nil || s.await(stop)
}

type shelfChunk struct {
	shelf   *shelf
	objects []*corev1.ConfigMap
}

func (c *shelfChunk) Len() int         { return len(c.objects) }
func (c *shelfChunk) Key(n int) string { return c.objects[n].Name }

func (c *shelfChunk) Object(n int) (any, error) {
	if c.shelf.failObject != nil {
		if err := c.shelf.failObject(c.Key(n)); err != nil {
			return nil, err
		}
	}
	return c.objects[n].DeepCopy(), nil
}

// made returns a new state of an object.
func (s *shelf) made(name, uid string) *corev1.ConfigMap {
	s.rv++
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: strconv.Itoa(s.rv)}}
}

// change applies changes at once and distributes them, as the pump does: "+a" adds a,
// "a" updates it, "-a" deletes it, and "!a" puts another object under its name.
func (s *shelf) change(changes ...string) {
	s.applying.Lock()
	defer s.applying.Unlock()
	deltas, olds := make([]fifo.Delta, len(changes)), make([]any, len(changes))
	for n, c := range changes {
		deltas[n], olds[n] = s.apply(c)
	}
	if s.applied != nil {
		s.applied()
	}
	s.distribute(deltas, olds)
}

func (s *shelf) apply(change string) (d fifo.Delta, old any) {
	name := strings.TrimLeft(change, "+-!")
	d = fifo.Delta{Type: cache.Updated, Key: name}
	before, exists := s.objects[name]
	if exists {
		old = before
	}
	var after *corev1.ConfigMap
	switch change[0] {
	case '-':
		d.Type, d.Object = cache.Deleted, s.made(name, string(before.UID))
		delete(s.objects, name)
		return d, old
	case '+', '!':
		after = s.made(name, fmt.Sprint("uid ", s.rv))
	default:
		after = s.made(name, string(before.UID))
	}
	s.objects[name], d.Object = after, after
	return d, old
}

// join registers a handler when the others have been given the state.
func (s *shelf) join(v *viewer) *listener {
	s.applying.Lock()
	defer s.applying.Unlock()
	s.joined++
	v.t, v.known = s.t, map[string]*corev1.ConfigMap{}
	l := newListener(klog.Logger{}, v, s.clock, fmt.Sprint("handler ", s.joined), 0)
	l.startReplay(s.source())
	s.processor.add(l, nil)
	l.tracker.UpstreamHasSynced()
	return l
}

// state is what the shelf holds.
func (s *shelf) state() map[string]string {
	s.applying.Lock()
	defer s.applying.Unlock()
	return describeAll(s.objects)
}

func describeAll(objects map[string]*corev1.ConfigMap) map[string]string {
	state := map[string]string{}
	for key, obj := range objects {
		state[key] = describeMap(obj)
	}
	return state
}

func describeMap(obj *corev1.ConfigMap) string {
	return fmt.Sprintf("%s@%s", obj.UID, obj.ResourceVersion)
}

// viewer is a handler that checks that what it is told of each object is a history: it
// begins with an add, every update goes on from the last state, and what is deleted
// was there.
type viewer struct {
	t *testing.T
	// before, if set, is called first.
	before func(event string)
	// anew lets it be told of what it knows as if it were new.
	anew bool

	mu     sync.Mutex
	events []string
	known  map[string]*corev1.ConfigMap
}

func (v *viewer) OnAdd(obj any, isInInitialList bool) {
	cm := obj.(*corev1.ConfigMap)
	word := "add"
	if isInInitialList {
		word = "initial"
	}
	v.see(word, cm, cm, func(last *corev1.ConfigMap) bool { return last == nil || v.anew && !isInInitialList })
}

func (v *viewer) OnUpdate(old, obj any) {
	from, to := old.(*corev1.ConfigMap), obj.(*corev1.ConfigMap)
	word := "update"
	if describeMap(from) == describeMap(to) {
		word = "resync"
	}
	v.see(word, to, to, func(last *corev1.ConfigMap) bool { return last != nil && describeMap(last) == describeMap(from) })
}

func (v *viewer) OnDelete(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	cm := obj.(*corev1.ConfigMap)
	v.see("delete", cm, nil, func(last *corev1.ConfigMap) bool { return last != nil && last.UID == cm.UID })
}

func (v *viewer) see(word string, obj, state *corev1.ConfigMap, legal func(last *corev1.ConfigMap) bool) {
	event := word + " " + obj.Name
	if v.before != nil {
		v.before(event)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if last := v.known[obj.Name]; !legal(last) {
		v.t.Errorf("%q, state %s, does not go on from %v, after %v", event, describeMap(obj), last, v.events)
	}
	v.events = append(v.events, event)
	v.known[obj.Name] = state
	if state == nil {
		delete(v.known, obj.Name)
	}
}

func (v *viewer) state() map[string]string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return describeAll(v.known)
}

// wants waits until nothing moves any more and compares what the handler was told
// since the last call.
func (v *viewer) wants(want ...string) {
	v.t.Helper()
	synctest.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	if !slices.Equal(v.events, want) {
		v.t.Errorf("handler was told\n%v\nwant\n%v", v.events, want)
	}
	v.events = nil
}

// gate returns a viewer that waits at an event until the test calls open.
func gate(at string) (v *viewer, open func()) {
	opened := make(chan struct{})
	v = &viewer{before: func(event string) {
		if event == at {
			<-opened
		}
	}}
	return v, sync.OnceFunc(func() { close(opened) })
}

// eventually waits for the fake time to come to a condition.
func eventually(condition func() bool) bool {
	for range 1000 {
		synctest.Wait()
		if condition() {
			return true
		}
		time.Sleep(time.Second)
	}
	return false
}
