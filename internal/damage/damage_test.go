package damage

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
)

// damaged is a file with what was done to it.
type damaged struct {
	*sample
	*rand.Rand
	file []byte
	// holes are ranges of whole pages that take no space on disk. They are zero
	// in file.
	holes []span
	what  []string
}

func (d *damaged) note(format string, args ...any) {
	d.what = append(d.what, fmt.Sprintf(format, args...))
}

func (d *damaged) String() string { return d.Name + ": " + strings.Join(d.what, ", ") }

// newCase returns the damaged file of a case, which depends on its number and on
// the seed. Every eighth case cuts one of the samples between two pages, so that
// all such cuts occur when there are enough cases.
func newCase(samples []*sample, seed uint64, number int) *damaged {
	random := rand.New(rand.NewPCG(seed, uint64(number)))
	if number%8 == 0 {
		s, pages := boundary(samples, number/8)
		d := &damaged{sample: s, Rand: random, file: s.file()}
		d.cut(pages * pageSize)
		return d
	}
	s := samples[random.IntN(len(samples))]
	d := &damaged{sample: s, Rand: random, file: bytes.Clone(s.file())}
	times := 1
	if random.IntN(6) == 0 {
		times = 2 + random.IntN(3)
	}
	for range times {
		d.strike()
	}
	return d
}

// boundary returns the n-th boundary between two pages, over all samples and
// round again.
func boundary(samples []*sample, n int) (s *sample, pages int) {
	total := 0
	for _, s := range samples {
		total += len(s.file()) / pageSize
	}
	n %= total
	for _, s := range samples {
		if n < len(s.file())/pageSize {
			return s, n
		}
		n -= len(s.file()) / pageSize
	}
	return samples[0], 0
}

// strike does one thing to the file. Aimed damage is the most frequent, because
// it finds the most.
func (d *damaged) strike() {
	kinds := []func(){
		d.flip, d.aim, d.aim, d.aim, d.aim, d.number, d.number, d.number,
		func() { d.cut(d.IntN(len(d.file) + 1)) },
		d.zero, d.hole, d.swap, d.duplicate, d.loseWrites, d.loseWrites, d.oldMeta,
		d.appendGarbage, d.garbage, d.foreign,
	}
	kinds[d.IntN(len(kinds))]()
}

func (d *damaged) cut(size int) {
	d.file = d.file[:min(size, len(d.file))]
	d.note("cut to %d bytes", len(d.file))
}

// within reports whether the file still has a range.
func (d *damaged) within(s span) bool { return s.at+s.size <= len(d.file) }

func (d *damaged) flip() {
	for range 1 + d.IntN(3) {
		if len(d.file) > 0 {
			d.flipIn(span{0, len(d.file)}, "anywhere")
		}
	}
}

func (d *damaged) flipIn(s span, where string) {
	at, bit := s.at+d.IntN(s.size), d.IntN(8)
	d.file[at] ^= 1 << bit
	d.note("bit %d of byte %d (page %d, %s) flipped", bit, at, at/pageSize, where)
}

// aim flips bits of one kind of thing.
func (d *damaged) aim() {
	kind := d.layout.kinds[d.IntN(len(d.layout.kinds))]
	for range 1 + d.IntN(2)*d.IntN(6) {
		spans := d.layout.spans[kind]
		if s := spans[d.IntN(len(spans))]; d.within(s) {
			d.flipIn(s, kind)
		}
	}
}

// number overwrites a number in what bbolt relies on.
func (d *damaged) number() {
	kinds := []string{"meta page", "free list", "branch header", "branch element", "leaf header", "leaf element", "directory element", "bucket root"}
	kind := kinds[d.IntN(len(kinds))]
	spans := d.layout.spans[kind]
	if len(spans) == 0 {
		kind, spans = "leaf header", d.layout.spans["leaf header"]
	}
	s := spans[d.IntN(len(spans))]
	width := []int{2, 4, 8}[d.IntN(3)]
	at := s.at + d.IntN(s.size/width)*width
	if !d.within(span{at, width}) {
		return
	}
	values := []uint64{0, 1, 2, uint64(d.IntN(len(d.sample.file()) / pageSize)), 0x7fff, 0xffff, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 62, 1<<64 - 1, d.Uint64()}
	value := values[d.IntN(len(values))]
	b := order.AppendUint64(nil, value)
	copy(d.file[at:at+width], b)
	d.note("%d bytes at %d (page %d, %s) set to %#x", width, at, at/pageSize, kind, value)
}

// somePage is a page that the file still has, or -1.
func (d *damaged) somePage() int {
	pages := len(d.file) / pageSize
	if pages == 0 {
		return -1
	}
	return d.IntN(pages)
}

func (d *damaged) pageAt(id int) []byte { return d.file[id*pageSize:][:pageSize] }

func (d *damaged) zero() {
	if len(d.file) == 0 {
		return
	}
	s := span{d.IntN(len(d.file)), 1 + d.IntN(3*pageSize)}
	if d.IntN(2) == 0 {
		s.at, s.size = s.at/pageSize*pageSize, pageSize
	}
	s.size = min(s.size, len(d.file)-s.at)
	clear(d.file[s.at:][:s.size])
	d.note("%d bytes at %d (page %d) zeroed", s.size, s.at, s.at/pageSize)
}

func (d *damaged) hole() {
	if from := d.somePage(); from >= 0 {
		pages := min(1+d.IntN(8), len(d.file)/pageSize-from)
		s := span{from * pageSize, pages * pageSize}
		clear(d.file[s.at:][:s.size])
		d.holes = append(d.holes, s)
		d.note("a hole of %d pages at page %d", pages, from)
	}
}

// renumber makes a page say that it is where it is, as a page would that was
// written with the right number and the wrong content.
func (d *damaged) renumber(id int) string {
	if d.IntN(2) == 0 {
		return "as it is"
	}
	order.PutUint64(d.pageAt(id), uint64(id))
	return "renumbered"
}

func (d *damaged) swap() {
	a, b := d.somePage(), d.somePage()
	if a < 0 {
		return
	}
	page := bytes.Clone(d.pageAt(a))
	copy(d.pageAt(a), d.pageAt(b))
	copy(d.pageAt(b), page)
	d.note("pages %d (%s) and %d (%s) swapped", a, d.renumber(a), b, d.renumber(b))
}

func (d *damaged) duplicate() {
	from, to := d.somePage(), d.somePage()
	if from < 0 {
		return
	}
	copy(d.pageAt(to), d.pageAt(from))
	d.note("page %d written to page %d, %s", from, to, d.renumber(to))
}

// older returns a version of the file before the last.
func (d *damaged) older() (version int, file []byte) {
	version = d.IntN(len(d.Versions) - 1)
	return version, d.Versions[version]
}

// loseWrites puts pages of an earlier commit in place of those that differ.
func (d *damaged) loseWrites() {
	version, old := d.older()
	var differing []int
	for id := range min(len(old), len(d.file)) / pageSize {
		if !bytes.Equal(old[id*pageSize:][:pageSize], d.pageAt(id)) {
			differing = append(differing, id)
		}
	}
	if len(differing) == 0 {
		return
	}
	d.Shuffle(len(differing), func(i, j int) { differing[i], differing[j] = differing[j], differing[i] })
	lost := differing[:1+d.IntN(2)*d.IntN(len(differing))]
	for _, id := range lost {
		copy(d.pageAt(id), old[id*pageSize:])
	}
	d.note("pages %d from after commit %d", lost, version)
}

// oldMeta makes an earlier commit the newest again, whose pages have been
// written to since.
func (d *damaged) oldMeta() {
	version, old := d.older()
	if len(d.file) < 2*pageSize {
		return
	}
	copy(d.file, old[:2*pageSize])
	d.note("both meta pages from after commit %d", version)
}

func (d *damaged) random(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(d.Uint32())
	}
	return b
}

func (d *damaged) appendGarbage() {
	d.file = append(d.file, d.random(1+d.IntN(3*pageSize))...)
	d.note("garbage appended")
}

func (d *damaged) garbage() {
	if len(d.file) == 0 {
		return
	}
	at := d.IntN(len(d.file))
	n := copy(d.file[at:], d.random(1+d.IntN(2*pageSize)))
	d.note("%d bytes of garbage at %d (page %d)", n, at, at/pageSize)
}

// foreign replaces the file, or its beginning, by that of another program.
func (d *damaged) foreign() {
	heads := map[string][]byte{
		"text":   bytes.Repeat([]byte("not a database\n"), 1+d.IntN(2000)),
		"gzip":   append([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3}, d.random(5000)...),
		"sqlite": append(append([]byte("SQLite format 3\x00\x10\x00\x01\x01\x00\x40\x20\x20"), make([]byte, 80)...), d.random(3*pageSize)...),
		"elf":    append([]byte("\x7fELF\x02\x01\x01"), d.random(9000)...),
		"zeros":  make([]byte, d.IntN(5*pageSize)),
		"ones":   bytes.Repeat([]byte{0xff}, 1+d.IntN(5*pageSize)),
		"json":   []byte(`{"kind":"PodList"}`),
		"byte":   {0},
	}
	names := []string{"text", "gzip", "sqlite", "elf", "zeros", "ones", "json", "byte"}
	name := names[d.IntN(len(names))]
	if d.IntN(3) == 0 {
		copy(d.file, heads[name])
		d.note("begins with %s", name)
		return
	}
	d.file = heads[name]
	d.note("replaced by %s", name)
}
