package storetest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/warmcache/warmcache/store"
)

var modelSeed = flag.Uint64("storetest.seed", 0, "seed of RunModel; 0 takes a new one, which is logged")

// RunModel applies random batches to two collections of the engine under test,
// flushes and reopens it at random, and compares it with Memory after each
// step. The seed is logged; -storetest.seed replays a run.
func RunModel(t *testing.T, h Harness, steps int) {
	seed := *modelSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("replay with -storetest.seed=%d", seed)
	m := &modelRun{
		T:         t,
		harness:   h,
		generator: NewGenerator(seed),
		model:     NewMemory().Open(),
		pairs:     map[store.Identity]*modelPair{},
	}
	m.engine = h.Open(t)
	defer func() { m.close(m.engine) }()
	for _, id := range []store.Identity{Pods(), Deployments()} {
		m.pairs[id] = &modelPair{want: m.openCollection(m.model, id), got: m.openCollection(m.engine, id)}
	}
	for step := range steps {
		m.step()
		m.compare(step)
	}
}

type modelRun struct {
	*testing.T
	harness       Harness
	generator     *Generator
	model, engine store.Store
	pairs         map[store.Identity]*modelPair
}

// modelPair is one collection in the model and in the engine under test.
type modelPair struct{ want, got store.Collection }

func (m *modelRun) openCollection(s store.Store, id store.Identity) store.Collection {
	c, err := s.Collection(id, owner)
	if err != nil {
		m.Fatalf("Collection(%s): %v", id, err)
	}
	return c
}

func (m *modelRun) close(s store.Store) {
	if err := s.Close(); err != nil {
		m.Errorf("Close: %v", err)
	}
}

func (m *modelRun) step() {
	id := Pods()
	if m.generator.rand.IntN(3) == 0 {
		id = Deployments()
	}
	pair := m.pairs[id]
	switch n := m.generator.rand.IntN(100); {
	case n < 80:
		b := m.generator.Batch()
		for _, c := range []store.Collection{pair.want, pair.got} {
			if err := c.Apply(cloneBatch(b)); err != nil {
				m.Fatalf("Apply: %v", err)
			}
		}
	case n < 95:
		if err := pair.got.Flush(m.Context()); err != nil {
			m.Fatalf("Flush: %v", err)
		}
	case n < 98:
		if err := pair.got.Close(); err != nil {
			m.Fatalf("Close: %v", err)
		}
		pair.got = m.openCollection(m.engine, id)
	default:
		m.close(m.engine)
		m.engine = m.harness.Open(m.T)
		for id, pair := range m.pairs {
			pair.got = m.openCollection(m.engine, id)
		}
	}
}

func (m *modelRun) compare(step int) {
	for id, pair := range m.pairs {
		want, got := Dump(m.T, pair.want, m.generator.indices...), Dump(m.T, pair.got, m.generator.indices...)
		if diff := Diff(want, got); diff != "" {
			m.Fatalf("step %d: %s differs from the model (-want +got):\n%s", step, id, diff)
		}
	}
}

// Generator makes random batches over a small set of keys, so that they meet.
// The index entries that it writes always belong to objects that exist.
type Generator struct {
	rand    *rand.Rand
	keys    []string
	values  []string
	indices []string
	rv      int
}

// NewGenerator returns a generator that makes the same batches for the same
// seed.
func NewGenerator(seed uint64) *Generator {
	g := &Generator{
		rand:    rand.New(rand.NewPCG(seed, 0)),
		keys:    slices.Clone(orderedKeys),
		values:  []string{"", "n1", "n1\x00", "n2", "\xff"},
		indices: []string{"node", "owner"},
	}
	for i := range 40 {
		g.keys = append(g.keys, fmt.Sprintf("ns-%d/pod-%d", i%3, i))
	}
	return g
}

// Batch returns the next batch.
func (g *Generator) Batch() store.Batch {
	var b store.Batch
	b.Clear = g.rand.IntN(40) == 0
	if g.rand.IntN(20) == 0 {
		b.DropIndices = []string{g.pick(g.indices)}
	}
	for range g.rand.IntN(8) {
		b.Ops = append(b.Ops, g.op())
	}
	if g.rand.IntN(10) == 0 {
		// Only removals: an entry to add needs an object to be there.
		change := store.IndexChange{Name: g.pick(g.indices), Remove: g.values}
		b.Index = []store.IndexOp{{Key: g.pick(g.keys), Changes: []store.IndexChange{change}}}
	}
	for range g.rand.IntN(3) {
		b.Departed = append(b.Departed, store.DepartedOp{
			Key: g.pick(g.keys), UID: g.uid(), Remove: g.rand.IntN(2) == 0, Attempts: g.rand.IntN(4), Age: time.Duration(g.rand.IntN(1000)) * time.Second,
		})
	}
	if g.rand.IntN(2) == 0 {
		g.rv++
		b.Header = &store.Header{RV: fmt.Sprint(g.rv), Complete: g.rand.IntN(2) == 0}
	}
	return b
}

// op writes or deletes one object. An index entry is removed with its object
// whether it is there or not, which needs no memory of what was written.
func (g *Generator) op() store.Op {
	op := store.Op{Key: g.pick(g.keys)}
	if g.rand.IntN(3) == 0 {
		op.Depart = g.uid()
	}
	for _, name := range g.indices {
		op.Index = append(op.Index, store.IndexChange{Name: name, Remove: g.values})
	}
	if g.rand.IntN(4) == 0 {
		return op
	}
	content := make([]byte, g.rand.IntN(200))
	if g.rand.IntN(20) == 0 {
		content = make([]byte, g.rand.IntN(20000))
	}
	for i := range content {
		content[i] = byte(g.rand.Uint32())
	}
	op.Value = store.Seal(content)
	for i := range op.Index {
		if g.rand.IntN(2) == 0 {
			op.Index[i].Add = []string{g.pick(g.values)}
		}
	}
	return op
}

func (g *Generator) uid() string { return fmt.Sprintf("uid-%d", g.rand.IntN(3)) }

func (g *Generator) pick(from []string) string { return from[g.rand.IntN(len(from))] }

// cloneBatch copies what a collection takes ownership of.
func cloneBatch(b store.Batch) store.Batch {
	b.Ops = slices.Clone(b.Ops)
	for i := range b.Ops {
		b.Ops[i].Value = slices.Clone(b.Ops[i].Value)
	}
	return b
}
