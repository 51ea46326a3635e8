package audit

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
)

var (
	seedFlag   = flag.Uint64("seed", 0, "seed of the randomised tests; 0 takes a new one")
	worldsFlag = flag.Int("worlds", 3000, "worlds of the randomised test")
)

// TestRun_Random lets server and cache change at random between any two things that an
// audit does, and corrupts some objects that nothing else touches. The audit must find
// these, and nothing else, unless it says that it could not.
func TestRun_Random(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("replay with -seed=%d -worlds=%d", seed, *worldsFlag)
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, seed))
		results := map[Result]int{}
		found, newer := 0, 0
		for n := 0; n < *worldsFlag && !t.Failed(); n++ {
			report := randomWorld(t, r, n)
			results[report.Result()]++
			found += report.Differences()
			newer += report.Newer
		}
		t.Logf("%v, %d differences, %d newer", results, found, newer)
		if newer == 0 || found == 0 || results[Verified] == 0 {
			t.Errorf("the worlds are too tame: %v, %d differences, %d newer", results, found, newer)
		}
	})
}

func randomWorld(t *testing.T, r *rand.Rand, n int) Report {
	w := newWorld()
	w.liveKeys = n%2 == 0
	for range 30 {
		w.mutate(r)
	}
	w.list()
	w.lists, w.deleted = 0, map[string]bool{}
	for range r.IntN(5) {
		w.mutate(r) // the cache is behind
	}
	want := w.corrupt(r)
	lists := 0
	w.step = func() {
		switch p := r.IntN(100); {
		case p < 20:
			w.mutate(r)
		case p < 45:
			w.follow(r.IntN(4))
		case p < 46 && lists < 2 && len(want) == 0: // which would repair
			lists++
			w.list()
		}
	}
	report := w.run(t)
	if got := sorted(report.findings); !slices.EqualFunc(got, want, finding.equals) || report.Err != nil {
		t.Errorf("world %d: found %v, %v\nwant %v", n, got, report.Err, want)
	}
	return report
}

func key(n int) string { return fmt.Sprintf("ns%d/o%02d", n%3, n) }

// mutate changes one thing on the server.
func (w *world) mutate(r *rand.Rand) {
	k := key(r.IntN(25))
	if r.IntN(3) == 0 {
		w.remove(k)
	} else {
		w.put(k, fmt.Sprint(r.IntN(3)))
	}
}

// corrupt makes objects of the cache differ from the server that are not changed by
// mutate, and returns what is to be found.
func (w *world) corrupt(r *rand.Rand) (want []finding) {
	if r.IntN(2) == 0 {
		return nil
	}
	for n := range 12 {
		k := fmt.Sprintf("ns%d/x%02d", n%3, n)
		w.put(k, "right")
		right := w.server[k]
		f := finding{key: k, uid: right.UID, rv: right.ResourceVersion}
		wrong := right.DeepCopy()
		switch r.IntN(6) {
		case 0:
			w.drop(k)
			f.kind = missing
		case 1:
			w.remove(k)
			w.events = w.events[:len(w.events)-1]
			f.kind = extra
		case 2:
			wrong.ResourceVersion = "1"
			f.kind = different
		case 3:
			wrong.UID = "another"
			f.kind = different
		case 4:
			wrong.Labels["l"] = "wrong"
			f.kind = different
		case 5:
			continue
		}
		if f.kind != missing {
			w.events[len(w.events)-1].object = wrong // it is what the watch has brought
		}
		want = append(want, f)
	}
	w.follow(len(w.events))
	return sorted(want)
}

// drop loses the last event, which is of key.
func (w *world) drop(key string) {
	if last := len(w.events) - 1; w.events[last].key == key {
		w.events = w.events[:last]
	}
}
