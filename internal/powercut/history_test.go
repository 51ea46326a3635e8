//go:build linux

package powercut

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"slices"
	"strconv"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

// digest identifies the contents of a collection.
type digest [sha256.Size]byte

// history is what the collections of a workload held, by the number of steps
// taken.
type history struct {
	workload workload
	steps    []step
	digests  map[store.Identity][]digest
}

func newHistory(w workload) (*history, error) {
	h := &history{workload: w, steps: w.script(), digests: map[store.Identity][]digest{}}
	m := newModel()
	for i := 0; ; i++ {
		for _, id := range identities() {
			if i > 0 && !h.steps[i-1].restarts() && h.steps[i-1].id != id {
				h.digests[id] = append(h.digests[id], h.digests[id][i-1])
				continue
			}
			contents, err := m.contents(id)
			if err != nil {
				return nil, err
			}
			h.digests[id] = append(h.digests[id], digestOf(contents))
		}
		if i == len(h.steps) {
			return h, nil
		}
		if err := m.do(h.steps[i]); err != nil {
			return nil, err
		}
	}
}

// at returns the contents after some steps.
func (h *history) at(steps int, id store.Identity) (storetest.Contents, error) {
	m := newModel()
	for _, s := range h.workload.script()[:steps] {
		if err := m.do(s); err != nil {
			return storetest.Contents{}, err
		}
	}
	return m.contents(id)
}

// window is what a collection may hold: the contents after this many steps.
type window struct{ least, most int }

// windows returns what the collections may hold after the given operations.
func (h *history) windows(ops []op) map[store.Identity]window {
	ws := map[store.Identity]window{}
	for _, id := range identities() {
		ws[id] = h.window(ops, id)
	}
	return ws
}

func (h *history) window(ops []op, id store.Identity) (w window) {
	for _, o := range ops {
		if o.kind != opMark {
			continue
		}
		if s := h.steps[o.mark.step]; o.mark.end && s.durable() && (s.kind != stepForget || s.id == id) {
			w.least = o.mark.step + 1
		}
		w.most = max(w.most, o.mark.step+1)
	}
	return w
}

// check returns what is wrong with the contents of a collection; empty if
// nothing is.
func (h *history) check(id store.Identity, w window, got storetest.Contents) string {
	all, found := h.digests[id], digestOf(got)
	if slices.Contains(all[w.least:w.most+1], found) {
		return ""
	}
	if i := slices.Index(all, found); i >= 0 {
		return fmt.Sprintf("%s is as after step %d, want one of %d to %d", id, i, w.least, w.most)
	}
	want, err := h.at(w.least, id)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s is as after no step; it differs from step %d of %d to %d (-want +got):\n%.3000s",
		id, w.least, w.least, w.most, storetest.Diff(want, got))
}

// digestOf identifies contents. It leaves out the times of departed records,
// because two engines have two clocks.
func digestOf(c storetest.Contents) (d digest) {
	w := digester{sha256.New()}
	if c.Header != nil {
		w.strings(fmt.Sprintf("%+v", *c.Header))
	}
	w.number(len(c.Objects))
	for _, o := range c.Objects {
		w.strings(o.Key, o.Value)
	}
	for _, name := range []string{"node", "owner"} {
		for _, v := range c.Indices[name] {
			w.strings(name, v.Value)
			w.strings(v.Keys...)
		}
	}
	for _, departed := range c.Departed {
		w.strings(departed.Key, departed.UID, strconv.Itoa(departed.Attempts), departed.Age.String(), string(departed.Value))
	}
	w.Sum(d[:0])
	return d
}

type digester struct{ hash.Hash }

func (w digester) number(n int) { _ = binary.Write(w, binary.LittleEndian, int64(n)) }

func (w digester) strings(all ...string) {
	w.number(len(all))
	for _, s := range all {
		w.number(len(s))
		_, _ = w.Write([]byte(s))
	}
}
