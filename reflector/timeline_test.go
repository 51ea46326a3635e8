package reflector_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/reflector"
)

// timeline is an API server made of its history: event n has version n+1.
type timeline struct {
	streaming bool

	mu      sync.Mutex
	events  []watch.Event
	changed chan struct{}
	// lists and watches are the faults of the requests to come.
	lists, watches []fault
}

// fault is what goes wrong with one request; the zero value is nothing.
type fault struct {
	// err refuses the request.
	err error
	// events come before those of the watch.
	events []watch.Event
	// cut ends the watch behind events, and behind the initial state but for its
	// end if the watch is a streamed list.
	cut bool
}

func newTimeline() *timeline { return &timeline{changed: make(chan struct{})} }

// write adds to the history.
func (l *timeline) write(kind watch.EventType, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rv := strconv.Itoa(len(l.events) + 1)
	l.events = append(l.events, watch.Event{Type: kind, Object: object(name, rv)})
	close(l.changed)
	l.changed = make(chan struct{})
}

// state returns what exists at the end of the history, and its version.
func (l *timeline) state() (map[string]string, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	state := map[string]string{}
	for _, e := range l.events {
		cm := e.Object.(*corev1.ConfigMap)
		if state[cm.Name] = cm.ResourceVersion; e.Type == watch.Deleted {
			delete(state, cm.Name)
		}
	}
	return state, strconv.Itoa(len(l.events))
}

func (l *timeline) fault(faults *[]fault) fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(*faults) == 0 {
		return fault{}
	}
	f := (*faults)[0]
	*faults = (*faults)[1:]
	return f
}

func (l *timeline) IsWatchListSemanticsUnSupported() bool { return !l.streaming }

func (l *timeline) List(metav1.ListOptions) (runtime.Object, error) {
	if f := l.fault(&l.lists); f.err != nil {
		return nil, f.err
	}
	state, rv := l.state()
	list := listOf(rv)
	for name, rv := range state {
		list.Items = append(list.Items, *object(name, rv))
	}
	return list, nil
}

func (l *timeline) Watch(o metav1.ListOptions) (watch.Interface, error) {
	f := l.fault(&l.watches)
	if f.err != nil {
		return nil, f.err
	}
	from, _ := strconv.Atoi(o.ResourceVersion)
	if o.SendInitialEvents != nil {
		state, rv := l.state()
		for name, rv := range state {
			f.events = append(f.events, added(name, rv))
		}
		if !f.cut {
			f.events = append(f.events, end(rv))
		}
		from, _ = strconv.Atoi(rv)
	}
	w := &watcher{events: make(chan watch.Event), done: make(chan struct{})}
	go l.serve(w, f, from, time.After(time.Duration(*o.TimeoutSeconds)*time.Second))
	return w, nil
}

// serve sends the events of a fault, and then the history behind from.
func (l *timeline) serve(w *watcher, f fault, from int, deadline <-chan time.Time) {
	defer close(w.events)
	for n := 0; ; n++ {
		e, wait, ok := l.next(f, n, from)
		if !ok {
			return
		}
		if wait != nil {
			n--
			select {
			case <-wait:
				continue
			case <-w.done:
			case <-deadline:
			}
			return
		}
		select {
		case w.events <- e:
		case <-w.done:
			return
		}
	}
}

// next returns the n-th event of a watch, or what to wait for until there is one.
func (l *timeline) next(f fault, n, from int) (e watch.Event, wait <-chan struct{}, ok bool) {
	if n < len(f.events) {
		return f.events[n], nil, true
	}
	if f.cut {
		return e, nil, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n += from - len(f.events); n < len(l.events) {
		return l.events[n], nil, true
	}
	return e, l.changed, true
}

// outcome is what one implementation made of a timeline.
type outcome struct {
	State map[string]string
	RV    string
	// Told is what the watch error handler was told.
	Told []error
}

func stateOf(s cache.Store) map[string]string {
	state := map[string]string{}
	for _, obj := range s.List() {
		cm := obj.(*corev1.ConfigMap)
		state[cm.Name] = cm.ResourceVersion
	}
	return state
}

// ours lets our reflector read a timeline while it goes on.
func ours(t *testing.T, l *timeline, goOn func()) (o outcome) {
	store := cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc)
	r := reflector.New(reflector.Options{
		ListerWatcher: l, Queue: applying{Store: store}, Expected: &corev1.ConfigMap{},
		WatchErrorHandler: func(_ context.Context, _ *cache.Reflector, err error) { o.Told = append(o.Told, err) },
	})
	during(t, r.Run, goOn)
	o.State, o.RV = stateOf(store), r.Status().RV
	return o
}

// theirs does the same with client-go's. The informer around it is only there
// because nothing else sets the handler.
func theirs(t *testing.T, l *timeline, goOn func()) (o outcome) {
	inf := cache.NewSharedIndexInformer(l, &corev1.ConfigMap{}, 0, nil)
	err := inf.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { o.Told = append(o.Told, err) })
	if err != nil {
		t.Fatal(err)
	}
	during(t, inf.RunWithContext, goOn)
	o.State, o.RV = stateOf(inf.GetStore()), inf.LastSyncResourceVersion()
	return o
}

// during does something while run runs.
func during(t *testing.T, run func(context.Context), do func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx)
	}()
	do()
	cancel()
	<-done
}

// applying is a queue whose consumer is never behind.
type applying struct{ cache.Store }

func (applying) Bookmark(string) error { return nil }
func (applying) Reset()                {}
func (applying) CaughtUp(bool)         {}
func (applying) Failed() <-chan error  { return nil }
func (a applying) NewReplacement() reflector.Replacement {
	return appliedList{cache.NewStore(cache.MetaNamespaceKeyFunc), a.Store}
}

// appliedList is a list of applying.
type appliedList struct{ listed, into cache.Store }

func (l appliedList) Add(obj any) error    { return l.listed.Add(obj) }
func (l appliedList) Remove(obj any) error { return l.listed.Delete(obj) }
func (appliedList) Abort()                 {}
func (l appliedList) Keep(key, _, _ string) error {
	obj, _, err := l.into.GetByKey(key)
	return errors.Join(err, l.listed.Add(obj))
}
func (l appliedList) Commit(rv string) { _ = l.into.Replace(l.listed.List(), rv) }
