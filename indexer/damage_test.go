package indexer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

// damagedTx reads what a damaged file would give.
type damagedTx struct {
	store.Tx
	header func() (store.Header, error)
	totals func(store.Totals) store.Totals
	// value returns what is read in place of a record; nil hides it.
	value     func(key string, value []byte) []byte
	get, scan error
}

func (t damagedTx) Header() (store.Header, error) {
	if t.header != nil {
		return t.header()
	}
	return t.Tx.Header()
}

func (t damagedTx) Totals() (store.Totals, error) {
	totals, err := t.Tx.Totals()
	if t.totals != nil {
		totals = t.totals(totals)
	}
	return totals, err
}

func (t damagedTx) Get(key string) ([]byte, error) {
	if t.get != nil {
		return nil, t.get
	}
	value, err := t.Tx.Get(key)
	if err == nil && t.value != nil {
		if value = t.value(key, slices.Clone(value)); value == nil {
			err = store.ErrNotFound
		}
	}
	return value, err
}

func (t damagedTx) Scan(from string, fn func(key, value []byte) bool) error {
	if t.scan != nil {
		return t.scan
	}
	return t.Tx.Scan(from, func(key, value []byte) bool {
		if t.value == nil {
			return fn(key, value)
		}
		if value = t.value(string(key), slices.Clone(value)); value == nil {
			return true
		}
		return fn(key, value)
	})
}

func (t damagedTx) wrap() startOptions {
	s := &spy{tx: func(tx store.Tx) store.Tx { t.Tx = tx; return t }}
	return startOptions{wrap: s.around}
}

// onlyB damages the record of pod b.
func onlyB(damage func([]byte) []byte) func(string, []byte) []byte {
	return func(key string, value []byte) []byte {
		if key == "ns/b" {
			return damage(value)
		}
		return value
	}
}

func TestIndexer_Load_DamageIsListedAgain(t *testing.T) {
	foreignRecord := store.Seal([]byte("what nobody can decode"))
	for name, damage := range map[string]damagedTx{
		"flipped bit":            {value: onlyB(func(v []byte) []byte { v[len(v)/2] ^= 4; return v })},
		"truncated":              {value: onlyB(func(v []byte) []byte { return v[:2] })},
		"valid checksum, no pod": {value: onlyB(func([]byte) []byte { return foreignRecord })},
		"record missing":         {value: onlyB(func([]byte) []byte { return nil })},
		"count":                  {totals: func(t store.Totals) store.Totals { t.Count++; return t }},
		"huge count":             {totals: func(t store.Totals) store.Totals { t.Count = 1 << 62; return t }},
		"negative count":         {totals: func(t store.Totals) store.Totals { t.Count = -1; return t }},
		"sum":                    {totals: func(t store.Totals) store.Totals { t.Sum++; return t }},
		"bytes":                  {totals: func(t store.Totals) store.Totals { t.Bytes++; return t }},
	} {
		t.Run(name, func(t *testing.T) {
			file := storetest.NewMemory()
			p := start(t, file, startOptions{})
			p.list("1", pod("a", "1", "x"), pod("b", "1", "x"), pod("c", "1", "x"))
			p.apply(Update{RV: "2", Changes: departing(remove("c"))})

			p = attach(t, file, damage.wrap())
			if p.attachErr != nil || p.origin.RV != "2" {
				t.Fatalf("Attach: %+v, %v", p.origin, p.attachErr)
			}
			if err := p.Load(context.Background()); !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("Load returned %v, want ErrCorrupt", err)
			}
			p.wantEmptied()
			p.wantUsable(file)
		})
	}
}

// wantEmptied checks that nothing of what was stored is left.
func (p *process) wantEmptied() {
	p.Helper()
	p.wantObjects()
	if len(p.Known().ListKeys()) != 0 || len(p.keysIn("app", "x")) != 0 || p.LastStoreSyncResourceVersion() != "" {
		p.Error("something is known or served")
	}
	got := p.dump()
	if len(got.Objects)+len(got.Indices)+len(got.Departed) != 0 {
		p.Errorf("the file holds %+v", got)
	}
	p.wantHeader("", false, "f1")
}

// wantUsable checks that a list and a restart work after damage.
func (p *process) wantUsable(file *storetest.Memory) {
	p.Helper()
	p.list("9", pod("n", "9", "y"))
	p.verify()
	next := start(p, file, startOptions{})
	next.wantObjects(pod("n", "9", "y"))
	if next.origin.RV != "9" {
		p.Errorf("origin %+v", next.origin)
	}
}

func TestIndexer_Attach_DamagedHeader(t *testing.T) {
	file := storetest.NewMemory()
	start(t, file, startOptions{}).list("1", pod("a", "1", "x"))
	damage := damagedTx{header: func() (store.Header, error) { return store.Header{}, fmt.Errorf("%w: test", store.ErrCorrupt) }}
	// As engines with group commit do, totals are those of the last commit.
	damage.totals = func(store.Totals) store.Totals { return store.Totals{Count: 1} }
	p := attach(t, file, damage.wrap())
	if !errors.Is(p.attachErr, store.ErrCorrupt) || p.origin.RV != "" || p.origin.Reason == "" || p.origin.Totals.Count != 0 {
		t.Errorf("Attach: %+v, %v", p.origin, p.attachErr)
	}
	if err := p.Load(context.Background()); err != nil {
		t.Errorf("Load of an emptied collection: %v", err)
	}
	p.wantEmptied()
	p.wantUsable(file)
}

// The indexer writes no object without a header: one that is missing was lost.
func TestIndexer_Attach_ObjectsWithoutHeader(t *testing.T) {
	file := storetest.NewMemory()
	start(t, file, startOptions{}).list("1", pod("a", "1", "x"))
	damage := damagedTx{header: func() (store.Header, error) { return store.Header{}, store.ErrNotFound }}
	p := attach(t, file, damage.wrap())
	if !errors.Is(p.attachErr, store.ErrCorrupt) || p.origin.RV != "" {
		t.Errorf("Attach: %+v, %v", p.origin, p.attachErr)
	}
	p.wantEmptied()
}

// A store that is closed, or cannot be read for another reason than damage, is
// no reason to drop what is in it.
func TestIndexer_UnreadableCollectionIsLeftAlone(t *testing.T) {
	for name, cause := range map[string]error{"closed": store.ErrClosed, "other": errors.New("out of memory")} {
		for _, failing := range []string{"Attach", "Load"} {
			t.Run(failing+" "+name, func(t *testing.T) {
				file := storetest.NewMemory()
				p := start(t, file, startOptions{})
				p.list("1", pod("a", "1", "x"))
				before := p.dump()

				s := &spy{}
				fail := func() error { return cause }
				if failing == "Attach" {
					s.onView = fail
				}
				p = attach(t, file, startOptions{wrap: s.around})
				s.onView = fail
				loadErr := p.Load(context.Background())
				if err := errors.Join(p.attachErr, loadErr); !errors.Is(err, cause) || errors.Is(err, store.ErrCorrupt) {
					t.Errorf("error %v, want %v", err, cause)
				}
				p.list("2", pod("b", "2", "x"))
				p.wantObjects(pod("b", "2", "x"))
				if diff := storetest.Diff(before, p.dump()); diff != "" {
					t.Errorf("the file was changed:\n%s", diff)
				}
			})
		}
	}
}

func TestIndexer_Attach_DamagedForeignRecordsAreKnown(t *testing.T) {
	file := storetest.NewMemory()
	start(t, file, startOptions{}).list("1", pod("a", "1", "x"), pod("b", "1", "x"))
	o := damagedTx{value: onlyB(func(v []byte) []byte { v[3] ^= 1; return v })}.wrap()
	o.fingerprint = "f2"
	p := start(t, file, o)
	p.apply(Update{Complete: true, RV: "2", Changes: departing(remove("a"), remove("b"))})
	if got := departedIDs(p); got != "ns/a uid-a, ns/b "+noUID {
		t.Errorf("departed %q", got)
	}
}

// refuse returns options whose collection refuses, with an error, every batch
// that touches the pod of this name, or all of them if name is empty.
func refuse(name string, cause error) startOptions {
	s := &spy{onApply: func(b store.Batch) error {
		for _, op := range b.Ops {
			if name == "" || op.Key == "ns/"+name {
				return cause
			}
		}
		return nil
	}}
	return startOptions{wrap: s.around}
}

// What cannot be written is served, the file says that it is incomplete, and the
// version in it is that of its objects.
func TestIndexer_Apply_UnwritableObject(t *testing.T) {
	for name, options := range map[string]startOptions{
		"cannot be encoded": {codec: picky{Codec: podCodec(t), encode: named("bad", errors.New("test"))}},
		"invalid batch":     refuse("bad", fmt.Errorf("%w: test", store.ErrInvalidBatch)),
	} {
		t.Run(name, func(t *testing.T) {
			file := storetest.NewMemory()
			p := start(t, file, options)
			p.list("1", pod("a", "1", "x"))
			bad := pod("bad", "2", "x")
			p.apply(Update{RV: "2", Changes: []Change{put(bad), put(pod("c", "2", "x"))}})
			p.wantObjects(pod("a", "1", "x"), bad, pod("c", "2", "x"))
			if got := p.LastStoreSyncResourceVersion(); got != "2" {
				t.Errorf("version %q", got)
			}
			p.wantHeader("1", false, "f1")

			// Nothing is written from now on, and status says so.
			before := p.dump()
			p.apply(Update{RV: "3", Complete: true, Changes: []Change{put(pod("d", "3", "x"))}})
			p.UpdateDeparted([]store.DepartedOp{{Key: "ns/a", UID: "uid-a"}})
			if diff := storetest.Diff(before, p.dump()); diff != "" {
				t.Errorf("the file was changed:\n%s", diff)
			}
			d, persistent := p.Durability()
			if persistent || d.Err == nil || d.RV != "1" || p.Flush(context.Background()) == nil {
				t.Errorf("durability %+v, %t", d, persistent)
			}

			p = start(t, file, startOptions{})
			if p.origin.RV != "" || p.origin.Reason == "" {
				t.Errorf("origin %+v", p.origin)
			}
			p.wantObjects(pod("a", "1", "x"))
		})
	}
}

func TestIndexer_Apply_NotARuntimeObject(t *testing.T) {
	p := start(t, storetest.NewMemory(), startOptions{indexers: cache.Indexers{}})
	if err := p.Add(cache.ExplicitKey("ns/a")); err != nil {
		t.Fatal(err)
	}
	if _, persistent := p.Durability(); persistent || p.Len() != 1 {
		t.Error("want it in memory only")
	}
}

// The store may be closed under a running informer.
func TestIndexer_Apply_CollectionIsGone(t *testing.T) {
	for _, cause := range []error{store.ErrClosed, store.ErrReadOnly} {
		t.Run(cause.Error(), func(t *testing.T) {
			file := storetest.NewMemory()
			p := start(t, file, refuse("bad", cause))
			p.list("1", pod("a", "1", "x"))
			before := p.dump()
			p.apply(Update{RV: "2", Changes: []Change{put(pod("bad", "2", "x"))}})
			p.apply(Update{RV: "3", Changes: []Change{put(pod("c", "3", "x"))}})
			p.wantObjects(pod("a", "1", "x"), pod("bad", "2", "x"), pod("c", "3", "x"))
			if got := p.keysIn("app", "x"); len(got) != 3 {
				t.Errorf("index has %v", got)
			}
			if diff := storetest.Diff(before, p.dump()); diff != "" {
				t.Errorf("the file was changed:\n%s", diff)
			}
			p = start(t, file, startOptions{})
			if p.origin.RV != "1" {
				t.Errorf("origin %+v: the file is consistent", p.origin)
			}
			p.wantObjects(pod("a", "1", "x"))
		})
	}
}

func TestIndexer_Apply_MarkThatCannotBeWritten(t *testing.T) {
	refusing := false
	s := &spy{onApply: func(store.Batch) error {
		if refusing {
			return store.ErrInvalidBatch
		}
		return nil
	}}
	p := start(t, storetest.NewMemory(), startOptions{wrap: s.around})
	p.list("1", pod("a", "1", "x"))
	refusing = true
	p.apply(Update{RV: "2", Changes: []Change{put(pod("b", "2", "x"))}})
	p.wantObjects(pod("a", "1", "x"), pod("b", "2", "x"))
	p.wantHeader("1", true, "f1")
}

// Keys that are stored but not served must not stay known once what is known is
// decided by memory alone.
func TestIndexer_Apply_ForeignKeysWhileSuspended(t *testing.T) {
	file := storetest.NewMemory()
	start(t, file, startOptions{}).list("1", pod("a", "1", "x"), pod("b", "1", "x"), pod("c", "1", "x"))
	o := refuse("", store.ErrClosed)
	o.fingerprint = "f2"
	p := start(t, file, o)
	p.apply(Update{Incomplete: true, Changes: []Change{remove("a")}})
	p.apply(Update{Complete: true, RV: "2", Changes: []Change{put(pod("b", "2", "x")), remove("c")}})
	if got := p.Known().ListKeys(); !slices.Equal(got, []string{"ns/b"}) {
		t.Errorf("known keys %v", got)
	}
	p.apply(Update{RV: "3", Changes: []Change{remove("b")}})
	if item, exists, _ := p.Known().GetByKey("ns/b"); exists {
		t.Errorf("GetByKey found %v", item)
	}
}

// No mutation of the bytes of a record may come back as another object.
func TestIndexer_Load_NeverAWrongObject(t *testing.T) {
	want := pod("b", "1", "x")
	record, err := podCodec(t).Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	for i := range record {
		damage := damagedTx{value: onlyB(func(v []byte) []byte { v[i] ^= 0x10; return v })}
		file := storetest.NewMemory()
		start(t, file, startOptions{}).list("1", want.DeepCopy())
		p := attach(t, file, damage.wrap())
		if err := p.Load(context.Background()); !errors.Is(err, store.ErrCorrupt) || p.Len() != 0 {
			t.Errorf("byte %d: Load returned %v with %d objects", i, err, p.Len())
		}
	}
}
