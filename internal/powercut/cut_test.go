//go:build linux

package powercut

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
)

// dataKind says which pending writes reached the disk.
type dataKind string

const (
	dataNothing    dataKind = "nothing"
	dataEverything dataKind = "everything"
	dataFirst      dataKind = "first"
	dataLast       dataKind = "last"
	dataAllButOne  dataKind = "all but one"
	dataPrefix     dataKind = "prefix"
	dataSuffix     dataKind = "suffix"
	dataSubset     dataKind = "subset"
	// dataTorn is everything, but one write with only some of its sectors.
	dataTorn dataKind = "torn"
	// dataSectors decides each sector by itself.
	dataSectors dataKind = "sectors"
)

var dataKinds = []dataKind{
	dataNothing, dataEverything, dataFirst, dataLast, dataAllButOne, dataPrefix, dataSuffix, dataSubset, dataTorn, dataSectors,
}

// namesKind says which changes of directories that were not synced are durable
// all the same.
type namesKind string

const (
	namesNothing    namesKind = "nothing"
	namesEverything namesKind = "everything"
	// namesPrefix is a file system with a journal: everything up to some point,
	// which is not before the last one that was synced.
	namesPrefix namesKind = "prefix"
	// namesSubset is one without order, but for changes of one name.
	namesSubset namesKind = "subset"
)

var namesKinds = []namesKind{namesNothing, namesEverything, namesPrefix, namesSubset}

// state is one thing that the disk may hold.
type state struct {
	// cut is the number of operations before the power cut.
	cut   int
	data  dataKind
	names namesKind
	// salt makes the random decisions.
	salt uint64
}

func (s state) String() string {
	return fmt.Sprintf("cut %d, of the data %s, of the names %s, salt %d", s.cut, s.data, s.names, s.salt)
}

// coin decides something, the same for the same arguments.
func (s state) coin(number int, sector int64) bool {
	h := fnv.New64a()
	fmt.Fprint(h, s.salt, number, sector)
	return h.Sum64()>>17&1 == 1
}

// reached returns the choice among pending writes, given in order.
func (s state) reached(pending []int) func(number int, sector int64) bool {
	if len(pending) == 0 {
		return func(int, int64) bool { return false }
	}
	first, last := pending[0], pending[len(pending)-1]
	pivot := pending[int(s.salt%uint64(len(pending)))]
	return func(number int, sector int64) bool {
		switch s.data {
		case dataEverything:
			return true
		case dataFirst:
			return number == first
		case dataLast:
			return number == last
		case dataAllButOne:
			return number != pivot
		case dataPrefix:
			return number <= pivot
		case dataSuffix:
			return number >= pivot
		case dataSubset:
			return s.coin(number, 0)
		case dataTorn:
			return number != pivot || s.coin(number, sector)
		case dataSectors:
			return s.coin(number, sector)
		case dataNothing:
		}
		return false
	}
}

// reachedNames returns the choice among changes of directories.
func (s state) reachedNames(all []nameOp) func(nameOp) bool {
	lastDurable, pivot := 0, 0
	for _, o := range all {
		if o.durable {
			lastDurable = o.number
		}
	}
	if len(all) > 0 {
		pivot = max(lastDurable, all[int(s.salt%uint64(len(all)))].number)
	}
	skipped := map[string]bool{}
	return func(o nameOp) bool {
		switch {
		case o.durable || s.names == namesEverything:
			return true
		case s.names == namesPrefix:
			return o.number <= pivot
		case s.names == namesSubset && !skipped[o.path] && !skipped[o.to] && s.coin(o.number, 0):
			return true
		}
		skipped[o.path] = true
		if o.to != "" {
			skipped[o.to] = true
		}
		return false
	}
}

// images returns the files by path, -1-numbered ones being directories.
func (d *disk) images(s state) map[string]image {
	reached := s.reached(d.pending())
	images := map[string]image{}
	for name, number := range d.namespace(s.reachedNames(d.names)) {
		if number < 0 {
			images[name] = image{file: -1}
			continue
		}
		im := d.files[number].image(reached)
		im.file = number
		images[name] = im
	}
	return images
}

// plan chooses n states of a recording, ordered by cut: before and after every
// sync and change of a name, and between them.
//
// A cut at which nothing is pending has one state. The others are shared out in
// turns, so that a campaign too small for all of them has some of every kind.
func plan(r *recording, n int, random *rand.Rand) []state {
	var boundaries, between []int
	var states []state
	d := &disk{}
	for cut := 0; cut <= len(r.ops); cut++ {
		switch usable, boundary := r.usable(cut), r.boundary(cut); {
		case !usable:
		case boundary && len(d.pending()) == 0 && d.pendingNames() == 0:
			states = append(states, state{cut: cut, data: dataNothing, names: namesNothing})
		case boundary:
			boundaries = append(boundaries, cut)
		default:
			between = append(between, cut)
		}
		if cut < len(r.ops) {
			d.apply(cut, r.ops[cut])
		}
	}
	random.Shuffle(len(states), func(i, j int) { states[i], states[j] = states[j], states[i] })
	states = states[:min(len(states), n/4)]
	for turn := 0; len(states) < n && len(boundaries)+len(between) > 0; turn++ {
		from := boundaries
		if turn%4 == 3 && len(between) > 0 || len(boundaries) == 0 {
			from = between
		}
		states = append(states, state{
			cut:   from[random.IntN(len(from))],
			data:  dataKinds[turn%len(dataKinds)],
			names: namesKinds[random.IntN(len(namesKinds))],
			salt:  random.Uint64(),
		})
	}
	slices.SortStableFunc(states, func(a, b state) int { return cmp.Compare(a.cut, b.cut) })
	return states
}
