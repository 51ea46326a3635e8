package operations

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/bench/internal/cluster"
	"github.com/warmcache/warmcache/indexer"
)

// Sizes are numbers of pods.
type Sizes struct {
	// Few and Many are in the files that are opened; Many is what single objects are
	// read from.
	Few, Many int
	// Memory is what is in memory, of our indexer and of client-go's.
	Memory int
	// Decoded is how many different objects are decoded for comparison.
	Decoded int
}

// DefaultSizes are those that the aims are about.
var DefaultSizes = Sizes{Few: 1000, Many: 200_000, Memory: 20_000, Decoded: 5000}

// Operation is a benchmark, and what it is compared with.
type Operation struct {
	// Name says what is done, Subject who does it.
	Name, Subject string
	Run           func(*testing.B)
	// Against names what Baseline does; empty for nothing.
	Against  string
	Baseline func(*testing.B)
	// Times is how often Baseline does what one Run corresponds to.
	Times int
	// Limit is how many times longer Run may take.
	Limit float64
	// benchtime overrides the default where what is not measured takes longer than
	// what is.
	benchtime string
}

// Fixture has the files and stores that operations read, which are for one goroutine.
type Fixture struct {
	sizes     Sizes
	few, many string
	// reader is open between operations that read from the same file; nil if none
	// is.
	reader  *openIndexer
	encoded [][]byte
	ours    *indexer.Indexer
	theirs  cache.Indexer
}

// New makes the files in dir. The caller must Close the fixture.
func New(dir string, s Sizes) (*Fixture, error) {
	f := &Fixture{sizes: s}
	var err error
	if f.few, err = write(dir, s.Few); err != nil {
		return nil, err
	}
	if f.many, err = write(dir, s.Many); err != nil {
		return nil, err
	}
	for i := range s.Decoded {
		encoded, err := pod(i * (s.Many / s.Decoded)).Marshal()
		if err != nil {
			return nil, err
		}
		f.encoded = append(f.encoded, encoded)
	}
	f.ours = indexer.New(indexer.Options{Indexers: indexers()})
	f.theirs = cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, indexers())
	var pods []any
	for i := range s.Memory {
		pods = append(pods, pod(i))
	}
	return f, errors.Join(f.ours.Replace(pods, "1"), f.theirs.Replace(pods, "1"))
}

// Close closes what is open.
func (f *Fixture) Close() error {
	if f.reader == nil {
		return nil
	}
	closing := f.reader
	f.reader = nil
	return closing.close()
}

// from returns a benchmark that reads from a file with the given memory budget. How
// the file is opened, and the first so many reads, are not measured.
func (f *Fixture) from(path string, budget int64, first int, do func(b *testing.B, x cache.Indexer, i int)) func(*testing.B) {
	return func(b *testing.B) {
		err := f.Close()
		if err == nil {
			f.reader, err = open(path, indexer.Disk, budget)
		}
		if err != nil {
			b.Fatal(err)
		}
		// Until the file is verified reads take longer, and so does everything else.
		<-f.reader.collection.Verified()
		for i := range first {
			do(b, f.reader, i)
		}
		loop(func(b *testing.B, i int) { do(b, f.reader, i) })(b)
	}
}

// Operations are all of them.
func (f *Fixture) Operations() []Operation {
	const decode, clientGo = "decode", "client-go"
	all := []Operation{
		{
			Name: fmt.Sprintf("open to first Get, %d pods", f.sizes.Many), Subject: "disk", Run: f.opening(f.many, f.sizes.Many),
			Against: fmt.Sprintf("%d pods", f.sizes.Few), Baseline: f.opening(f.few, f.sizes.Few), Times: 1, Limit: 2,
			benchtime: "3x",
		},
		{Name: "Get, hot", Subject: "disk", Run: f.getHot()},
		{Name: "Get, cold", Subject: "disk", Run: f.getCold(), Against: decode, Baseline: f.decode, Times: 1, Limit: 1.5},
		{
			Name: fmt.Sprintf("ByIndex of %d", cluster.PodsPerNode), Subject: "disk", Run: f.byIndexCold(),
			Against: fmt.Sprintf("%d decodes", cluster.PodsPerNode), Baseline: f.decode, Times: cluster.PodsPerNode, Limit: 70.0 / cluster.PodsPerNode,
		},
	}
	for _, read := range reads(f.sizes.Memory) {
		all = append(all, Operation{
			Name: read.name, Subject: "memory", Run: read.from(f.ours),
			Against: clientGo, Baseline: read.from(f.theirs), Times: 1, Limit: 1.05,
		})
	}
	return all
}

// getHot reads objects that all fit into the cache.
func (f *Fixture) getHot() func(*testing.B) {
	keys := make([]string, f.sizes.Few)
	for i := range keys {
		keys[i] = key(i)
	}
	return f.from(f.few, 0, len(keys), func(b *testing.B, x cache.Indexer, i int) { get(b, x, keys[i*stride%len(keys)]) })
}

func get(b *testing.B, x cache.Store, key string) {
	if _, exists, err := x.GetByKey(key); err != nil || !exists {
		b.Fatal(key, exists, err)
	}
}

// stride is coprime to the numbers of pods and nodes: what is read next was not
// read recently, and is in another place.
const stride = 7919

// getCold reads many objects with room for few.
func (f *Fixture) getCold() func(*testing.B) {
	keys := make([]string, f.sizes.Decoded)
	for i := range keys {
		keys[i] = key(i * (f.sizes.Many / f.sizes.Decoded))
	}
	return f.from(f.many, indexer.MinMemoryBudget, 0, func(b *testing.B, x cache.Indexer, i int) {
		get(b, x, keys[i*stride%len(keys)])
	})
}

// decode decodes what getCold reads.
func (f *Fixture) decode(b *testing.B) {
	loop(func(b *testing.B, i int) {
		if err := new(corev1.Pod).Unmarshal(f.encoded[i*stride%len(f.encoded)]); err != nil {
			b.Fatal(err)
		}
	})(b)
}

func (f *Fixture) byIndexCold() func(*testing.B) {
	nodes := make([]string, f.sizes.Many/cluster.PodsPerNode)
	for i := range nodes {
		nodes[i] = cluster.Real.Node(i * cluster.PodsPerNode)
	}
	return f.from(f.many, indexer.MinMemoryBudget, 0, func(b *testing.B, x cache.Indexer, i int) {
		byIndex(b, x, nodes[i*stride%len(nodes)])
	})
}

func byIndex(b *testing.B, x cache.Indexer, node string) {
	objs, err := x.ByIndex(nodeIndex, node)
	if err != nil || len(objs) != cluster.PodsPerNode {
		b.Fatal(node, len(objs), err)
	}
}

// opening is what a restart needs until it can answer its first read.
func (f *Fixture) opening(path string, pods int) func(*testing.B) {
	last := key(pods - 1)
	return func(b *testing.B) {
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			x, err := open(path, indexer.Disk, 0)
			if err != nil {
				b.Fatal(err)
			}
			get(b, x, last)
			b.StopTimer()
			if err := x.close(); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	}
}
