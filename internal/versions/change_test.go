package versions

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmcache/warmcache/informer"
)

// use is a version of the program with its settings.
type use struct {
	*version
	settings settings
	// looks is how it sees each of the objects.
	looks string
}

func (u use) index(names ...string) map[string][]string {
	keys := []string{}
	for _, name := range names {
		keys = append(keys, "default/"+name)
	}
	value := map[string]string{"tier": "front", "role": "db"}[u.rules]
	return map[string][]string{u.rules + "=" + value: keys}
}

// change is one of the program.
type change struct {
	name     string
	resource string
	from, to use
	// remade says that records have to be made anew, which takes a list.
	remade bool
	// reindexed says that, without a list, the stored index is made anew.
	reindexed bool
}

var changes = []change{
	{
		name: "type gains a field", resource: widgets, remade: true,
		from: use{version: first, looks: "{Color:red} {Maker:acme}"},
		to:   use{version: gained, looks: "{Color:red Size:7} {Maker:acme}"},
	},
	{
		name: "type of a module gains a field", resource: widgets, remade: true,
		from: use{version: first, looks: "{Color:red} {Maker:acme}"},
		to:   use{version: upgraded, looks: "{Color:red} {Maker:acme Weight:3}"},
	},
	{
		name: "codec changes", resource: widgets, remade: true,
		from: use{version: first, looks: "{Color:red} {Maker:acme}"},
		to:   use{version: recoded, looks: "{Color:red} {Maker:acme}"},
	},
	{
		name: "program is built again", resource: widgets, reindexed: true,
		from: use{version: first, looks: "{Color:red} {Maker:acme}"},
		to:   use{version: rebuilt, looks: "{Color:red} {Maker:acme}"},
	},
	{
		name: "transform is added", resource: configMaps, remade: true,
		from: use{version: first, looks: "one ", settings: settings{IndexVersion: "1"}},
		to:   use{version: first, looks: "one tier", settings: settings{IndexVersion: "1", Transform: true}},
	},
	{
		name: "transform changes", resource: configMaps, remade: true,
		from: use{version: first, looks: "one tier", settings: settings{Transform: true}},
		to:   use{version: otherRules, looks: "one role", settings: settings{Transform: true}},
	},
	{
		name: "transform has another version", resource: configMaps, remade: true,
		from: use{version: first, looks: "one tier", settings: settings{IndexVersion: "1", Transform: true, TransformVersion: "1"}},
		to:   use{version: first, looks: "one tier", settings: settings{IndexVersion: "1", Transform: true, TransformVersion: "2"}},
	},
	{
		name: "transform and index of the same versions, built again", resource: configMaps,
		from: use{version: first, looks: "one tier", settings: settings{IndexVersion: "1", Transform: true, TransformVersion: "1"}},
		to:   use{version: rebuilt, looks: "one tier", settings: settings{IndexVersion: "1", Transform: true, TransformVersion: "1"}},
	},
	{
		name: "index function changes", resource: configMaps, reindexed: true,
		from: use{version: first, looks: "one "},
		to:   use{version: otherRules, looks: "one "},
	},
	{
		name: "index function has another version", resource: configMaps, reindexed: true,
		from: use{version: first, looks: "one ", settings: settings{IndexVersion: "1"}},
		to:   use{version: otherRules, looks: "one ", settings: settings{IndexVersion: "2"}},
	},
}

// TestChange runs the program before and after a change, and then again the one from
// before: a downgrade is a change, too.
func TestChange(t *testing.T) {
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			inBothResidencies(t, c.resource, func(w *world) {
				r := w.run(c.from.version, c.from.settings)
				w.want("at first", r, c.from, "a", "b", "c")
				w.wantStart("at first", r, informer.OutcomeCold, "nothing is stored yet", 1)

				w.delete("a")
				w.create("d")
				w.changed("upgraded", c, c.to, "abc", "bcd", "a")
				w.delete("b")
				w.create("e")
				w.changed("downgraded", c, c.from, "bcd", "cde", "ab")
			})
		})
	}
}

// changed runs the other version, offline and online, and checks that it does what is
// documented, and that the next start has nothing left to do. Objects have names of one
// letter. The deletes of those that are gone are still being delivered.
func (w *world) changed(when string, c change, now use, before, after, gone string) {
	w.t.Helper()
	r := w.runOffline(now.version, now.settings, !c.remade)
	shown := map[string]string{}
	if !c.remade {
		shown = all(now.looks, letters(before)...)
	}
	if diff := cmp.Diff(shown, r.Objects); diff != "" || !maps.Equal(shown, r.known()) || r.Synced == c.remade || r.Confirmed {
		w.t.Errorf("%s, offline: synced %v, confirmed %v, events %q, objects (-want +got):\n%s", when, r.Synced, r.Confirmed, r.Events, diff)
	}
	if anew := r.Indexed >= int64(len(before)); w.disk && !c.remade && anew != c.reindexed {
		w.t.Errorf("%s, offline: the index function was called %d times; want all objects indexed anew: %v", when, r.Indexed, c.reindexed)
	}

	r = w.run(now.version, now.settings)
	w.want(when, r, now, letters(after)...)
	if c.remade {
		w.wantStart(when, r, informer.OutcomeCold, "written with another version of the type, the codec or the transform", 1)
	} else {
		w.wantStart(when, r, informer.OutcomeResumed, "the watch went on", 0)
	}
	w.wantDeletes(when, r, letters(gone)...)
	if now.settings.Transform && !c.remade && r.Transformed != 2 {
		w.t.Errorf("%s: the transform was called %d times, want two, for what has come and what is gone", when, r.Transformed)
	}

	r = w.run(now.version, now.settings)
	w.want(when+", again", r, now, letters(after)...)
	w.wantStart(when+", again", r, informer.OutcomeResumed, "the server is still at", 0)
	w.wantDeletes(when+", again", r, letters(gone)...)
	if w.disk && r.Indexed != 0 {
		w.t.Errorf("%s, again: the index function was called %d times, although its index is stored", when, r.Indexed)
	}
	if r.Transformed != 0 {
		w.t.Errorf("%s, again: the transform was called %d times, although nothing has changed", when, r.Transformed)
	}
}

// want checks that reads, the index, the handler and the file agree on the objects.
func (w *world) want(when string, r report, u use, names ...string) {
	w.t.Helper()
	want := all(u.looks, names...)
	if diff := cmp.Diff(want, r.Objects); diff != "" {
		w.t.Errorf("%s: objects (-want +got):\n%s", when, diff)
	}
	if known := r.known(); !maps.Equal(want, known) {
		w.t.Errorf("%s: the handler knows %v, want %v", when, known, want)
	}
	if diff := cmp.Diff(u.index(names...), r.sortedIndex()); diff != "" {
		w.t.Errorf("%s: index (-want +got):\n%s", when, diff)
	}
	w.wantStored(when, w.identity(), r)
}

// wantStart checks what became of the stored copy, and what the server was asked for.
func (w *world) wantStart(when string, r report, outcome informer.Outcome, reason string, lists int) {
	w.t.Helper()
	if r.Outcome != string(outcome) || !strings.Contains(r.Reason, reason) || !r.Persistent {
		w.t.Errorf("%s: %s because %q, persistent %v; want %s because %q", when, r.Outcome, r.Reason, r.Persistent, outcome, reason)
	}
	if got := w.lists(); got != lists || r.Lists != lists {
		w.t.Errorf("%s: the server was asked for %d lists, the program knows of %d, want %d\n%s", when, got, r.Lists, lists, w.requests())
	}
}

func (w *world) requests() string {
	var b strings.Builder
	for _, r := range w.server.Requests() {
		fmt.Fprintln(&b, r.Verb, r.Path, r.Query, r.Status)
	}
	return b.String()
}
