package policy

import (
	"math/rand/v2"
)

// Workload is a sequence of reads.
type Workload struct {
	Name  string
	Reads []int
}

// scanEvery is how many reads there are from the beginning of a scan to that of the
// next.
const scanEvery = 250_000

// Workloads returns sequences of this many reads of objects numbered from 0. Equal
// seeds give equal sequences.
func Workloads(objects, reads int, seed uint64) []Workload {
	random := rand.New(rand.NewPCG(seed, 0))
	// Popularity has nothing to do with the order of the keys, in which a scan
	// goes.
	place := random.Perm(objects)
	// In the traces of caches that were published the exponent is mostly between
	// 0.6 and 1.2; this generator wants more than 1.
	zipf := rand.NewZipf(random, 1.05, 1, uint64(objects-1))
	popular := func() int { return place[zipf.Uint64()] }

	mixed := make([]int, 0, reads)
	for len(mixed) < reads {
		if len(mixed)%scanEvery == scanEvery-1 {
			for i := 0; i < objects && len(mixed) < reads; i++ {
				mixed = append(mixed, i)
			}
			continue
		}
		mixed = append(mixed, popular())
	}
	return []Workload{
		{"popular objects (Zipf)", generate(reads, popular)},
		{"popular ones, and scans of all", mixed},
		{"a working set that moves", generate(reads, moving(random, objects, reads))},
		{"all alike", generate(reads, func() int { return random.IntN(objects) })},
	}
}

// moving reads from a window that crosses all objects once, as a controller does
// that works through a queue of them and comes back to each a few times.
func moving(random *rand.Rand, objects, reads int) func() int {
	window, n := max(objects/50, 1), 0
	return func() int {
		start := n * objects / reads
		n++
		return (start + random.IntN(window)) % objects
	}
}

func generate(n int, next func() int) []int {
	reads := make([]int, n)
	for i := range reads {
		reads[i] = next()
	}
	return reads
}
