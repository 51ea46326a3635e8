package bolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
	"github.com/warmcache/warmcache/store/storetest"
)

const (
	// growthObjects is how many objects there are at most, of about 2 KB.
	growthObjects = 1000
	// growthOps is how many of them one commit changes. That changes five entries
	// each at most: the record, an index entry that comes and one that goes, a
	// departed record that comes and one that goes.
	growthOps     = 10
	growthEntries = growthOps * 5
	// growthDepth is the height of the highest tree.
	growthDepth = 3
	// growthPages is the most pages that one commit writes, but for the list of
	// free ones: the path to each entry, root, header, a meta page, and one for
	// the split of the root.
	growthPages = growthEntries*growthDepth + 4

	bytesOfPage = 4096
	// allocation is by how much bbolt grows the file beyond what it needs.
	allocation = 16 << 20
)

// churner changes a bounded set of objects without end, and measures.
type churner struct {
	t      *testing.T
	path   string
	db     *bolt.DB
	c      store.Collection
	random *rand.Rand
	// generation of each object, 0 if it is not there.
	generation [growthObjects]int
	departed   []store.DepartedOp
	commits    int
	// widest is the most pages that held something, heaviest the most that a
	// commit wrote, but for the list of free ones.
	widest, heaviest int64
}

func newChurner(t *testing.T) *churner {
	ch := &churner{t: t, path: filepath.Join(t.TempDir(), "cache.db"), random: newRand(t)}
	ch.db = bolttest.Open(t, ch.path, bolt.Options{FlushInterval: time.Hour})
	ch.c = collection(t, ch.db)
	for i := 0; i < growthObjects; i += growthOps {
		ch.commit(func(n int) int { return i + n })
	}
	return ch
}

// commit changes growthOps objects in one commit.
func (ch *churner) commit(which func(n int) int) {
	ch.t.Helper()
	ch.commits++
	b := store.Batch{Header: &store.Header{RV: fmt.Sprint(ch.commits)}, Departed: ch.departed}
	ch.departed = nil
	for n := range growthOps {
		b.Ops = append(b.Ops, ch.op(which(n)))
	}
	if err := ch.c.Apply(b); err != nil {
		ch.t.Fatal(err)
	}
	if err := ch.c.Flush(ch.t.Context()); err != nil {
		ch.t.Fatal(err)
	}
}

// op rewrites, deletes, or creates an object. What departs is forgotten with the
// next commit.
func (ch *churner) op(i int) store.Op {
	key, was := fmt.Sprintf("ns/%05d", i), ch.generation[i]
	remove := []string{fmt.Sprint(was % 100)}
	if was > 0 && ch.random.IntN(4) == 0 {
		ch.generation[i] = 0
		ch.departed = append(ch.departed, store.DepartedOp{Key: key, UID: "uid", Remove: true})
		return store.Op{Key: key, Depart: "uid", Index: []store.IndexChange{{Name: "node", Remove: remove}}}
	}
	ch.generation[i] = ch.commits
	content := strings.Repeat("x", 500+ch.random.IntN(3000))
	return storetest.Put(key, content, store.IndexChange{Name: "node", Remove: remove, Add: []string{fmt.Sprint(ch.commits % 100)}})
}

// churn makes n commits, calls each after every one, and checks what one writes:
// the pages it changes and the list of free pages. It returns the bytes that one
// has written on average.
func (ch *churner) churn(n int, each func(i int)) (perCommit int64) {
	ch.t.Helper()
	var total int64
	for i := range n {
		before := writtenBytes(ch.t)
		ch.commit(func(int) int { return ch.random.IntN(growthObjects) })
		written := writtenBytes(ch.t) - before
		total += written
		used, free := ch.pages()
		ch.widest = max(ch.widest, used-free)
		ch.heaviest = max(ch.heaviest, (written-8*free)/bytesOfPage)
		if limit := (growthPages + freelistPages(free)) * bytesOfPage; written > limit {
			ch.t.Fatalf("commit %d of %d wrote %d bytes, want at most %d", i, n, written, limit)
		}
		each(i)
	}
	return total / int64(n)
}

// check checks the size of the file after Views that lasted for at most so many
// commits, against the bound in the documentation of package bolt.
func (ch *churner) check(when string, lasted int, perCommit int64) (used int64) {
	ch.t.Helper()
	used, free := ch.pages()
	info, err := os.Stat(ch.path)
	if err != nil {
		ch.t.Fatal(err)
	}
	ch.t.Logf("%s: %d pages, %d free, file of %d KB, %d KB per commit", when, used, free, info.Size()>>10, perCommit>>10)
	limit := float64(ch.widest + 2*ch.heaviest)
	for range lasted {
		limit += float64(ch.heaviest) + limit*8/bytesOfPage
	}
	if float64(used) > limit {
		ch.t.Errorf("%s: %d pages, want at most %.0f: %d that hold something, %d of a commit", when, used, limit, ch.widest, ch.heaviest)
	}
	if limit := (used+1)*bytesOfPage + allocation; info.Size() > limit {
		ch.t.Errorf("%s: %d bytes, want at most %d", when, info.Size(), limit)
	}
	return used
}

// pages returns how many pages the file has in use, free ones included, and how
// many of them are free.
func (ch *churner) pages() (used, free int64) {
	ch.t.Helper()
	used, free, err := bolt.Pages(ch.db)
	if err != nil {
		ch.t.Fatal(err)
	}
	return used, free
}

// writtenBytes is how many bytes this process has handed to write system calls.
func writtenBytes(t *testing.T) (n int64) {
	t.Helper()
	content, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(content) {
		if _, err := fmt.Sscanf(string(line), "wchar: %d", &n); err == nil {
			return n
		}
	}
	t.Fatalf("no wchar in %s", content)
	return 0
}

// freelistPages is the most pages that the list of so many free ones takes. bbolt
// estimates it before it knows which ones this commit frees itself.
func freelistPages(free int64) int64 { return (16+8*(free+growthPages))/bytesOfPage + 2 }

// hold begins a View, which lasts until end is called.
func (ch *churner) hold() (end func()) {
	inside, release, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		err := ch.c.View(func(tx store.Tx) error {
			before, err := tx.Totals()
			close(inside)
			<-release
			scanned := store.Totals{}
			scanErr := tx.Scan("", func(key, value []byte) bool { scanned.Add(string(key), value); return true })
			if scanned != before {
				err = fmt.Errorf("a long View began with %+v and found %+v", before, scanned)
			}
			return errors.Join(err, scanErr)
		})
		if err != nil {
			ch.t.Error(err)
		}
	}()
	<-inside
	return func() { close(release); <-done }
}

// abandon begins to read in every way there is, and stops half way.
func (ch *churner) abandon() {
	ch.t.Helper()
	count := 0
	some := func() bool { count++; return count%3 != 0 }
	err := ch.c.View(func(tx store.Tx) error {
		return errors.Join(
			tx.Scan("", func(_, _ []byte) bool { return some() }),
			tx.IndexKeys("node", "1", "", func([]byte) bool { return some() }),
			tx.IndexValues("node", "", func([]byte) bool { return some() }),
			tx.Departed(func(store.Departed) bool { return some() }))
	})
	if err != nil {
		ch.t.Fatal(err)
	}
	if err := ch.c.View(func(store.Tx) error { return errAbandoned }); !errors.Is(err, errAbandoned) {
		ch.t.Fatal(err)
	}
}

var errAbandoned = errors.New("abandoned")

// TestGrowth_Bounded changes a bounded set of objects in thousands of commits,
// with short readers, readers that stop half way, one long reader, and long ones
// that overlap, and checks the bounds that the package documentation states.
func TestGrowth_Bounded(t *testing.T) {
	unit := 100
	if testing.Short() {
		unit = 20
	}
	ch := newChurner(t)
	ch.check("no reader", 0, ch.churn(5*unit, func(int) {}))
	ch.check("abandoned readers", 0, ch.churn(5*unit, func(int) { ch.abandon() }))

	end := ch.hold()
	during := ch.churn(3*unit, func(int) {})
	end()
	pinned := ch.check("a long reader", 3*unit, during)
	after := ch.churn(3*unit, func(int) {})
	if used := ch.check("after it", 3*unit, after); used > pinned+ch.heaviest {
		t.Errorf("pages that a reader had pinned are not used again: %d after %d", used, pinned)
	}

	// Readers that overlap so that there always is one, each of them bounded.
	var ends []func()
	overlapping := ch.churn(4*unit, func(i int) {
		if i%(unit/4) == 0 {
			ends = append(ends, ch.hold())
		}
		if len(ends) == 4 {
			ends[0]()
			ends = ends[1:]
		}
	})
	for _, end := range ends {
		end()
	}
	if used := ch.check("overlapping readers", 3*unit, overlapping); used > pinned+ch.heaviest {
		t.Errorf("readers of %d commits took more than one of %d: %d pages after %d", unit, 3*unit, used, pinned)
	}
}
