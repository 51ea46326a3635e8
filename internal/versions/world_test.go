package versions

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/warmcache/warmcache/internal/apitest"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
	"github.com/warmcache/warmcache/store/storetest"
)

// settings and report are those of the program.
type settings struct {
	URL, Path                      string
	Resource                       string
	Namespace, Labels, Fields      string
	Disk, Transform                bool
	TransformVersion, IndexVersion string
	Offline, Shown                 bool
}

type report struct {
	Objects              map[string]string
	Index                map[string][]string
	Events               []string
	Indexed, Transformed int64
	Synced, Confirmed    bool
	Outcome, Reason      string
	Lists                int
	Persistent           bool
}

// patience is how long a program may take.
const patience = 2 * time.Minute

// world is an API server and a file that outlive programs.
type world struct {
	t        *testing.T
	server   *apitest.Server
	path     string
	resource string
	disk     bool
}

// inBothResidencies runs a test with the objects a, b and c on the server.
func inBothResidencies(t *testing.T, resource string, test func(w *world)) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds programs, for a minute, which the race detector does not see")
	}
	for name, disk := range map[string]bool{"memory": false, "disk": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, resource)
			w.disk = disk
			test(w)
		})
	}
}

func newWorld(t *testing.T, resource string) *world {
	t.Helper()
	server, err := apitest.New(apitest.Options{
		CustomResources: []apitest.CustomResource{apitest.Widgets},
		// The proof of a resumed watch comes at once instead of after a second.
		BookmarkLead: 2900 * time.Millisecond, BookmarkInterval: 200 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &world{t: t, server: server, path: filepath.Join(t.TempDir(), "cache.db"), resource: resource}
	w.create("a", "b", "c")
	return w
}

// object returns an object that has everything that some version wants to know.
func (w *world) object(name string) runtime.Object {
	labels := map[string]string{"tier": "front", "role": "db", "name": name}
	if w.resource == configMaps {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels},
			Data:       map[string]string{"value": "one"},
		}
	}
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"spec": map[string]any{"color": "red", "size": int64(7)},
		"part": map[string]any{"maker": "acme", "weight": int64(3)},
	}}
	widget.SetNamespace("default")
	widget.SetName(name)
	widget.SetLabels(labels)
	return widget
}

const (
	configMaps = "configmaps"
	widgets    = "widgets"
)

func (w *world) create(names ...string) {
	w.t.Helper()
	for _, name := range names {
		if err := w.server.Create(w.object(name)); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) delete(name string) {
	w.t.Helper()
	if err := w.server.Delete(w.object(name)); err != nil {
		w.t.Fatal(err)
	}
}

// run runs a version of the program to its end. The log of requests begins anew.
func (w *world) run(v *version, s settings) report {
	w.t.Helper()
	s.URL, s.Path, s.Resource, s.Disk = w.server.URL(), w.path, w.resource, w.disk
	argument, err := json.Marshal(s)
	if err != nil {
		w.t.Fatal(err)
	}
	w.server.ResetRequests()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, v.executable(w.t), string(argument))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("version %s: %v\n%s", v.name, err, stderr.String())
	}
	var r report
	if err := json.Unmarshal(out, &r); err != nil {
		w.t.Fatalf("version %s says %q: %v", v.name, out, err)
	}
	bolttest.CheckFile(w.t, w.path)
	return r
}

// runOffline runs a version that cannot reach the server. shown says that it has something
// to show.
func (w *world) runOffline(v *version, s settings, shown bool) report {
	w.t.Helper()
	if err := w.server.Down(); err != nil {
		w.t.Fatal(err)
	}
	s.Offline, s.Shown = true, shown
	r := w.run(v, s)
	if err := w.server.Up(); err != nil {
		w.t.Fatal(err)
	}
	return r
}

// lists counts the lists of everything, in either form, that the last run has made.
func (w *world) lists() int {
	n := 0
	for _, r := range w.server.Requests() {
		switch {
		case r.Resource != w.resource:
		case r.Verb == "list" && r.Query.Get("limit") != "1":
			n++
		case r.Verb == "watch" && r.Query.Get("sendInitialEvents") == "true":
			n++
		}
	}
	return n
}

// stored returns what the file holds under an identity.
func (w *world) stored(id store.Identity) storetest.Contents {
	w.t.Helper()
	db, err := bolt.OpenReadOnly(w.path, bolt.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			w.t.Error(err)
		}
	}()
	c, err := db.Collection(id, "test")
	if err != nil {
		w.t.Fatal(err)
	}
	return storetest.Dump(w.t, c, "rules")
}

// identity is where the program keeps its objects if it selects nothing.
func (w *world) identity() store.Identity {
	if w.resource == configMaps {
		return store.Identity{Version: "v1", Resource: configMaps, Form: store.FormTyped}
	}
	return store.Identity{Group: "example.com", Version: "v1", Resource: widgets, Form: store.FormTyped}
}

// wantStored checks that a file holds what a report says: a complete collection with
// the same keys and index, and of one version.
func (w *world) wantStored(when string, id store.Identity, r report) {
	w.t.Helper()
	contents := w.stored(id)
	if contents.Header == nil || !contents.Header.Complete || contents.Header.RV == "" || contents.Header.Fingerprint == "" {
		w.t.Errorf("%s: the file has the header %+v", when, contents.Header)
	}
	keys := []string{}
	for _, o := range contents.Objects {
		keys = append(keys, o.Key)
	}
	if want := slices.Sorted(maps.Keys(r.Objects)); !slices.Equal(keys, want) {
		w.t.Errorf("%s: the file has %v, want %v", when, keys, want)
	}
	index := map[string][]string{}
	for _, v := range contents.Indices["rules"] {
		index[v.Value] = v.Keys
	}
	if diff := cmp.Diff(r.sortedIndex(), index); diff != "" {
		w.t.Errorf("%s: index in the file (-want +got):\n%s", when, diff)
	}
}

func (r report) sortedIndex() map[string][]string {
	index := map[string][]string{}
	for value, keys := range r.Index {
		index[value] = slices.Sorted(slices.Values(keys))
	}
	return index
}

// deletes are the keys that the handler was told are gone.
func (r report) deletes() []string {
	keys := []string{}
	for _, event := range r.Events {
		if below, ok := strings.CutPrefix(event, "delete "); ok {
			key, _, _ := strings.Cut(below, " ")
			keys = append(keys, key)
		}
	}
	return keys
}

// known is what the handler knows in the end, by key.
func (r report) known() map[string]string {
	known := map[string]string{}
	for _, event := range r.Events {
		word, below, _ := strings.Cut(event, " ")
		key, what, _ := strings.Cut(below, " ")
		if known[key] = what; word == "delete" {
			delete(known, key)
		}
	}
	return known
}

// letters are the names in a word of names of one letter.
func letters(word string) []string {
	if word == "" {
		return nil
	}
	return strings.Split(word, "")
}

// wantDeletes checks that the handler was told once of each delete, and of no other.
func (w *world) wantDeletes(when string, r report, names ...string) {
	w.t.Helper()
	want := slices.Sorted(maps.Keys(all("", names...)))
	if got := slices.Sorted(slices.Values(r.deletes())); !slices.Equal(got, want) {
		w.t.Errorf("%s: told of the deletes of %v, want %v", when, got, want)
	}
}

// all are objects with the same description.
func all(description string, names ...string) map[string]string {
	objects := map[string]string{}
	for _, name := range names {
		objects["default/"+name] = description
	}
	return objects
}
