package damage

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/warmcache/warmcache/indexer"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
)

// sample is a file that was written through the real stack.
type sample struct {
	Name string
	// Versions are the file after each commit; the last one is what is damaged.
	Versions [][]byte
	// States are the contents after each commit, by the name of the spec. The
	// first is from before anything was written.
	States []map[string]contents

	layout *layout
}

// shape says what a sample has.
type shape struct {
	name string
	// objects are the number per spec, in the order of specs.
	objects []int
	commits int
	// nameLength and filler are upper limits, in bytes. Long names make deep
	// trees, because few keys fit into a branch page.
	nameLength, filler int
	// big is the size of every 20th object: more than a page.
	big int
}

var shapes = []shape{
	{name: "tiny", objects: []int{3}, commits: 4, nameLength: 20, filler: 30},
	{name: "small", objects: []int{8, 8, 8}, commits: 5, nameLength: 40, filler: 300, big: 9000},
	{name: "wide", objects: []int{250, 80, 60}, commits: 8, nameLength: 60, filler: 400, big: 30000},
	{name: "deep", objects: []int{0, 20, 70}, commits: 6, nameLength: 1800, filler: 100},
}

func (s *sample) file() []byte { return s.Versions[len(s.Versions)-1] }

// newest is the state after the last commit.
func (s *sample) newest() map[string]contents { return s.States[len(s.States)-1] }

// used are the specs that the sample has collections of.
func (s *sample) used() (used []*spec) {
	for _, sp := range specs {
		if len(s.newest()[sp.name].Objects) > 0 {
			used = append(used, sp)
		}
	}
	return used
}

// sampleWriter writes a sample.
type sampleWriter struct {
	shape
	*sample
	random  *rand.Rand
	path    string
	db      *bolt.DB
	opened  map[*spec]opened
	version int
}

// makeSample writes a sample at path.
func makeSample(s shape, path string) (*sample, error) {
	//hygiene:allow bolt.Open: a child has no test, and the file is damaged
	db, err := bolt.Open(path, options())
	if err != nil {
		return nil, err
	}
	w := &sampleWriter{
		shape: s, sample: &sample{Name: s.name, States: []map[string]contents{{}}}, random: rand.New(rand.NewPCG(1, uint64(len(s.name)))),
		path: path, db: db, opened: map[*spec]opened{},
	}
	err = w.open()
	for i := range s.commits {
		if err == nil {
			err = w.commit(i)
		}
	}
	for _, o := range w.opened {
		err = errors.Join(err, o.Detach())
	}
	return w.sample, errors.Join(err, db.Close())
}

// options are those of all files: commits come when they are asked for.
func options() bolt.Options { return bolt.Options{FlushInterval: time.Hour} }

// opened is a collection with the indexer that has it open.
type opened struct {
	*indexer.Indexer
	collection store.Collection
}

func (w *sampleWriter) open() error {
	for i, n := range w.objects {
		if n == 0 {
			continue
		}
		c, err := w.db.Collection(specs[i].id, "test")
		if err != nil {
			return err
		}
		x := newIndexer()
		if _, err := x.Attach(c, specs[i].codec, specs[i].codec.Fingerprint()); err != nil {
			return err
		}
		if err := x.Load(context.Background()); err != nil {
			return err
		}
		w.opened[specs[i]] = opened{x, c}
	}
	return nil
}

// commit writes the next state: first a part of a list, then the rest of it,
// then changes, in the last one of headers alone.
func (w *sampleWriter) commit(i int) error {
	w.version++
	for n, s := range specs {
		x, ok := w.opened[s]
		if !ok {
			continue
		}
		var u indexer.Update
		switch i {
		case 0:
			u = w.puts(s, 0, w.objects[n]/2)
			u.Incomplete = true
		case 1:
			u = w.puts(s, w.objects[n]/2, w.objects[n])
			u.Complete, u.RV = true, fmt.Sprint(w.version)
			u.Cluster, u.Schema = "cluster-1", "schema-1"
		case w.commits - 1:
			u = indexer.Update{RV: fmt.Sprint(w.version), Contact: time.Unix(1e9, 0)}
		default:
			u = w.churn(s, w.objects[n])
		}
		if _, err := x.Apply(u); err != nil {
			return err
		}
	}
	for _, x := range w.opened {
		if err := x.Flush(context.Background()); err != nil {
			return err
		}
	}
	return w.record()
}

func (w *sampleWriter) name(s *spec, i int) string {
	name := fmt.Sprintf("%s-%04d-", s.name, i*7919%10007)
	return name + strings.Repeat("n", max(0, w.nameLength-len(name)-i%13))
}

func (w *sampleWriter) object(s *spec, i int) indexer.Change {
	name := w.name(s, i)
	size := w.random.IntN(w.filler)
	if w.big > 0 && i%20 == 0 {
		size = w.big
	}
	filler := make([]byte, size)
	for i := range filler {
		filler[i] = byte('a' + w.random.IntN(26))
	}
	return indexer.Change{Key: "ns/" + name, Object: s.make(name, w.version*10000+i, string(filler))}
}

func (w *sampleWriter) puts(s *spec, from, to int) (u indexer.Update) {
	for i := from; i < to; i++ {
		u.Changes = append(u.Changes, w.object(s, i))
	}
	return u
}

// churn changes and deletes some objects.
func (w *sampleWriter) churn(s *spec, n int) indexer.Update {
	u := indexer.Update{RV: fmt.Sprint(w.version)}
	for range 1 + n/8 {
		u.Changes = append(u.Changes, w.object(s, w.random.IntN(n)))
	}
	for range 1 + n/30 {
		u.Changes = append(u.Changes, indexer.Change{Key: "ns/" + w.name(s, w.random.IntN(n)), Depart: true})
	}
	return u
}

// record keeps the file and what is in it.
func (w *sampleWriter) record() error {
	file, err := os.ReadFile(w.path)
	if err != nil {
		return err
	}
	// bbolt grows a file by 16 MiB at once, of which nothing is used yet.
	w.Versions = append(w.Versions, file[:parseMeta(file).pages*pageSize])
	state := map[string]contents{}
	for s, x := range w.opened {
		if state[s.name], err = x.current(s); err != nil {
			return err
		}
	}
	w.States = append(w.States, state)
	return nil
}

// current returns what a collection holds.
func (o opened) current(s *spec) (c contents, err error) {
	if c.Objects, err = s.objectsOf(o.Indexer); err != nil {
		return c, err
	}
	err = o.collection.View(func(tx store.Tx) (err error) {
		if c.Header, err = tx.Header(); err == nil {
			c.Departed, err = departedOf(tx)
		}
		return err
	})
	return c, err
}

// saveSamples makes all samples, in a directory from which children, and later
// runs, can load them.
func saveSamples(dir string) error {
	for _, s := range shapes {
		made, err := makeSample(s, filepath.Join(dir, s.name+".db"))
		if err != nil {
			return fmt.Errorf("sample %s: %w", s.name, err)
		}
		file, err := os.Create(filepath.Join(dir, s.name+".gob"))
		if err != nil {
			return err
		}
		if err := errors.Join(gob.NewEncoder(file).Encode(made), file.Close()); err != nil {
			return err
		}
	}
	return nil
}

func loadSamples(dir string) (samples []*sample, err error) {
	for _, shape := range shapes {
		file, err := os.Open(filepath.Join(dir, shape.name+".gob"))
		if err != nil {
			return nil, err
		}
		s := &sample{}
		if err := errors.Join(gob.NewDecoder(file).Decode(s), file.Close()); err != nil {
			return nil, err
		}
		s.layout = parse(s.file())
		samples = append(samples, s)
	}
	return samples, nil
}
