package informer_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/apitest"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

// must returns x, for errors that a test does not expect.
func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

var (
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	identity   = store.Identity{Version: "v1", Resource: "configmaps"}
)

// world is an API server and a store that outlive the informers of a test.
type world struct {
	t      *testing.T
	server *apitest.Server
	memory *storetest.Memory
	client kubernetes.Interface
	// make makes informers.
	make maker
	// onDisk says that they keep their objects in the store only.
	onDisk bool
	// selector limits what informers list.
	selector string
	// padding makes objects that are created or updated larger.
	padding string
}

// whileDown changes the server while nobody can watch it, and makes it forget the
// changes.
func (w *world) whileDown(change func()) {
	w.t.Helper()
	if err := w.server.Down(); err != nil {
		w.t.Fatal(err)
	}
	change()
	w.server.Compact()
	if err := w.server.Up(); err != nil {
		w.t.Fatal(err)
	}
}

// bothModes runs a test of what client-go does differently, with and without a
// store.
func bothModes(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	withEach(t, map[string]maker{"persistent": persistent, onDiskName: onDisk, "in memory": inMemory}, apitest.Options{}, test)
}

// bothResidencies runs a test of what a stored copy is good for.
func bothResidencies(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	bothResidenciesWith(t, apitest.Options{}, test)
}

func bothResidenciesWith(t *testing.T, o apitest.Options, test func(t *testing.T, w *world)) {
	t.Helper()
	withEach(t, map[string]maker{"persistent": persistent, onDiskName: onDisk}, o, test)
}

// withEach runs a test with each of some kinds of informers.
func withEach(t *testing.T, makers map[string]maker, o apitest.Options, test func(t *testing.T, w *world)) {
	t.Helper()
	for name, m := range makers {
		t.Run(name, func(t *testing.T) {
			inWorldWith(t, o, func(t *testing.T, w *world) {
				w.make, w.onDisk = m, name == onDiskName
				test(t, w)
			})
		})
	}
}

// maker makes an informer of a kind that a test compares with others.
type maker func(lw cache.ListerWatcher, o informer.Options) cache.SharedIndexInformer

// persistent is the informer with a store.
func persistent(lw cache.ListerWatcher, o informer.Options) cache.SharedIndexInformer {
	return must(informer.New(lw, &corev1.ConfigMap{}, o))
}

const onDiskName = "on disk"

// onDisk is the informer in disk residency, if it has a store.
func onDisk(lw cache.ListerWatcher, o informer.Options) cache.SharedIndexInformer {
	if o.Store != nil {
		o.Residency = informer.Disk
	}
	return persistent(lw, o)
}

// inMemory is the informer without a store.
func inMemory(lw cache.ListerWatcher, o informer.Options) cache.SharedIndexInformer {
	o.Store = nil
	return must(informer.New(lw, &corev1.ConfigMap{}, o))
}

// stock is client-go's informer.
func stock(lw cache.ListerWatcher, o informer.Options) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformerWithOptions(lw, &corev1.ConfigMap{}, cache.SharedIndexInformerOptions{
		ResyncPeriod: o.ResyncPeriod, Indexers: o.Indexers, ObjectDescription: o.ObjectDescription,
	})
}

// makers are client-go's informer, which says what is right, and ours.
var makers = map[string]maker{"client-go": stock, "persistent": persistent, onDiskName: onDisk, "in memory": inMemory}

// asClientGo runs a test against client-go's informer, which says what is right,
// and against ours, with and without a store.
func asClientGo(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	withEach(t, makers, apitest.Options{}, test)
}

// inWorld runs a test in a synctest bubble: time stands still while anything can
// run, so that the seconds of the protocol cost nothing.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	inWorldWith(t, apitest.Options{}, test)
}

func inWorldWith(t *testing.T, o apitest.Options, test func(t *testing.T, w *world)) {
	t.Helper()
	o.InMemory = true
	synctest.Test(t, func(t *testing.T) {
		server, err := apitest.New(o)
		if err != nil {
			t.Fatal(err)
		}
		config := server.RESTConfig()
		config.ContentType = runtime.ContentTypeProtobuf
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := server.Close(); err != nil {
				t.Error(err)
			}
		}()
		test(t, &world{t: t, server: server, memory: storetest.NewMemory(), client: client, make: persistent})
	})
}

// syncBuffer takes in what several loggers write.
type syncBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data:       map[string]string{"value": value},
	}
}

func (w *world) create(names ...string) {
	w.t.Helper()
	for _, name := range names {
		if err := w.server.Create(w.configMap(name, "created")); err != nil {
			w.t.Fatal(err)
		}
	}
}

// configMap is configMap with padding.
func (w *world) configMap(name, value string) *corev1.ConfigMap {
	cm := configMap(name, value)
	if w.padding != "" {
		cm.Data["padding"] = w.padding
	}
	return cm
}

func (w *world) update(name, value string) {
	w.t.Helper()
	if err := w.server.Update(w.configMap(name, value)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) delete(names ...string) {
	w.t.Helper()
	for _, name := range names {
		if err := w.server.Delete(configMap(name, "")); err != nil {
			w.t.Fatal(err)
		}
	}
}

// state is what the server has, by key.
func (w *world) state() map[string]string {
	w.t.Helper()
	objs, _, err := w.server.List(configMaps, "")
	if err != nil {
		w.t.Fatal(err)
	}
	state := map[string]string{}
	for _, obj := range objs {
		state[keyOf(obj)] = describe(obj)
	}
	return state
}

func keyOf(obj any) string {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		panic(err)
	}
	return key
}

// describe tells two states of an object apart.
func describe(obj any) string {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		if tombstone.Obj == nil {
			return "unknown"
		}
		obj = tombstone.Obj
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}
	value := ""
	if cm, ok := obj.(*corev1.ConfigMap); ok {
		value = cm.Data["value"]
	}
	return fmt.Sprintf("%s@%s=%s", m.GetUID(), m.GetResourceVersion(), value)
}

func (w *world) listWatch() cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = w.selector
			return w.client.CoreV1().ConfigMaps("").List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = w.selector
			return w.client.CoreV1().ConfigMaps("").Watch(ctx, o)
		},
	}
}

// process is one run of an informer, from start to kill or stop.
type process struct {
	w        *world
	store    store.Store
	informer cache.SharedIndexInformer
	recorder *recorder
	cancel   context.CancelFunc
	done     chan struct{}
}

// start runs an informer with one handler.
func (w *world) start(change ...func(*informer.Options)) *process {
	w.t.Helper()
	p := w.prepare(change...)
	p.recorder = p.handle()
	p.run()
	return p
}

// prepare makes an informer that does not run yet. The server's log begins anew.
func (w *world) prepare(change ...func(*informer.Options)) *process {
	w.t.Helper()
	return w.prepareIn(w.memory.Open(), change...)
}

// prepareIn is prepare for another informer of a running process.
func (w *world) prepareIn(s store.Store, change ...func(*informer.Options)) *process {
	w.t.Helper()
	w.server.ResetRequests()
	o := informer.Options{
		Store: s, Identity: identity, ListBelow: -1,
		Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, storedIndex: byNamespace},
	}
	for _, c := range change {
		c(&o)
	}
	return &process{w: w, store: s, informer: w.make(w.listWatch(), o), done: make(chan struct{})}
}

func (p *process) run() {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go func() {
		defer close(p.done)
		p.informer.RunWithContext(ctx)
	}()
}

// handle registers a new recording handler.
func (p *process) handle() *recorder {
	p.w.t.Helper()
	return p.handleWith(nil, cache.HandlerOptions{})
}

// handleWith registers a new recording handler that calls before first.
func (p *process) handleWith(before func(event string), o cache.HandlerOptions) *recorder {
	p.w.t.Helper()
	r := &recorder{state: map[string]string{}, before: before}
	registration, err := p.informer.AddEventHandlerWithOptions(r, o)
	if err != nil {
		p.w.t.Fatal(err)
	}
	r.registration = registration
	return r
}

// synced waits until the handler has seen the initial state.
func (p *process) synced() *process {
	p.w.t.Helper()
	<-p.recorder.registration.HasSyncedChecker().Done()
	synctest.Wait()
	return p
}

// kill ends the process as SIGKILL would: nothing it does afterwards reaches the
// store.
func (p *process) kill() {
	p.w.memory.Open()
	p.stop()
}

// stop ends it gracefully.
func (p *process) stop() {
	p.cancel()
	<-p.done
}

// contents is what the store holds. The process must have ended.
func (w *world) contents() storetest.Contents {
	w.t.Helper()
	id := identity
	id.Form = store.FormTyped
	c, err := w.memory.Open().Collection(id, "test")
	if err != nil {
		w.t.Fatal(err)
	}
	return storetest.Dump(w.t, c, storedIndex)
}

// storedIndex is an index by namespace that is in the file, as client-go's own is not.
const storedIndex = "stored"

func byNamespace(obj any) ([]string, error) { return cache.MetaNamespaceIndexFunc(obj) }

// departed are the names and attempts of the departed records in the store.
func (w *world) departed() []string {
	w.t.Helper()
	departed := []string{}
	for _, d := range w.contents().Departed {
		_, name, _ := cache.SplitMetaNamespaceKey(d.Key)
		departed = append(departed, fmt.Sprintf("%s %d", name, d.Attempts))
	}
	return departed
}

// info is what the store of a running process holds.
func (p *process) info() store.Info {
	p.w.t.Helper()
	infos, err := p.store.Informers()
	if err != nil || len(infos) != 1 {
		p.w.t.Fatalf("the store holds %v, %v", infos, err)
	}
	return infos[0]
}

func (p *process) status() informer.Status {
	p.w.t.Helper()
	status, ok := informer.StatusOf(p.informer)
	if !ok {
		p.w.t.Fatal("StatusOf does not know the informer")
	}
	return status
}

// converged checks that server, indexer and handler agree.
func (p *process) converged() {
	p.w.t.Helper()
	synctest.Wait()
	want := p.w.state()
	got := map[string]string{}
	for _, obj := range p.informer.GetStore().List() {
		got[keyOf(obj)] = describe(obj)
	}
	if !maps.Equal(want, got) {
		p.w.t.Errorf("indexer has\n%v\nserver has\n%v", got, want)
	}
	if p.recorder != nil {
		if known := p.recorder.known(); !maps.Equal(want, known) {
			p.w.t.Errorf("handler knows\n%v\nserver has\n%v", known, want)
		}
	}
}

// lists returns how many lists of more than one object, in either form, the
// server has answered since the process was prepared.
func (p *process) lists() int { return p.w.count(isFull) }

// count is how many requests the server has had that match.
func (w *world) count(match func(apitest.Request) bool) (n int) {
	for _, r := range w.server.Requests() {
		if match(r) {
			n++
		}
	}
	return n
}

// What requests for the collection are. A probe asks for the server's version only.
func isOurs(r apitest.Request) bool { return r.Resource == configMaps.Resource }

func isProbe(r apitest.Request) bool {
	return isOurs(r) && r.Verb == "list" && r.Query.Get("limit") == "1"
}

func isWatchList(r apitest.Request) bool {
	return isOurs(r) && r.Query.Get("sendInitialEvents") == "true"
}

func isPage(r apitest.Request) bool { return isOurs(r) && r.Verb == "list" && !isProbe(r) }

func isNextPage(r apitest.Request) bool { return isPage(r) && r.Query.Get("continue") != "" }

// isWhole matches lists that are not in pages.
func isWhole(r apitest.Request) bool {
	return isPage(r) && !isNextPage(r) && r.Query.Get("limit") == ""
}

// isFull matches all that is not a probe or a watch from a version.
func isFull(r apitest.Request) bool { return isPage(r) || isWatchList(r) }

// isResumed matches watches from a version.
func isResumed(r apitest.Request) bool { return isOurs(r) && r.Verb == "watch" && !isWatchList(r) }

// recorder is a handler that remembers what it was told.
type recorder struct {
	registration cache.ResourceEventHandlerRegistration
	before       func(event string)

	mu     sync.Mutex
	events []string
	state  map[string]string
}

func (r *recorder) OnAdd(obj any, isInInitialList bool) {
	word := "add"
	if isInInitialList {
		word = "initial"
	}
	r.record(word, obj)
}

func (r *recorder) OnUpdate(old, obj any) {
	word := "update"
	if describe(old) == describe(obj) {
		word = "resync"
	}
	r.record(word, obj)
}

func (r *recorder) OnDelete(obj any) {
	word := "delete"
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok && tombstone.Obj == nil {
		word = "delete unknown"
	}
	r.record(word, obj)
}

func (r *recorder) record(word string, obj any) {
	_, name, _ := cache.SplitMetaNamespaceKey(keyOf(obj))
	if r.before != nil {
		r.before(word + " " + name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, word+" "+name)
	if strings.HasPrefix(word, "delete") {
		delete(r.state, keyOf(obj))
		return
	}
	r.state[keyOf(obj)] = describe(obj)
}

func (r *recorder) known() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.state)
}

// take returns the events since the last call. Initial adds come in any order
// between objects, so runs of them are sorted.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	start := 0
	for i := 0; i <= len(events); i++ {
		if i == len(events) || events[i][0] != 'i' {
			slices.Sort(events[start:i])
			start = i + 1
		}
	}
	return events
}

func (w *world) wantEvents(r *recorder, want ...string) {
	w.t.Helper()
	synctest.Wait()
	if got := r.take(); !slices.Equal(got, want) {
		w.t.Errorf("handler was told\n%v\nwant\n%v", got, want)
	}
}
