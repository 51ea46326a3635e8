package versions

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store"
)

// TestSelection_Changes checks that a program that selects something else never sees what
// it has selected before, has a place of its own in the file, and goes on where it was
// when it selects that again.
func TestSelection_Changes(t *testing.T) {
	everything := store.Identity{Version: "v1", Resource: configMaps, Form: store.FormTyped}
	for name, other := range map[string]struct {
		settings settings
		where    func(*store.Identity)
		selected string
	}{
		"labels":         {settings{Labels: "name in (b,c)"}, func(id *store.Identity) { id.LabelSelector = "name in (b,c)" }, "bc"},
		"fields":         {settings{Fields: "metadata.name=b"}, func(id *store.Identity) { id.FieldSelector = "metadata.name=b" }, "b"},
		"namespace":      {settings{Namespace: "default"}, func(id *store.Identity) { id.Namespace = "default" }, "bcd"},
		"nothing of all": {settings{Namespace: "kube-system"}, func(id *store.Identity) { id.Namespace = "kube-system" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBothResidencies(t, configMaps, func(w *world) {
				w.run(first, settings{})
				w.delete("a")
				w.create("d")
				r := w.runOffline(first, other.settings, false)
				if len(r.Objects) != 0 || len(r.Events) != 0 || r.Synced {
					w.t.Errorf("offline: %+v, want nothing", r)
				}

				id := everything
				other.where(&id)
				want := all("one ", letters(other.selected)...)
				r = w.run(first, other.settings)
				w.wantStart("selected", r, informer.OutcomeCold, "nothing is stored yet", 1)
				w.wantSelected("selected", id, r, want)
				w.wantDeletes("selected", r)
				r = w.run(first, other.settings)
				w.wantStart("selected again", r, informer.OutcomeResumed, "", 0)
				w.wantSelected("selected again", id, r, want)

				r = w.run(first, settings{})
				w.wantStart("everything again", r, informer.OutcomeResumed, "the watch went on", 0)
				w.wantSelected("everything again", everything, r, all("one ", "b", "c", "d"))
				w.wantDeletes("everything again", r, "a")
			})
		})
	}
}

func (w *world) wantSelected(when string, id store.Identity, r report, want map[string]string) {
	w.t.Helper()
	if diff := cmp.Diff(want, r.Objects); diff != "" {
		w.t.Errorf("%s: objects (-want +got):\n%s", when, diff)
	}
	if diff := cmp.Diff(want, r.known()); diff != "" {
		w.t.Errorf("%s: what the handler knows (-want +got):\n%s", when, diff)
	}
	w.wantStored(when, id, r)
}

// TestResidency_Changes checks that both residencies take what the other has written.
func TestResidency_Changes(t *testing.T) {
	inBothResidencies(t, configMaps, func(w *world) {
		now := use{version: first, looks: "one "}
		w.want("at first", w.run(first, settings{}), now, "a", "b", "c")
		w.delete("a")
		w.create("d")
		for range 2 {
			w.disk = !w.disk
			r := w.run(first, settings{})
			w.want("changed", r, now, "b", "c", "d")
			w.wantStart("changed", r, informer.OutcomeResumed, "", 0)
			w.wantDeletes("changed", r, "a")
			if w.disk && r.Indexed > 2 {
				w.t.Errorf("the index function was called %d times, want those of what has come and what is gone", r.Indexed)
			}
		}
	})
}
