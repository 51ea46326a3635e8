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

// boundary is a cut next to a sync or a change of a name.
type boundary struct {
	cut int
	// settled is set if nothing is pending, so that the disk can hold one thing.
	settled bool
}

// cuts are the places at which a recording can be cut.
type cuts struct {
	boundaries []boundary
	between    []int
}

func (r *recording) cuts() (all cuts) {
	d := &disk{}
	for cut := 0; cut <= len(r.ops); cut++ {
		switch usable, next := r.usable(cut), r.boundary(cut); {
		case !usable:
		case next:
			settled := len(d.pending()) == 0 && d.pendingNames() == 0
			all.boundaries = append(all.boundaries, boundary{cut, settled})
		default:
			all.between = append(all.between, cut)
		}
		if cut < len(r.ops) {
			d.apply(cut, r.ops[cut])
		}
	}
	return all
}

// plan chooses n states, ordered by cut. It goes through the boundaries in random
// order, and draws what is left from all cuts that have more than one state. The
// kinds take turns, so that a campaign too small for all has some of each.
func (c cuts) plan(n int, random *rand.Rand) []state {
	var states []state
	add := func(cut int, settled bool) {
		s := state{cut: cut, data: dataNothing, names: namesNothing}
		if !settled {
			s.data = dataKinds[len(states)%len(dataKinds)]
			s.names = namesKinds[random.IntN(len(namesKinds))]
			s.salt = random.Uint64()
		}
		states = append(states, s)
	}
	var unsettled []int
	for _, i := range random.Perm(len(c.boundaries)) {
		b := c.boundaries[i]
		if len(states) < n {
			add(b.cut, b.settled)
		}
		if !b.settled {
			unsettled = append(unsettled, b.cut)
		}
	}
	for turn := 0; len(states) < n && len(unsettled)+len(c.between) > 0; turn++ {
		from := unsettled
		if turn%4 == 3 && len(c.between) > 0 || len(unsettled) == 0 {
			from = c.between
		}
		add(from[random.IntN(len(from))], false)
	}
	slices.SortStableFunc(states, func(a, b state) int { return cmp.Compare(a.cut, b.cut) })
	return states
}

// visited counts the boundaries that states are of.
func (c cuts) visited(states []state) (n int) {
	at := map[int]bool{}
	for _, s := range states {
		at[s.cut] = true
	}
	for _, b := range c.boundaries {
		if at[b.cut] {
			n++
		}
	}
	return n
}
