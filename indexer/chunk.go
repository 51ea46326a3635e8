package indexer

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/warmcache/warmcache/store"
)

// Bounds of a chunk.
const (
	replayRecords = 256
	replayBytes   = 1 << 20
	// lookRecords bounds what is looked at.
	lookRecords = 16 * replayRecords
)

// Chunk is a run of objects in the order of their keys, of one snapshot. Most of them
// are not decoded yet. It is for one goroutine at a time.
type Chunk struct {
	snapshot
	found []found
	// last is the key of the last record that was looked at.
	last string
}

// Chunk returns objects that follow the key after, which is empty for the first: none
// if there are no more. What it costs does not depend on how large the objects are
// once they are decoded. Errors wrap ErrUnreadable, or are that of a store that is
// closed, or ErrResidency.
func (x *Indexer) Chunk(after string) (*Chunk, error) {
	d := x.disk.Load()
	if d == nil {
		return nil, ErrResidency
	}
	for {
		c, more, err := d.scan(after, nil, visitAll)
		if err != nil || len(c.found) > 0 || !more {
			return c, err
		}
		after = c.last // all of these are hidden
	}
}

// visitor passes the objects of a query that follow a key to take, until that returns
// false.
type visitor func(tx store.Tx, after string, take func(key, value []byte) bool) error

func visitAll(tx store.Tx, after string, take func(key, value []byte) bool) error {
	return tx.Scan(following(after), take)
}

// scan gathers a chunk of what a visitor finds, and says whether there may be more.
// Records that skip leaves out count, too: a View must not last long.
func (d *disk) scan(after string, skip func(value []byte) (bool, error), visit visitor) (c *Chunk, more bool, err error) {
	g := gatherer{snapshot: d.snapshot(), skip: skip}
	c = &Chunk{snapshot: g.snapshot, last: after}
	looked := 0
	err = g.view(func(tx store.Tx) error {
		err := visit(tx, after, func(key, value []byte) bool {
			looked, c.last = looked+1, string(key)
			return g.take(key, value) && len(g.found) < replayRecords && looked < lookRecords && g.bytes < replayBytes
		})
		return errors.Join(err, g.err)
	})
	c.found = g.found
	return c, looked > 0, err
}

// Len returns the number of objects.
func (c *Chunk) Len() int { return len(c.found) }

// Key returns the key of the n-th object.
func (c *Chunk) Key(n int) string { return c.found[n].key }

// Object returns the n-th object, which is shared with other readers. The error wraps
// ErrUnreadable. It must be called once at most for each object: the chunk lets go
// of it.
func (c *Chunk) Object(n int) (runtime.Object, error) {
	f := c.found[n]
	c.found[n] = found{key: f.key}
	if f.obj != nil {
		return f.obj, nil
	}
	return c.decode(f.key, f.value)
}
