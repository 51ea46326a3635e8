//go:build linux

package powercut

import (
	"path"
	"slices"
)

// sectorSize is what a disk writes whole or not at all.
const sectorSize = 512

// disk is a model of what a disk may hold after a power cut.
//
// Of a file, what was synced is there. Of what was written after that, any
// part may be, sector by sector: the kernel writes pages back when it likes, and
// the disk reorders them. The size of a file is one more such thing.
//
// What was written before a sync that failed stays so for ever, unless it is
// written again: the kernel may mark such pages clean, after which no later sync
// has anything to do for them. Sizes and names are not pages: file systems keep
// them in a journal until that is written, or write nothing any more.
//
// A change of a directory is durable once the directory was synced. Before that
// see namesKind.
type disk struct {
	files []*file
	names []nameOp
}

// nameOp is a change of a directory.
type nameOp struct {
	op
	number  int
	durable bool
}

// version is one content of a sector, or one size of a file.
type version struct {
	// op is the number of the operation that wrote it.
	op   int
	data []byte
	size int64
	// stuck is set when a sync has failed to make it durable.
	stuck bool
}

// file is a file, whatever its name.
type file struct {
	durable map[int64][]byte
	pending map[int64][]version
	// size is durable, sizes are pending, and live is what the process sees.
	size, live int64
	sizes      []version
}

func newFile() *file { return &file{durable: map[int64][]byte{}, pending: map[int64][]version{}} }

// apply adds the operation with the given number.
func (d *disk) apply(number int, o op) {
	switch {
	case o.isNameOp():
		if o.kind == opCreate {
			d.files = append(d.files, newFile())
		}
		d.names = append(d.names, nameOp{op: o, number: number})
	case o.kind == opMark:
	case o.file < 0:
		if o.kind == opSync {
			d.syncDir(o.path)
		}
	case o.kind == opWrite:
		d.files[o.file].write(number, o.offset, o.data)
	case o.kind == opTruncate:
		d.files[o.file].truncate(number, o.size)
	case o.kind == opSync:
		d.files[o.file].sync()
	case o.kind == opFail:
		d.files[o.file].fail()
	}
}

func (d *disk) syncDir(dir string) {
	for i := range d.names {
		if path.Dir(d.names[i].path) == dir {
			d.names[i].durable = true
		}
	}
}

// write adds a version of every sector that the data touches.
func (f *file) write(number int, offset int64, data []byte) {
	end := offset + int64(len(data))
	for sector := offset / sectorSize; sector*sectorSize < end; sector++ {
		start := sector * sectorSize
		var content []byte
		if start >= offset && start+sectorSize <= end {
			content = data[start-offset : start-offset+sectorSize]
		} else {
			content = make([]byte, sectorSize)
			copy(content, f.latest(sector))
			copy(content[max(0, offset-start):], data[max(0, start-offset):])
		}
		f.pending[sector] = append(f.pending[sector], version{op: number, data: content})
	}
	if end > f.live {
		f.resize(number, end)
	}
}

func (f *file) resize(number int, size int64) {
	f.live = size
	f.sizes = append(f.sizes, version{op: number, size: size})
}

// latest is what the process reads: nil for zeros.
func (f *file) latest(sector int64) []byte {
	if versions := f.pending[sector]; len(versions) > 0 {
		return versions[len(versions)-1].data
	}
	return f.durable[sector]
}

// truncate changes the size. What is cut off reads as zeros if the file grows
// again.
func (f *file) truncate(number int, size int64) {
	if size < f.live {
		f.write(number, size, make([]byte, f.live-size))
	}
	f.resize(number, size)
}

// sync makes everything durable, but what an earlier sync has failed for.
func (f *file) sync() {
	for sector, versions := range f.pending {
		if last := versions[len(versions)-1]; !last.stuck {
			f.durable[sector] = last.data
			delete(f.pending, sector)
		}
	}
	if n := len(f.sizes); n > 0 {
		f.size, f.sizes = f.sizes[n-1].size, nil
	}
}

func (f *file) fail() {
	for _, versions := range f.pending {
		for i := range versions {
			versions[i].stuck = true
		}
	}
}

// pending returns the numbers of the operations on files that may have reached
// the disk or not, in order.
func (d *disk) pending() []int {
	set := map[int]bool{}
	for _, f := range d.files {
		for _, v := range f.sizes {
			set[v.op] = true
		}
		for _, versions := range f.pending {
			for _, v := range versions {
				set[v.op] = true
			}
		}
	}
	var numbers []int
	for number := range set {
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	return numbers
}

// pendingNames is the number of changes of directories that are not durable.
func (d *disk) pendingNames() (n int) {
	for _, o := range d.names {
		if !o.durable {
			n++
		}
	}
	return n
}

// image is the content of a file.
type image struct {
	size    int64
	extents []extent
	// file is the number of the file.
	file int
}

type extent struct {
	offset int64
	data   []byte
}

// sizeSector stands for the size of a file in the question whether something has
// reached the disk.
const sizeSector = -1

// image returns what the file holds after a power cut. reached says which
// versions of which sectors got to the disk; the newest one of them counts.
func (f *file) image(reached func(op int, sector int64) bool) image {
	im := image{size: f.size}
	if v := newest(f.sizes, sizeSector, reached); v != nil {
		im.size = v.size
	}
	var sectors []int64
	for sector := range f.durable {
		if _, both := f.pending[sector]; !both {
			sectors = append(sectors, sector)
		}
	}
	for sector := range f.pending {
		sectors = append(sectors, sector)
	}
	slices.Sort(sectors)
	for _, sector := range sectors {
		data := f.durable[sector]
		if v := newest(f.pending[sector], sector, reached); v != nil {
			data = v.data
		}
		im.add(sector*sectorSize, data)
	}
	return im
}

func newest(versions []version, sector int64, reached func(int, int64) bool) *version {
	for i := range slices.Backward(versions) {
		if reached(versions[i].op, sector) {
			return &versions[i]
		}
	}
	return nil
}

// add appends a sector, of which only what lies before the end counts.
func (im *image) add(offset int64, data []byte) {
	if room := im.size - offset; int64(len(data)) > room {
		data = data[:max(0, room)]
	}
	if len(data) == 0 {
		return
	}
	if n := len(im.extents); n > 0 && im.extents[n-1].offset+int64(len(im.extents[n-1].data)) == offset {
		im.extents[n-1].data = append(im.extents[n-1].data, data...)
		return
	}
	im.extents = append(im.extents, extent{offset, slices.Clone(data)})
}

// namespace returns the files by path after those changes of directories that
// reached selects; -1 is a directory.
func (d *disk) namespace(reached func(nameOp) bool) map[string]int {
	names := map[string]int{".": -1}
	for _, o := range d.names {
		if !reached(o) {
			continue
		}
		if o.kind == opUnlink || o.kind == opRename {
			delete(names, o.path)
		}
		switch o.kind {
		case opCreate, opMkdir:
			names[o.path] = o.file
		case opRename:
			names[o.to] = o.file
		}
	}
	// What is in a directory that does not exist cannot be reached.
	for name := range names {
		if _, exists := names[path.Dir(name)]; !exists {
			delete(names, name)
		}
	}
	return names
}
