package indexer

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

// departedIDs lists the departed records as "key uid, key uid".
func departedIDs(p *process) string {
	p.Helper()
	departed, err := p.Departed()
	if err != nil {
		p.Fatal(err)
	}
	var ids []string
	for _, d := range departed {
		ids = append(ids, d.Key+" "+d.UID)
	}
	return strings.Join(ids, ", ")
}

func TestIndexer_Apply_Depart(t *testing.T) {
	old, other := pod("a", "1", "x"), withUID(pod("a", "2", "x"), "uid-2")
	for name, tc := range map[string]struct {
		changes []Change
		want    string
	}{
		"delete":                  {departing(remove("a")), "ns/a uid-a"},
		"delete without Depart":   {[]Change{remove("a")}, ""},
		"other UID":               {departing(put(other)), "ns/a uid-a"},
		"same UID":                {departing(put(pod("a", "2", "y"))), ""},
		"absent":                  {departing(remove("b")), ""},
		"new":                     {departing(put(pod("b", "2", "x"))), ""},
		"delete, put":             {departing(remove("a"), put(pod("a", "3", "x"))), "ns/a uid-a"},
		"put, delete":             {departing(put(other), remove("a")), "ns/a uid-2, ns/a uid-a"},
		"put new, delete":         {departing(put(pod("b", "2", "")), remove("b")), "ns/b uid-b"},
		"put same, delete":        {departing(put(pod("a", "2", "")), remove("a")), "ns/a uid-a"},
		"without UID, delete":     {departing(put(withUID(pod("b", "2", ""), "")), remove("b")), "ns/b " + noUID},
		"without UID, put, again": {departing(put(withUID(pod("b", "2", ""), "")), put(withUID(pod("b", "3", ""), ""))), ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, storetest.NewMemory(), startOptions{})
			p.list("1", old)
			p.apply(Update{RV: "3", Changes: tc.changes})
			if got := departedIDs(p); got != tc.want {
				t.Errorf("departed %q, want %q", got, tc.want)
			}
			p.verify()
		})
	}
}

func TestIndexer_Departed_HasTheLastState(t *testing.T) {
	file := storetest.NewMemory()
	p := start(t, file, startOptions{})
	p.list("1", pod("a", "1", "x"))
	p.apply(Update{RV: "3", Changes: departing(put(pod("a", "2", "y")), remove("a"))})
	p = start(t, file, startOptions{})
	departed, err := p.Departed()
	if err != nil || len(departed) != 1 || departed[0].Object.(*corev1.Pod).ResourceVersion != "2" {
		t.Errorf("departed %+v, %v", departed, err)
	}
}

func TestIndexer_UpdateDeparted(t *testing.T) {
	file, written := storetest.NewMemory(), &recorder{}
	p := start(t, file, startOptions{wrap: written.wrap})
	p.list("1", pod("a", "1", "x"), pod("b", "1", "x"))
	p.apply(Update{RV: "3", Changes: departing(remove("a"), remove("b"))})
	written.batches = nil
	p.UpdateDeparted([]store.DepartedOp{{Key: "ns/a", UID: "uid-a", Attempts: 2}, {Key: "ns/b", UID: "uid-b", Remove: true}})
	p.UpdateDeparted(nil)
	if len(written.batches) != 1 {
		t.Errorf("%d batches", len(written.batches))
	}
	departed, err := start(t, file, startOptions{}).Departed()
	if err != nil || len(departed) != 1 || departed[0].Key != "ns/a" || departed[0].Attempts != 2 {
		t.Errorf("departed %+v, %v", departed, err)
	}
}

func TestIndexer_Departed_InMemory(t *testing.T) {
	x := New(Options{})
	x.UpdateDeparted([]store.DepartedOp{{Key: "a", UID: "u"}})
	if departed, err := x.Departed(); departed != nil || err != nil {
		t.Errorf("departed %+v, %v", departed, err)
	}
}

// picky is a codec that refuses some pods.
type picky struct {
	Codec
	encode, decode func(*corev1.Pod) error
}

func (c picky) Encode(obj runtime.Object) ([]byte, error) {
	if c.encode != nil {
		if err := c.encode(obj.(*corev1.Pod)); err != nil {
			return nil, err
		}
	}
	return c.Codec.Encode(obj)
}

func (c picky) Decode(record []byte) (runtime.Object, error) {
	obj, err := c.Codec.Decode(record)
	if err == nil && c.decode != nil {
		err = c.decode(obj.(*corev1.Pod))
	}
	return obj, err
}

// named fails for the pod of one name.
func named(name string, cause error) func(*corev1.Pod) error {
	return func(p *corev1.Pod) error {
		if p.Name == name {
			return cause
		}
		return nil
	}
}

// A departed record that cannot be read is still a delete.
func TestIndexer_Departed_UnreadableRecordHasNoObject(t *testing.T) {
	p := start(t, storetest.NewMemory(), startOptions{
		codec: picky{Codec: podCodec(t), decode: named("a", fmt.Errorf("%w: test", store.ErrCorrupt))},
	})
	p.list("1", pod("a", "1", "x"), pod("b", "1", "x"))
	p.apply(Update{RV: "3", Changes: departing(remove("a"), remove("b"))})
	departed, err := p.Departed()
	if err != nil || len(departed) != 2 || departed[0].Object != nil || departed[1].Object == nil {
		t.Errorf("departed %+v, %v", departed, err)
	}
}

func TestIndexer_Departed_ReportsReadErrors(t *testing.T) {
	broken := errors.New("broken")
	s := &spy{}
	p := start(t, storetest.NewMemory(), startOptions{wrap: s.around})
	s.onView = func() error { return broken }
	if departed, err := p.Departed(); !errors.Is(err, broken) {
		t.Errorf("Departed returned %v, %v", departed, err)
	}
}
