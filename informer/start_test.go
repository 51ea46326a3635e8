package informer_test

import (
	"testing"
	"time"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/apitest"
	"github.com/warmcache/warmcache/reflector"
)

func TestStart_Cold(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a", "b")
		p := w.start().synced()
		defer p.stop()
		w.wantEvents(p.recorder, "initial a", "initial b")
		w.create("c")
		w.update("a", "new")
		w.delete("b")
		w.wantEvents(p.recorder, "add c", "update a", "delete b")
		p.converged()
		if got := p.lists(); got != 1 {
			t.Errorf("%d lists, want 1", got)
		}
		if s := p.status(); !s.Synced || !s.Confirmed || s.Phase != reflector.PhaseWatching || s.Objects != 2 || !s.Persistent {
			t.Errorf("status %+v", s)
		}
	})
}

func TestStart_ResumesAndDeliversWhatHappenedMeanwhile(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("changed", "deleted", "recreated", "same")
		p := w.start().synced()
		p.kill()
		w.update("changed", "new")
		w.delete("deleted", "recreated")
		w.create("added", "recreated")

		p = w.start().synced()
		defer p.stop()
		w.wantEvents(p.recorder,
			"initial deleted", "delete deleted", "initial recreated", "delete recreated",
			"initial added", "initial changed", "initial recreated", "initial same")
		p.converged()
		if got := p.lists(); got != 0 {
			t.Errorf("%d lists at a warm start", got)
		}
		if s := p.status(); !s.Confirmed || s.ListReason != "" {
			t.Errorf("status %+v", s)
		}
	})
}

func TestStart_NothingHappenedMeanwhile(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a", "b")
		w.start().synced().kill()
		start := time.Now()
		p := w.start().synced()
		defer p.stop()
		w.wantEvents(p.recorder, "initial a", "initial b")
		p.converged()
		if p.lists() != 0 || time.Since(start) > 100*time.Millisecond {
			t.Errorf("%d lists, synced after %s; equal versions need no proof by watch", p.lists(), time.Since(start))
		}
	})
}

func TestStart_ExpiredVersionListsAndReconciles(t *testing.T) {
	bothResidencies(t, func(t *testing.T, w *world) {
		w.create("changed", "deleted", "recreated", "same")
		w.start().synced().kill()
		w.update("changed", "new")
		w.delete("deleted", "recreated")
		w.create("added", "recreated")
		w.server.Compact()

		p := w.start().synced()
		defer p.stop()
		w.wantEvents(p.recorder,
			"initial deleted", "delete deleted", "initial recreated", "delete recreated",
			"initial added", "initial changed", "initial recreated", "initial same")
		p.converged()
		if got := p.lists(); got != 1 {
			t.Errorf("%d lists, want 1", got)
		}
		if s := p.status(); s.ListReason == "" || !s.Confirmed {
			t.Errorf("status %+v", s)
		}
	})
}

func TestStart_ServerRestoredToBefore(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a", "b")
		before := w.server.Snapshot()
		w.create("c")
		w.update("a", "new")
		w.start().synced().kill()
		w.server.Restore(before)

		p := w.start().synced()
		defer p.stop()
		w.wantEvents(p.recorder, "initial c", "delete c", "initial a", "initial b")
		p.converged()
	})
}

func TestStart_ServerRestoredAndPastOurVersion(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a", "b")
		before := w.server.Snapshot()
		w.create("c", "d")
		w.start().synced().kill()
		w.server.Restore(before)
		w.create("e", "f", "g") // passes the version of the stored copy
		w.delete("e")           // of which the copy knows nothing

		p := w.start().synced()
		defer p.stop()
		p.converged()
		if got := p.lists(); got != 1 {
			t.Errorf("%d lists, want 1 because of the contradiction", got)
		}
	})
}

func TestStart_ServerDownThenUp(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a")
		w.start().synced().kill()
		if err := w.server.Down(); err != nil {
			t.Fatal(err)
		}
		p := w.start()
		defer p.stop()
		time.Sleep(time.Minute) // of the bubble's clock
		if p.informer.HasSynced() {
			t.Error("synced without a server under the Confirmed policy")
		}
		if _, exists, _ := p.informer.GetStore().GetByKey("default/a"); !exists {
			t.Error("stored objects cannot be read while the server is down")
		}
		if s := p.status(); s.Err == nil || s.Confirmed {
			t.Errorf("status %+v", s)
		}
		if err := w.server.Up(); err != nil {
			t.Fatal(err)
		}
		w.create("b")
		p.synced()
		w.wantEvents(p.recorder, "initial a", "initial b")
		p.converged()
		if got := p.lists(); got != 0 {
			t.Errorf("%d lists", got)
		}
	})
}

func TestStart_StalePolicy(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a", "b")
		w.start().synced().kill()
		if err := w.server.Down(); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		p := w.start(func(o *informer.Options) { o.Start = informer.Stale(20 * time.Second) }).synced()
		defer p.stop()
		if got := time.Since(start); got != 20*time.Second {
			t.Errorf("shown after %s, want 20s", got)
		}
		if s := p.status(); s.Confirmed {
			t.Error("confirmed without a server")
		}
		w.wantEvents(p.recorder, "initial a", "initial b")
		if err := w.server.Up(); err != nil {
			t.Fatal(err)
		}
		w.delete("a")
		w.create("c")
		time.Sleep(2 * time.Minute)
		w.wantEvents(p.recorder, "delete a", "add c")
		p.converged()
		if s := p.status(); !s.Confirmed {
			t.Error("not confirmed although the server is back")
		}
	})
}

func TestStart_ResumedPolicy(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a", "b")
		w.start().synced().kill()
		w.update("a", "new")
		w.server.Inject(apitest.Fault{Verb: "watch", NoBookmarks: true})
		start := time.Now()
		p := w.start(func(o *informer.Options) { o.Start = informer.Resumed }).synced()
		defer p.stop()
		if got := time.Since(start); got > time.Second {
			t.Errorf("shown after %s", got)
		}
		p.converged()
	})
}
