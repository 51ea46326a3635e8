package e2e

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/warmcache/warmcache/informer"
)

// size1 is the spec of an object that nobody has changed yet.
var size1 = map[string]any{"size": int64(1)}

// storeWidgets runs a process until it has stored objects object-000 to -019.
func (w *widgets) storeWidgets(spec map[string]any) {
	w.t.Helper()
	w.add(spec, names("object", 20)...)
	c := w.start()
	c.wantCurrent(c.waitSynced())
	c.wantLists(1)
	c.waitPersisted()
	c.kill()
}

func TestCustomResource_Restart_ResumesWithoutList(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		w := newWidgets(t, sizeOnly)
		w.residing(r)
		w.storeWidgets(size1)

		w.add(size1, "new")
		w.resize(2, "object-000", "object-001")
		w.remove("object-002", "object-003")
		w.add(size1, "object-003")

		c := w.start()
		c.wantCurrent(c.waitSynced())
		c.wantLists(0)
		c.wantDeparted("object-002", "object-003")
		// 19 objects that were there before or recreated, one new; two departed.
		c.wantDelivered(counts{Adds: 20 + 2, InitialAdds: 20 + 2, Deletes: 2})
		c.terminate()

		// The deletes are recent enough to be told again.
		c = w.start()
		c.wantCurrent(c.waitSynced())
		c.wantLists(0)
		c.wantDeparted("object-002", "object-003")
		c.wantDelivered(counts{Adds: 20 + 2, InitialAdds: 20 + 2, Deletes: 2})
	})
}

// A default changes what objects contain, and neither their versions nor the
// files: etcd has no trace of it.
func TestCustomResource_FieldWithDefaultAdded_ShowsInAllForms(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		w := newWidgets(t, sizeOnly)
		w.residing(r)
		w.storeWidgets(size1)

		w.define(version{"v1", sizeAndColor})
		w.waitForColor("object-000", "red")
		w.remove("object-001")

		w.wantRelisted("object-001")
	})
}

func TestCustomResource_FieldRemoved_DisappearsFromAllForms(t *testing.T) {
	w := newWidgets(t, sizeAndColor)
	w.storeWidgets(map[string]any{"size": int64(1), "color": "blue"})

	w.define(version{"v1", sizeOnly})
	w.waitForColor("object-000", "")
	w.remove("object-001")

	w.wantRelisted("object-001")
}

// wantRelisted tests that the next process lists once, has everything as the
// server has it, and stores that.
func (w *widgets) wantRelisted(departed ...string) {
	w.t.Helper()
	c := w.start()
	c.wantCurrent(c.waitSynced())
	c.wantLists(1)
	c.wantDeparted(departed...)
	c.waitPersisted()
	c.kill()

	c = w.start()
	c.wantCurrent(c.waitSynced())
	c.wantLists(0)
	c.wantDeparted(departed...)
	c.terminate()
}

func TestCustomResource_VersionAdded_OldInformersGoOnAndNewOnesAreCold(t *testing.T) {
	w := newWidgets(t, sizeOnly)
	w.storeWidgets(size1)

	w.define(version{"v1", sizeOnly}, version{"v2", sizeAndColor})
	w.remove("object-000")
	// Stored as v2 from now on.
	w.resize(2, "object-001")
	for _, door := range []door{dynamicDoor, metadataDoor, schemeDoor} {
		w.subscribe(subscription{Name: string(door) + "/v2", Resource: widgetsV2, selection: selection{Door: door, Namespace: w.namespace}})
	}
	c := w.start()
	c.wantCurrent(c.waitSynced())
	for name, view := range c.views {
		departed, _ := splitReplay(view.events())
		if isNew := strings.HasSuffix(name, "/v2"); len(departed) == 0 != isNew {
			t.Errorf("%s: departed objects are %v", name, departed)
		}
		if r := c.requests(name); r.Lists > 1 {
			t.Errorf("%s: %s, want one list at most", name, r)
		}
	}
	c.waitPersisted()
	c.kill()

	w.resize(3, "object-002")
	w.remove("object-003")
	c = w.start()
	c.wantCurrent(c.waitSynced())
	c.wantLists(0)
}

func TestCustomResource_DefinitionRecreated_TellsWhatVanishedAndWhatIsNew(t *testing.T) {
	w := newWidgets(t, sizeOnly)
	w.storeWidgets(size1)
	// Some of the same names, one new.
	recreated := names("object", 10)
	w.undefine()
	w.define(version{"v1", sizeAndColor})
	w.add(size1, recreated...)
	w.add(size1, "new")

	c := w.start()
	c.wantCurrent(c.waitSynced())
	c.wantLists(1)
	c.wantDeparted(names("object", 20)...)
	c.wantDelivered(counts{Adds: 20 + 11, InitialAdds: 20 + 11, Deletes: 20})
	c.waitPersisted()
	c.kill()

	c = w.start()
	c.wantCurrent(c.waitSynced())
	c.wantLists(0)
	c.wantDeparted(names("object", 20)...)
}

// errNotServed is what a server says of a resource that it does not know.
const errNotServed = "the server could not find the requested resource"

// Without its definition nothing can be said about a resource: not even that its
// objects are gone. What is stored can be read, is not confirmed, and handlers are
// told nothing until the resource is there again.
func TestCustomResource_DefinitionDeleted_WaitsUntilItIsBack(t *testing.T) {
	w := newWidgets(t, sizeOnly)
	w.storeWidgets(size1)
	stored := w.fresh()
	w.undefine()

	c := w.start()
	c.waitUntil("the server has been asked", func(now contents) error {
		if !strings.Contains(now.Status.Err, errNotServed) {
			return errors.New("it has not said that there is no such resource")
		}
		return nil
	})
	for name, now := range c.look().Informers {
		if now.Status.Synced || now.Status.Confirmed || !now.Status.Persistent {
			t.Errorf("%s: status without the resource: %+v", name, now.Status)
		}
		if err := differs("indexer of "+name, stored[name], now.Objects); err != nil {
			t.Error(err)
		}
	}
	c.wantDelivered(counts{})

	w.define(version{"v1", sizeOnly})
	w.add(size1, "object-000", "new")
	c.waitSynced()
	c.waitCurrent()
	for name, view := range c.views {
		departed, _ := splitReplay(view.events())
		if len(departed) != 20 {
			t.Errorf("%s: %d objects departed, want all 20", name, len(departed))
		}
	}
	c.terminate()
}

// The policy for a server that is out of reach does not apply to one that answers.
func TestCustomResource_DefinitionDeleted_IsNotStale(t *testing.T) {
	w := newWidgets(t, sizeOnly)
	w.storeWidgets(size1)
	w.undefine()
	w.config.Stale = 2 * time.Second

	c := w.start()
	// The pause before the fourth attempt is of 3.2 s at least.
	c.waitUntil("the server has been asked for a while", func(now contents) error {
		if now.Status.Synced {
			t.Fatalf("synced although the server answers; status: %+v", now.Status)
		}
		for name := range c.views {
			if r := c.requests(name); r.Probes < 4 {
				return errors.New("few requests yet")
			}
		}
		return nil
	})
	c.wantDelivered(counts{})
	w.define(version{"v1", sizeOnly})
	c.waitSynced()
	c.waitCurrent()
}

// The definition goes and comes while the process runs, as when an operator is
// installed again.
func TestCustomResource_DefinitionRecreatedWhileRunning_IsFollowed(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		w := newWidgets(t, sizeOnly)
		w.residing(r)
		w.add(size1, names("object", 20)...)
		c := w.start()
		c.wantCurrent(c.waitSynced())

		w.undefine()
		c.waitUntil("all objects are gone", func(now contents) error {
			if n := len(now.Objects); n > 0 {
				return errors.New("objects are left")
			}
			return nil
		})
		w.define(version{"v1", sizeAndColor})
		w.add(size1, "object-000", "new")
		c.waitCurrent()
		c.terminate()

		c = w.start()
		c.wantCurrent(c.waitSynced())
		for name := range c.views {
			want := 0
			if name == string(dynamicDoor) {
				want = 1 // It asked for the schema when it started, and stored that.
			}
			if r := c.requests(name); r.Lists != want {
				t.Errorf("%s: %s, want %d lists", name, r, want)
			}
		}
	})
}
