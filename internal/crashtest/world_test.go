package crashtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/warmcache/warmcache/internal/apitest"
)

// world is an API server and the history of everything written to it. All writes
// go through it.
type world struct {
	t      testing.TB
	server *apitest.Server

	mu struct {
		sync.Mutex
		// history has every version in the order of its resourceVersion.
		history map[schema.GroupVersionResource][]version
		// live has the newest version of what exists.
		live map[schema.GroupVersionResource]map[string]version
		// known finds a version that once was.
		known map[schema.GroupVersionResource]map[version]bool
		// values makes each version of an object another one.
		values int
	}
}

func newWorld(t testing.TB) *world {
	t.Helper()
	server, err := apitest.New(apitest.Options{
		// A resumed watch gets its proof at once instead of after a second.
		BookmarkLead:     2900 * time.Millisecond,
		BookmarkInterval: 200 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &world{t: t, server: server}
	w.mu.history = map[schema.GroupVersionResource][]version{}
	w.mu.live = map[schema.GroupVersionResource]map[string]version{}
	w.mu.known = map[schema.GroupVersionResource]map[version]bool{}
	for gvr := range kinds {
		w.mu.live[gvr] = map[string]version{}
		w.mu.known[gvr] = map[version]bool{}
	}
	return w
}

// put creates or updates an object and returns what it has become.
func (w *world) put(gvr schema.GroupVersionResource, key, tier string) version {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.values++
	obj := kinds[gvr]()
	namespace, name, _ := strings.Cut(key, "/")
	obj.SetNamespace(namespace)
	obj.SetName(name)
	obj.SetLabels(map[string]string{tierLabel: tier})
	obj.SetAnnotations(map[string]string{valueAnnotation: strconv.Itoa(w.mu.values)})
	write := w.server.Create
	if _, exists := w.mu.live[gvr][key]; exists {
		write = w.server.Update
	}
	if err := write(obj); err != nil {
		w.t.Errorf("write %s: %v", key, err)
	}
	v := versionOf(obj)
	w.mu.live[gvr][key] = v
	w.mu.known[gvr][v] = true
	w.mu.history[gvr] = append(w.mu.history[gvr], v)
	return v
}

// remove deletes an object if it exists.
func (w *world) remove(gvr schema.GroupVersionResource, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v, exists := w.mu.live[gvr][key]
	if !exists {
		return
	}
	obj := kinds[gvr]()
	namespace, name, _ := strings.Cut(key, "/")
	obj.SetNamespace(namespace)
	obj.SetName(name)
	if err := w.server.Delete(obj); err != nil {
		w.t.Errorf("delete %s: %v", key, err)
	}
	v.deleted, v.rv = true, w.revisionLocked()
	delete(w.mu.live[gvr], key)
	w.mu.history[gvr] = append(w.mu.history[gvr], v)
}

// beat writes an object that nobody watches, as something always does in a real
// cluster: without it the version of a quiet cluster stands still, and a resumed
// watch whose newest change is hidden by its selector gets no bookmark.
func (w *world) beat() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.values++
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{"beat": fmt.Sprint(w.mu.values)}}}
	write := w.server.Update
	if _, err := w.server.Get(corev1.SchemeGroupVersion.WithResource("nodes"), "", "node"); err != nil {
		write = w.server.Create
	}
	if err := write(node); err != nil {
		w.t.Errorf("write a node: %v", err)
	}
}

func (w *world) revision() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.revisionLocked()
}

func (w *world) revisionLocked() uint64 {
	rv, err := strconv.ParseUint(w.server.ResourceVersion(), 10, 64)
	if err != nil {
		w.t.Error(err)
	}
	return rv
}

// now is what the server has of a collection, by key.
func (w *world) now(s spec) map[string]version {
	w.mu.Lock()
	defer w.mu.Unlock()
	state := map[string]version{}
	for key, v := range w.mu.live[s.gvr] {
		if s.selects(v) {
			state[key] = v
		}
	}
	return state
}

// at is what the server had at a resourceVersion.
func (w *world) at(s spec, rv uint64) map[string]version {
	w.mu.Lock()
	defer w.mu.Unlock()
	state := map[string]version{}
	for _, v := range w.mu.history[s.gvr] {
		switch {
		case v.rv > rv:
			return state
		case v.deleted || !s.selects(v):
			delete(state, v.key)
		default:
			state[v.key] = v
		}
	}
	return state
}

// was reports whether the server ever had this version in this collection.
func (w *world) was(s spec, v version) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return s.selects(v) && w.mu.known[s.gvr][v]
}

// changedSince returns the keys whose newest change is above rv.
func (w *world) changedSince(s spec, rv uint64) map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := map[string]bool{}
	for _, v := range slices.Backward(w.mu.history[s.gvr]) {
		if v.rv <= rv {
			break
		}
		changed[v.key] = true
	}
	return changed
}
