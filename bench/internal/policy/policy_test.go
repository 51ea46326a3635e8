package policy

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestLRU_EvictsWhatWasReadLongestAgo(t *testing.T) {
	// 1 is read again before 3 comes, so that 2 goes.
	if got, want := LRU([]int{1, 2, 1, 3, 1, 2}, 2), 2.0/6; got != want {
		t.Errorf("hit rate %v, want %v", got, want)
	}
}

func TestClock_ReadsGiveASecondChance(t *testing.T) {
	// 1 is older than 2, but has been read again when 3 comes.
	if got, want := Clock([]int{1, 2, 1, 3, 1}, 2), 2.0/5; got != want {
		t.Errorf("hit rate %v, want %v", got, want)
	}
}

func TestSieve_WhatIsReadAgainKeepsItsPlace(t *testing.T) {
	// 4 finds 1 marked and 2 not; 5 and 6 go on behind it, and push out 3 and 4.
	reads := []int{1, 2, 3, 1, 4, 5, 6, 1}
	if got, want := Sieve(reads, 3), 2.0/8; got != want {
		t.Errorf("hit rate %v, want %v", got, want)
	}
	if got, want := Clock(reads, 3), 1.0/8; got != want {
		t.Errorf("hit rate of CLOCK %v, want %v", got, want)
	}
}

func TestOurs_ScansPassByWhatIsReadAgain(t *testing.T) {
	var reads []int
	for range 2 {
		reads = append(reads, 1, 2, 3)
	}
	for i := range 1000 { // each is read once
		reads = append(reads, 100+i)
	}
	reads = append(reads, 1, 2, 3)
	if got, want := Ours(reads, 20), 6.0/float64(len(reads)); got != want {
		t.Errorf("hit rate %v, want %v", got, want)
	}
	if got, want := LRU(reads, 20), 3.0/float64(len(reads)); got != want {
		t.Errorf("hit rate of LRU %v, want %v", got, want)
	}
}

func TestPolicies_NoneIsBetterThanTheOptimum(t *testing.T) {
	for _, w := range Workloads(500, 10_000, rand.Uint64()) {
		for _, capacity := range []int{10, 100, 500} {
			most := Optimum(w.Reads, capacity)
			for _, p := range Policies {
				if got := p.Rate(w.Reads, capacity); got <= 0 || got > most {
					t.Errorf("%s, room for %d: %s has a hit rate of %v, the optimum %v", w.Name, capacity, p.Name, got, most)
				}
			}
		}
	}
}

// best tries all that a cache could do.
func best(reads, kept []int, capacity int) int {
	if len(reads) == 0 {
		return 0
	}
	object, rest := reads[0], reads[1:]
	if slices.Contains(kept, object) {
		return 1 + best(rest, kept, capacity)
	}
	if len(kept) < capacity {
		return best(rest, append(slices.Clone(kept), object), capacity)
	}
	most := 0
	for i := range kept {
		changed := slices.Clone(kept)
		changed[i] = object
		most = max(most, best(rest, changed, capacity))
	}
	return most
}

func TestOptimum_NothingIsBetter(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		reads := generate(12, func() int { return random.IntN(6) })
		capacity := 1 + random.IntN(3)
		got, want := Optimum(reads, capacity), rate(best(reads, nil, capacity), len(reads))
		if got != want {
			t.Fatalf("seed %d: %v with room for %d: hit rate %v, want %v", seed, reads, capacity, got, want)
		}
	}
}

func TestWorkloads_AreOfTheirSizeAndRepeat(t *testing.T) {
	const objects, reads = 1000, 250_000
	again := Workloads(objects, reads, 1)
	for i, w := range Workloads(objects, reads, 1) {
		if len(w.Reads) != reads || slices.Min(w.Reads) < 0 || slices.Max(w.Reads) >= objects {
			t.Errorf("%s: %d reads of objects %d to %d", w.Name, len(w.Reads), slices.Min(w.Reads), slices.Max(w.Reads))
		}
		if !slices.Equal(w.Reads, again[i].Reads) {
			t.Errorf("%s: other reads for the same seed", w.Name)
		}
	}
}
