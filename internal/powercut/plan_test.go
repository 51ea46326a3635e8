//go:build linux

package powercut

import (
	"math/rand/v2"
	"testing"
)

// commits is a recording of a file that is created, and then written to and synced.
func commits(n int) *recording {
	r := &recording{ops: []op{{kind: opCreate, path: "a"}, {kind: opSync, path: ".", file: -1}}}
	for range n {
		r.ops = append(r.ops, page('x'), page('y'), page('z'), op{kind: opSync, path: "a"})
	}
	r.damaging = make([]bool, len(r.ops))
	return r
}

func TestPlan_BoundariesComeFirstAndOnce(t *testing.T) {
	c := commits(10).cuts()
	// Before and after each of 10 syncs and what they start with, and between three
	// writes.
	boundaries := len(c.boundaries)
	if boundaries != 3+10*2 || len(c.between) != 10*2 {
		t.Fatalf("%d boundaries, %d cuts between", boundaries, len(c.between))
	}
	for n, want := range map[int]int{1: 1, boundaries - 1: boundaries - 1, boundaries: boundaries, 10 * boundaries: boundaries} {
		for seed := range uint64(20) {
			states := c.plan(n, rand.New(rand.NewPCG(seed, 0)))
			if got := c.visited(states); len(states) != n || got != want {
				t.Errorf("%d states of %d, %d boundaries of %d visited", len(states), n, got, want)
			}
		}
	}
}

func TestPlan_GoesOnWithAllCuts(t *testing.T) {
	c := commits(2).cuts()
	at := map[int]bool{}
	for _, s := range c.plan(1000, rand.New(rand.NewPCG(1, 1))) {
		at[s.cut] = true
	}
	if want := len(c.boundaries) + len(c.between); len(at) != want {
		t.Errorf("%d of %d cuts visited", len(at), want)
	}
}

func TestCampaign_States_AreNoFewerThanAskedFor(t *testing.T) {
	for _, total := range []int{1, 150, 599, 600, 4999, 5000} {
		n := 0
		for _, c := range campaigns {
			n += c.runs * c.states(total, c.runs, 0)
		}
		if n < total {
			t.Errorf("%d states of %d", n, total)
		}
	}
	if got := campaigns[0].states(exhaustive, 1, 2*exhaustive); got != 2*exhaustive {
		t.Errorf("%d states of a recording with %d boundaries", got, 2*exhaustive)
	}
}
