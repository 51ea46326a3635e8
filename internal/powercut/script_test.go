//go:build linux

package powercut

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

// stepKind is what a step of a workload does.
type stepKind string

const (
	stepOpen   stepKind = "open"
	stepApply  stepKind = "apply"
	stepFlush  stepKind = "flush"
	stepForget stepKind = "forget"
	stepClose  stepKind = "close"
	// stepDamage destroys the closed file, in a way that Open must notice.
	stepDamage stepKind = "damage"
	// stepReport tells the engine that the open file is damaged, which it is not,
	// and begins anew in the next one.
	stepReport stepKind = "report damage"
)

// step is one step of a workload.
type step struct {
	kind  stepKind
	id    store.Identity
	batch store.Batch
	// damage is a number that chooses how to destroy the file.
	damage int
}

// durable says whether what the step promises outlasts a power cut once it has
// ended.
func (s step) durable() bool { return s.kind != stepApply }

// restarts says whether the collections begin with nothing after the step.
func (s step) restarts() bool { return s.kind == stepDamage || s.kind == stepReport }

// workload is what a child does, and the parent knows.
type workload struct {
	Name string
	Seed uint64
	// Root is the directory that is traced, in which the cache's directory is
	// created.
	Root string
	// Only, if not 0, is how many steps are taken.
	Only int
}

// identities are those of the collections.
func identities() []store.Identity {
	web := storetest.Pods()
	web.Namespace = "web"
	return []store.Identity{storetest.Pods(), storetest.Deployments(), web}
}

// script returns the steps of a workload, the same for the same seed. Batches
// are new each time, because a collection takes ownership of them.
func (w workload) script() []step {
	s := &scripter{random: rand.New(rand.NewPCG(w.Seed, 1))}
	for range identities() {
		s.generators = append(s.generators, storetest.NewGenerator(s.random.Uint64()))
	}
	s.add(step{kind: stepOpen})
	switch w.Name {
	case workCreate:
		s.churn(4)
	case workKilled:
		s.churn(12)
	case workGrow:
		s.churn(5)
		s.grow()
		s.churn(10)
	case workDamage:
		for range 6 {
			s.churn(2)
			s.add(step{kind: stepFlush}, step{kind: stepClose}, step{kind: stepDamage, damage: s.random.IntN(1 << 20)}, step{kind: stepOpen})
		}
		s.churn(2)
	case workReport:
		for range 5 {
			s.churn(8)
			s.add(step{kind: stepFlush}, step{kind: stepReport})
			s.churn(3)
			s.add(step{kind: stepFlush}, step{kind: stepClose}, step{kind: stepOpen})
		}
	default:
		s.churn(60)
	}
	s.add(step{kind: stepFlush}, step{kind: stepClose})
	return s.steps
}

type scripter struct {
	random     *rand.Rand
	generators []*storetest.Generator
	steps      []step
}

func (s *scripter) add(steps ...step) { s.steps = append(s.steps, steps...) }

// churn adds about n random steps.
func (s *scripter) churn(n int) {
	for range n {
		i := s.random.IntN(len(s.generators))
		id := identities()[i]
		switch k := s.random.IntN(100); {
		case k < 70:
			s.add(step{kind: stepApply, id: id, batch: s.generators[i].Batch()})
		case k < 93:
			s.add(step{kind: stepFlush})
		case k < 97:
			s.add(step{kind: stepForget, id: id})
		default:
			s.add(step{kind: stepFlush}, step{kind: stepClose}, step{kind: stepOpen})
		}
	}
}

// grow adds what makes the file grow beyond the 16 MiB at a time that bbolt
// allocates.
func (s *scripter) grow() {
	for i := range 6 {
		var b store.Batch
		for j := range 6 {
			value := make([]byte, 512<<10)
			for k := range value {
				value[k] = byte(i + j + k/sectorSize)
			}
			b.Ops = append(b.Ops, store.Op{Key: fmt.Sprintf("large/%d-%d", i, j), Value: store.Seal(value)})
		}
		s.add(step{kind: stepApply, id: identities()[0], batch: b}, step{kind: stepFlush})
	}
}

// mark is what a child writes when a step begins, and when it has ended well.
type mark struct {
	step int
	end  bool
}

func (m mark) String() string {
	if m.end {
		return "end " + strconv.Itoa(m.step)
	}
	return "begin " + strconv.Itoa(m.step)
}

func parseMark(s string) (mark, error) {
	word, number, _ := strings.Cut(strings.TrimSpace(s), " ")
	if word != "begin" && word != "end" {
		return mark{}, errors.New("not a mark: " + s)
	}
	n, err := strconv.Atoi(number)
	return mark{step: n, end: word == "end"}, err
}

// model runs a script on a store in memory.
type model struct {
	memory *storetest.Memory
	store  store.Store
}

func newModel() *model {
	m := &model{memory: storetest.NewMemory()}
	m.store = m.memory.Open()
	return m
}

// do does what a step does to the collections.
func (m *model) do(s step) error {
	switch s.kind {
	case stepApply:
		return m.with(s.id, func(c store.Collection) error { return c.Apply(s.batch) })
	case stepForget:
		if err := m.store.Forget(s.id); !errors.Is(err, store.ErrNotFound) {
			return err
		}
	case stepDamage, stepReport:
		*m = *newModel()
	case stepOpen, stepFlush, stepClose:
	}
	return nil
}

func (m *model) with(id store.Identity, fn func(store.Collection) error) error {
	c, err := m.store.Collection(id, "test")
	if err != nil {
		return err
	}
	return errors.Join(fn(c), c.Close())
}

// contents is everything in a collection.
func (m *model) contents(id store.Identity) (contents storetest.Contents, err error) {
	err = m.with(id, func(c store.Collection) (err error) {
		contents, _, err = dump(c)
		return err
	})
	return contents, err
}

// dump reads everything in a collection, and the totals that it keeps.
func dump(c store.Collection) (contents storetest.Contents, totals store.Totals, err error) {
	err = c.View(func(tx store.Tx) error {
		if contents, err = storetest.DumpTx(tx, "node", "owner"); err != nil {
			return err
		}
		totals, err = tx.Totals()
		return err
	})
	// What Seal protects stays valid only as long as the transaction.
	for i := range contents.Departed {
		contents.Departed[i].Value = slices.Clone(contents.Departed[i].Value)
	}
	return contents, totals, err
}
