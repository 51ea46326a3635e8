package reflector_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/reflector"
)

// pause is the backoff of the tests.
const pause = time.Second

// fake is a scripted API server and the queue behind the reflector. What both
// are asked for goes, in order, into one journal.
type fake struct {
	t       *testing.T
	options reflector.Options
	r       *reflector.Reflector
	handled []error

	mu      sync.Mutex
	journal []string
	// asked are the options of lists, probes and watches.
	asked []metav1.ListOptions
	// rv and items are what probes and lists return.
	rv    string
	items []runtime.Object
	// has are the objects that the server has said to have, which probes for one of
	// them return.
	has map[string]runtime.Object
	// probeErrs, listErrs, exactErrs and watchErrs are returned first, one by one; nil lets
	// the request through.
	probeErrs, listErrs, exactErrs, watchErrs []error
	// lists, if not nil, answers lists of more than one object.
	lists func(metav1.ListOptions) (runtime.Object, error)
	// exact, if not nil, answers lists at a version.
	exact func(metav1.ListOptions) (runtime.Object, error)
	// streams are what watches deliver, one after the other; then they are
	// silent until they time out.
	streams []stream
	// watches are those that were opened.
	watches []*watcher
	// endless makes watches ignore their timeout.
	endless bool
	// remembers makes the server accept a watch from its oldest version; canaries
	// counts such watches.
	remembers bool
	canaries  int
	// streaming lets the reflector ask for streamed lists.
	streaming bool

	failures chan error
	queueErr error
	// added, if set, answers a list that is given an object.
	added      func() error
	onCaughtUp func()
	cancel     context.CancelFunc
}

// stream is what one watch delivers.
type stream struct {
	events []watch.Event
	// every spaces the events.
	every time.Duration
	// closed ends the stream behind the events; otherwise it stays open until
	// it times out.
	closed bool
}

func events(es ...watch.Event) stream { return stream{events: es} }

func closing(es ...watch.Event) stream { return stream{events: es, closed: true} }

// newFake makes a server at version 10 and a stored copy at version 5.
func newFake(t *testing.T) *fake {
	f := &fake{t: t, rv: "10", has: map[string]runtime.Object{}, failures: make(chan error, 1)}
	f.options = reflector.Options{
		ListerWatcher: f,
		Queue:         f,
		Expected:      &corev1.ConfigMap{},
		Origin:        reflector.Origin{RV: "5", Replays: true},
		Backoff:       &wait.Backoff{Duration: pause},
		WatchErrorHandler: func(_ context.Context, r *cache.Reflector, err error) {
			if r.TypeDescription() == "" || r.Name() == "" {
				t.Error("the handler's reflector has no name or type")
			}
			f.handled = append(f.handled, err)
		},
	}
	return f
}

// inBubble runs a test with a clock that moves when nothing else can.
func inBubble(t *testing.T, test func(t *testing.T, f *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newFake(t)) })
}

// run lets the reflector work for d and stops it.
func (f *fake) run(d time.Duration) {
	f.t.Helper()
	stop := f.start()
	time.Sleep(d)
	synctest.Wait()
	stop()
}

func (f *fake) start() (stop func()) {
	f.r = reflector.New(f.options)
	ctx, cancel := context.WithCancel(f.t.Context())
	f.cancel = cancel
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.r.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, w := range f.watches {
			if !w.stopped() {
				f.t.Error("a watch was left open")
			}
		}
	}
}

// want compares the journal, given as lines of words, with what happened.
func (f *fake) want(lines ...string) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.journal, lines) {
		f.t.Errorf("what happened:\n\t%s\nwant:\n\t%s", strings.Join(f.journal, "\n\t"), strings.Join(lines, "\n\t"))
	}
}

func (f *fake) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.journal = append(f.journal, fmt.Sprintf(format, args...))
}

// count returns how many lines of the journal begin with prefix.
func (f *fake) count(prefix string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, line := range f.journal {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// set changes the script while the reflector runs.
func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// take removes the first error of a script.
func (f *fake) take(errs *[]error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(*errs) == 0 {
		return nil
	}
	err := (*errs)[0]
	*errs = (*errs)[1:]
	return err
}

// IsWatchListSemanticsUnSupported tells the reflector to list in pages.
func (f *fake) IsWatchListSemanticsUnSupported() bool { return !f.streaming }

func (f *fake) List(o metav1.ListOptions) (runtime.Object, error) {
	return f.ListWithContext(f.t.Context(), o)
}

func (f *fake) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return f.WatchWithContext(f.t.Context(), o)
}

func (f *fake) ListWithContext(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
	f.set(func() { f.asked = append(f.asked, o) })
	if o.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		return f.listAt(o)
	}
	if o.ResourceVersion != "" || o.ResourceVersionMatch != "" {
		f.t.Errorf("list asks for an older state: %+v", o)
	}
	if o.Limit == 1 {
		f.note("probe")
		if err := f.take(&f.probeErrs); err != nil {
			return nil, err
		}
		return f.probed(o)
	}
	f.note("list%s", o.Continue)
	if err := f.take(&f.listErrs); err != nil {
		return nil, err
	}
	if f.lists != nil {
		return f.lists(o)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return listOf(f.rv, f.items...), nil
}

// probed answers a probe.
func (f *fake) probed(o metav1.ListOptions) (runtime.Object, error) {
	selector, err := fields.ParseSelector(o.FieldSelector)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if selector.Empty() {
		return listOf(f.rv, f.items[:min(1, len(f.items))]...), nil
	}
	name, _ := selector.RequiresExactMatch("metadata.name")
	if obj := f.has[name]; obj != nil {
		return listOf(f.rv, obj), nil
	}
	return listOf(f.rv), nil
}

// listAt lists what there was at a version.
func (f *fake) listAt(o metav1.ListOptions) (runtime.Object, error) {
	f.note("exact %s", o.ResourceVersion)
	if err := f.take(&f.exactErrs); err != nil {
		return nil, err
	}
	if f.exact != nil {
		return f.exact(o)
	}
	return listOf(o.ResourceVersion, f.items...), nil
}

func listOf(rv string, items ...runtime.Object) *corev1.ConfigMapList {
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: rv}}
	for _, item := range items {
		list.Items = append(list.Items, *item.(*corev1.ConfigMap))
	}
	return list
}

func (f *fake) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.ResourceVersion == "1" && !o.AllowWatchBookmarks {
		return f.watchOldest(ctx)
	}
	if !o.AllowWatchBookmarks || o.TimeoutSeconds == nil {
		f.t.Errorf("watch without bookmarks or timeout: %+v", o)
	}
	f.set(func() { f.asked = append(f.asked, o) })
	name := "watch " + o.ResourceVersion
	if o.SendInitialEvents != nil {
		name = "stream"
	}
	f.note("%s", name)
	if err := f.take(&f.watchErrs); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var s stream
	if len(f.streams) > 0 {
		s, f.streams = f.streams[0], f.streams[1:]
	}
	timeout := time.Duration(*o.TimeoutSeconds) * time.Second
	if f.endless {
		timeout = 24 * time.Hour
	}
	w := &watcher{events: make(chan watch.Event), done: make(chan struct{})}
	f.watches = append(f.watches, w)
	go w.serve(ctx, s, timeout)
	return w, nil
}

// watchOldest answers the question whether the server forgets anything.
func (f *fake) watchOldest(ctx context.Context) (watch.Interface, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.canaries++
	w := &watcher{events: make(chan watch.Event), done: make(chan struct{})}
	f.watches = append(f.watches, w)
	s := events(failure(expired()))
	if f.remembers {
		s = events()
	}
	go w.serve(ctx, s, time.Hour)
	return w, nil
}

// watcher is one open watch.
type watcher struct {
	events chan watch.Event
	done   chan struct{}
	once   sync.Once
}

func (w *watcher) ResultChan() <-chan watch.Event { return w.events }
func (w *watcher) Stop()                          { w.once.Do(func() { close(w.done) }) }

func (w *watcher) stopped() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

func (w *watcher) serve(ctx context.Context, s stream, timeout time.Duration) {
	defer close(w.events)
	deadline := time.After(timeout)
	for _, e := range s.events {
		select {
		case <-time.After(s.every):
		case <-w.done:
			return
		case <-ctx.Done():
			return
		}
		select {
		case w.events <- e:
		case <-w.done:
			return
		case <-ctx.Done():
			return
		}
	}
	if s.closed {
		return
	}
	select {
	case <-w.done:
	case <-ctx.Done():
	case <-deadline:
	}
}

// The queue.

func (f *fake) Add(obj any) error        { return f.queue("add", obj) }
func (f *fake) Update(obj any) error     { return f.queue("update", obj) }
func (f *fake) Delete(obj any) error     { return f.queue("delete", obj) }
func (f *fake) Bookmark(rv string) error { return f.queue("bookmark", object("", rv)) }
func (f *fake) Reset()                   { f.note("reset") }
func (f *fake) Failed() <-chan error     { return f.failures }
func (f *fake) queue(w string, o any) error {
	m, _ := meta.Accessor(o)
	f.mu.Lock()
	err := f.queueErr
	f.has[m.GetName()] = o.(runtime.Object)
	if w == "delete" {
		delete(f.has, m.GetName())
	}
	f.mu.Unlock()
	if err != nil {
		return err
	}
	f.note("%s %s@%s", w, m.GetName(), m.GetResourceVersion())
	return nil
}

func (f *fake) CaughtUp(confirmed bool) {
	if !confirmed {
		f.note("show")
		return
	}
	f.note("caught up")
	if f.onCaughtUp != nil {
		f.onCaughtUp()
	}
}

func (f *fake) NewReplacement() reflector.Replacement { return &replacement{f: f} }

// replacement records a list.
type replacement struct {
	f         *fake
	names     []string
	committed bool
}

func (r *replacement) Add(obj any) error {
	if r.f.added != nil {
		return r.f.added()
	}
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	if r.f.queueErr != nil {
		return r.f.queueErr
	}
	m, _ := meta.Accessor(obj)
	r.names = append(r.names, m.GetName())
	r.f.has[m.GetName()] = obj.(runtime.Object)
	return nil
}

func (r *replacement) Keep(key, _, rv string) error {
	if r.f.added != nil {
		return r.f.added()
	}
	r.names = append(r.names, "="+key+"@"+rv)
	return nil
}

func (r *replacement) Remove(obj any) error {
	m, _ := meta.Accessor(obj)
	r.names = slices.DeleteFunc(r.names, func(name string) bool { return name == m.GetName() })
	return nil
}

func (r *replacement) Commit(rv string) {
	r.committed = true
	r.f.note("commit %s %v", rv, r.names)
}

func (r *replacement) Abort() {
	if !r.committed && len(r.names) > 0 {
		r.f.note("abort %v", r.names)
	}
}

// Objects and events.

func object(name, rv string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: rv}}
}

func added(name, rv string) watch.Event {
	return watch.Event{Type: watch.Added, Object: object(name, rv)}
}

func modified(name, rv string) watch.Event {
	return watch.Event{Type: watch.Modified, Object: object(name, rv)}
}

func deleted(name, rv string) watch.Event {
	return watch.Event{Type: watch.Deleted, Object: object(name, rv)}
}

func bookmark(rv string) watch.Event {
	return watch.Event{Type: watch.Bookmark, Object: object("", rv)}
}

// end is the bookmark that ends the initial events of a streamed list.
func end(rv string) watch.Event {
	obj := object("", rv)
	obj.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	return watch.Event{Type: watch.Bookmark, Object: obj}
}

func failure(err *apierrors.StatusError) watch.Event {
	return watch.Event{Type: watch.Error, Object: &err.ErrStatus}
}

func expired() *apierrors.StatusError { return apierrors.NewResourceExpired("too old") }

func internal() *apierrors.StatusError { return apierrors.NewInternalError(errors.New("broken")) }

func tooLarge() *apierrors.StatusError {
	err := apierrors.NewTimeoutError("Too large resource version", 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	return err
}

var (
	resource = schema.GroupResource{Resource: "configmaps"}
	kind     = schema.GroupKind{Kind: "ConfigMap"}
)

// objects makes some, from name@version.
func objects(names ...string) []runtime.Object {
	var all []runtime.Object
	for _, n := range names {
		name, rv, _ := strings.Cut(n, "@")
		all = append(all, object(name, rv))
	}
	return all
}

func repeat(err error, n int) []error {
	return slices.Repeat([]error{err}, n)
}

func constant(s string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return s, nil }
}
