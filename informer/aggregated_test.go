package informer_test

import (
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/warmcache/warmcache/internal/apitest"
)

// aggregatedServers differ from kube-apiserver in what has been seen in public ones.
var aggregatedServers = []struct {
	name string
	apitest.Aggregated
	lists aggregatedLists
}{{
	name:       "versions that cannot be compared",
	Aggregated: apitest.Aggregated{Objects: apitest.Opaque, Lists: apitest.Opaque},
	lists:      aggregatedLists{cold: 1, unchanged: 1, changed: 1, cut: 1},
}, {
	name:       "versions of objects only",
	Aggregated: apitest.Aggregated{Lists: apitest.Unversioned},
	lists:      aggregatedLists{cold: 1, unchanged: 1, changed: 1, cut: 1, ended: 1},
}, {
	name:       "versions that count the changes of an object",
	Aggregated: apitest.Aggregated{Objects: apitest.PerObject, Lists: apitest.Unversioned, NoReplay: true},
	lists:      aggregatedLists{cold: 1, unchanged: 1, changed: 1, cut: 1, ended: 1},
}, {
	name:       "version 0",
	Aggregated: apitest.Aggregated{Lists: apitest.AlwaysZero},
	lists:      aggregatedLists{cold: 1, unchanged: 1, changed: 1, cut: 1, ended: 1},
}, {
	name:       "no replay",
	Aggregated: apitest.Aggregated{NoReplay: true, NoBookmarks: true, NoInitialEvents: true},
	lists:      aggregatedLists{cold: 2, changed: 1, cut: 1},
}, {
	name:       "no bookmarks",
	Aggregated: apitest.Aggregated{NoBookmarks: true},
	lists:      aggregatedLists{cold: 1},
}, {
	name:       "no initial events",
	Aggregated: apitest.Aggregated{NoInitialEvents: true},
	lists:      aggregatedLists{cold: 2, changed: 1, cut: 1},
}, {
	name:       "no limits",
	Aggregated: apitest.Aggregated{NoLimit: true},
	lists:      aggregatedLists{cold: 1},
}, {
	name:       "no order",
	Aggregated: apitest.Aggregated{Unordered: true},
	lists:      aggregatedLists{cold: 1},
}, {
	name:       "no selectors",
	Aggregated: apitest.Aggregated{NoSelectors: true},
	lists:      aggregatedLists{cold: 1},
}, {
	name: "all of that",
	Aggregated: apitest.Aggregated{
		Objects: apitest.PerObject, Lists: apitest.Unversioned,
		NoReplay: true, NoBookmarks: true, NoInitialEvents: true, NoLimit: true, Unordered: true, NoSelectors: true,
	},
	lists: aggregatedLists{cold: 2, unchanged: 2, changed: 2, cut: 1, ended: 1},
}}

// aggregatedLists says how many requests for lists there are at most.
type aggregatedLists struct {
	// At a start with nothing stored, and after one with which nothing has changed,
	// or something has.
	cold, unchanged, changed int
	// After a watch that was cut, and one that ended in time.
	cut, ended int
}

// TestAggregated follows informers of each server through restarts and lost
// connections. They always end with what the server has, and HasSynced is not early.
func TestAggregated(t *testing.T) {
	for _, server := range aggregatedServers {
		t.Run(server.name, func(t *testing.T) {
			o := apitest.Options{Aggregated: map[schema.GroupVersionResource]apitest.Aggregated{configMaps: server.Aggregated}}
			bothResidenciesWith(t, o, func(t *testing.T, w *world) {
				for n := range 20 {
					w.create(name(n))
				}
				listed := func(when string, most int) {
					t.Helper()
					if full, whole := w.count(isFull), w.count(isWholeAnswer); max(full, whole) > most {
						t.Errorf("%s: %d requests for lists, %d answers with the collection, want %d", when, full, whole, most)
					}
					w.server.ResetRequests()
				}
				p := w.start().synced()
				w.churn(1)
				p.converged()
				listed("cold", server.lists.cold)
				p.kill()

				p = w.start().synced()
				p.converged()
				listed("unchanged", server.lists.unchanged)
				p.kill()

				w.churn(2)
				p = w.start().synced()
				p.converged()
				listed("changed", server.lists.changed)

				for round := range 5 {
					time.Sleep(time.Minute)
					w.whileApart(func() { w.churn(3 + round) })
					time.Sleep(afterwards)
					p.converged()
					listed("cut", server.lists.cut)
				}

				for round := range 6 {
					w.churn(10 + round)
					time.Sleep(outage)
				}
				p.converged()
				watches := int(6*outage/(5*time.Minute)) + 1 // each lasts five minutes at least
				listed("ended", server.lists.ended*watches)
				p.stop()
			})
		})
	}
}

// TestAggregated_NoReplay_EventsProveNothing checks that what happens while a copy is
// brought up to date is not taken for all that has happened since.
func TestAggregated_NoReplay_EventsProveNothing(t *testing.T) {
	o := apitest.Options{Aggregated: map[schema.GroupVersionResource]apitest.Aggregated{
		configMaps: {NoReplay: true, NoBookmarks: true, NoInitialEvents: true},
	}}
	bothResidenciesWith(t, o, func(t *testing.T, w *world) {
		w.create("a", "b")
		w.start().synced().kill()
		w.delete("a")
		p := w.prepare()
		p.recorder = p.handle()
		// In the first round, which follows two seconds of asking for what was forgotten.
		time.AfterFunc(3*time.Second, func() { w.create("c") })
		p.run()
		p.synced()
		defer p.stop()
		w.wantEvents(p.recorder, "initial a", "delete a", "initial b", "initial c")
		p.converged()
		if got := p.lists(); got != 1 {
			t.Errorf("%d lists, want 1", got)
		}
	})
}

// TestAggregated_NoInitialEvents_TakesHalfAMinuteOnce checks that a server that never ends
// a streamed list is not asked for another, after a restart neither.
func TestAggregated_NoInitialEvents_TakesHalfAMinuteOnce(t *testing.T) {
	o := apitest.Options{Aggregated: map[schema.GroupVersionResource]apitest.Aggregated{configMaps: {NoInitialEvents: true}}}
	bothResidenciesWith(t, o, func(t *testing.T, w *world) {
		w.create("a", "b")
		start := time.Now()
		p := w.start().synced()
		if got := time.Since(start); got != 30*time.Second {
			t.Errorf("listed after %s", got)
		}
		w.server.FailWatches(http.StatusGone)
		w.delete("a")
		time.Sleep(30 * time.Second)
		p.converged()
		p.kill()
		w.server.Compact()
		w.create("c")
		start = time.Now()
		p = w.start().synced()
		defer p.stop()
		if got := time.Since(start); got > 10*time.Second { // of which a round takes three
			t.Errorf("listed after %s again", got)
		}
		p.converged()
	})
}

// TestAggregated_NoWatch checks a collection that can be listed only, like those of
// metrics: it is as fresh as client-go's backoff makes it.
func TestAggregated_NoWatch(t *testing.T) {
	o := apitest.Options{Aggregated: map[schema.GroupVersionResource]apitest.Aggregated{
		configMaps: {Objects: apitest.Unversioned, Lists: apitest.Unversioned, NoWatch: true},
	}}
	bothResidenciesWith(t, o, func(t *testing.T, w *world) {
		w.create("a", "b")
		w.start().synced().kill()
		w.delete("a")
		p := w.start().synced()
		defer p.stop()
		w.wantEvents(p.recorder, "initial a", "delete a", "initial b")
		for n := range 10 {
			w.create(name(n))
			time.Sleep(outage / 10)
			p.converged()
		}
		lists, watches := w.count(isPage), w.count(isResumed)
		if lists > attempts(outage) || lists < watches-1 {
			t.Errorf("%d lists in %s, with %d watches that were refused, each of which calls for one", lists, outage, watches)
		}
	})
}

// whileApart changes the server while nobody can watch it.
func (w *world) whileApart(change func()) {
	w.t.Helper()
	if err := w.server.Down(); err != nil {
		w.t.Fatal(err)
	}
	change()
	if err := w.server.Up(); err != nil {
		w.t.Fatal(err)
	}
}

// churn creates, updates, deletes and recreates objects.
func (w *world) churn(round int) {
	w.t.Helper()
	w.create(name(100 + round))
	w.update(name(10), name(round))
	w.update(name(11), name(round))
	w.delete(name(round%5), name(5+round%5))
	w.create(name(round%5), name(5+round%5))
}

// isWholeAnswer matches what was answered with several objects.
func isWholeAnswer(r apitest.Request) bool { return isOurs(r) && r.Items > 1 }
