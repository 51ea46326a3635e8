package fifo

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/internal/isnil"
)

// maxBatch is the default of Options.MaxBatch, client-go's (the_real_fifo.go): large
// enough to share locks and commits, small enough that readers and handlers are not
// kept waiting.
const maxBatch = 1000

// Options configure a Queue.
type Options struct {
	// Known is the store that deltas are applied to. Required.
	Known KnownObjects
	// Transform, if set, is called once for every object that enters the
	// queue, except tombstones and resynced objects. It must not return nil.
	Transform cache.TransformFunc
	// Stream hands lists on to the consumer while they are read; see the package
	// documentation.
	Stream bool
	// Limit is how many objects may wait in the queue. Add, Update, Delete and the
	// Add of a streamed list wait while there are as many, until the consumer makes
	// room or fails, or Close. Zero is no limit.
	Limit int
	// Bytes bounds the size of what waits, as Limit does its number: no other object is
	// taken once it is reached. A quarter of it ends a batch, and a part of a streamed
	// list, in the same way. Zero is no limit.
	Bytes int64
	// Size estimates how many bytes an object takes. Required with Bytes. It is called by
	// whoever brings one.
	Size func(obj any) int64
	// MaxBatch is how many deltas go into one batch, and how many objects into a part of
	// a streamed list; 0 means 1000.
	MaxBatch int
	// Metrics, if set, makes the metrics of the queue, for an Identifier that is
	// reserved, as client-go's queue does.
	Metrics    cache.InformerMetricsProvider
	Identifier cache.InformerNameAndResource
}

// Queue is the delta queue; see the package documentation. All methods are safe
// for concurrent use; PopBatch and Fail must only be called by one goroutine.
type Queue struct {
	known     KnownObjects
	transform cache.TransformFunc
	stream    bool
	limit     int
	bytes     int64
	sizeOf    func(obj any) int64
	failures  chan error
	metrics   metrics
	maxBatch  int

	// expansion is the item that PopBatch is turning into deltas. It belongs to
	// the consumer.
	expansion expansion
	// lost is set from a LostError until a list has been applied. It is the
	// consumer's, too.
	lost *LostError

	mu struct {
		sync.Mutex
		items []item
		// last finds the newest queued delta of a key, to compress duplicates.
		// It holds the position of the item counted since the queue was made.
		last map[string]uint64
		// popped is how many items have left the queue.
		popped uint64
		// waiting is how many objects wait in items, bytes their size.
		waiting int
		bytes   int64
		// stream is the streamed list under way of which parts have been queued.
		stream *stream
		// failed is set while deltas are discarded until the next list.
		failed bool
		// loss says that what failures was last given is a LostError.
		loss   bool
		closed bool
		// woken says that PopBatch is not to wait.
		woken bool
	}
	// cond is signalled when there is an item, or none will come; room when waiting
	// has fallen below the limit, or does not matter any more.
	cond, room *sync.Cond
}

// item is one entry of the queue. Exactly one of delta, expansion, reset and
// caughtUp is set, or none if it is a bookmark.
type item struct {
	delta Delta
	// rv is the version that holds after this item, or empty.
	rv string
	// expansion is what becomes deltas when it is reached: a list, or a part of
	// one, or a resync.
	expansion expansion
	reset     bool
	caughtUp  *CaughtUp
	// bytes is the size of the objects in it.
	bytes int64
}

func (it *item) isDelta() bool { return it.delta.Key != "" }

// size is how many objects wait in the item.
func (it *item) size() int {
	switch {
	case it.expansion != nil:
		return it.expansion.size()
	case it.isDelta():
		return 1
	}
	return 0
}

func (it *item) isBookmark() bool { return it.rv != "" && !it.isDelta() }

// isList reports whether a list begins here that has arrived whole, or goes on
// arriving.
func (it *item) isList() bool {
	switch e := it.expansion.(type) {
	case *listExpansion:
		return true
	case *part:
		return e.first && e.stream.err == nil
	}
	return false
}

// New returns an empty queue.
func New(o Options) *Queue {
	q := &Queue{
		known: o.Known, transform: o.Transform, stream: o.Stream, limit: o.Limit, bytes: o.Bytes, sizeOf: o.Size, failures: make(chan error, 1),
		maxBatch: o.MaxBatch, metrics: newMetrics(o.Identifier, o.Metrics),
	}
	if q.maxBatch <= 0 {
		q.maxBatch = maxBatch
	}
	q.mu.last = map[string]uint64{}
	q.cond, q.room = sync.NewCond(&q.mu), sync.NewCond(&q.mu)
	return q
}

// Add queues an object that a watch reported as added. On an error, which is the
// transform's or wraps ErrInvalidObject, nothing is queued; so for Update and
// Delete. After Close, or a failure, the object is dropped without an error.
func (q *Queue) Add(obj any) error { return q.push(cache.Added, obj) }

// Update queues an object that a watch reported as modified.
func (q *Queue) Update(obj any) error { return q.push(cache.Updated, obj) }

// Delete queues the deletion of an object, given its final state or a
// cache.DeletedFinalStateUnknown.
func (q *Queue) Delete(obj any) error { return q.push(cache.Deleted, obj) }

// Bookmark queues the information that everything up to rv has been read, unless
// rv is empty. The error is always nil.
func (q *Queue) Bookmark(rv string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.failed || rv == "" {
		return nil
	}
	if n := len(q.mu.items); n > 0 && q.mu.items[n-1].isBookmark() {
		q.mu.items[n-1].rv = rv
		return nil
	}
	q.appendLocked(item{rv: rv})
	return nil
}

// Resync queues a Sync delta for every object known when the consumer reaches
// it. A resync that is still waiting is not queued twice.
func (q *Queue) Resync() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.mu.items {
		if _, waiting := q.mu.items[i].expansion.(*resyncExpansion); waiting {
			return
		}
	}
	q.appendLocked(item{expansion: &resyncExpansion{}})
}

// CaughtUp queues a mark; the batch that carries it is the first one after which
// everything queued so far has been applied. A failure drops it like a delta.
func (q *Queue) CaughtUp(confirmed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.failed {
		return
	}
	q.appendLocked(item{caughtUp: &CaughtUp{Confirmed: confirmed}})
}

// Reset queues the order to forget all known objects without deleting them one
// by one: they belong to another cluster. A list must follow, and nothing that was
// lost has to be listed any more. A failure of what is queued before does not drop
// it.
func (q *Queue) Reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lossWaitsLocked() {
		q.takeBackLocked()
	}
	q.appendLocked(item{reset: true})
}

// Failed delivers the error of a consumer that could not apply a batch, once
// until it is received. A list that is queued meanwhile takes it back.
func (q *Queue) Failed() <-chan error { return q.failures }

// Len returns the number of queued items. A list counts as one, or a streamed one
// as one for each of its parts.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.items)
}

// Wake makes PopBatch, if it waits or when it is called next, pass an empty batch to
// process should nothing be queued: for a consumer that has something else to do.
func (q *Queue) Wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.woken = true
	q.cond.Signal()
}

// Close makes PopBatch return ErrClosed from now on. What is queued is dropped:
// it was never applied, so a later start reads it again.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.closed = true
	q.mu.items, q.mu.waiting, q.mu.bytes = nil, 0, 0
	q.metrics.queued.Set(0)
	clear(q.mu.last)
	q.cond.Broadcast()
	q.room.Broadcast()
}

func (q *Queue) push(t cache.DeltaType, obj any) error {
	// The version comes from the object as it arrived: a transform may strip it.
	rv := resourceVersionOf(obj)
	d, err := q.newDelta(t, obj)
	if err != nil {
		return err
	}
	bytes := q.size(d)
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.mu.closed || q.mu.failed || q.compressLocked(d, rv) {
			return nil
		}
		if !q.isFullLocked() {
			break
		}
		q.room.Wait()
	}
	q.appendLocked(item{delta: d, rv: rv, bytes: bytes})
	q.mu.last[d.Key] = q.mu.popped + uint64(len(q.mu.items)) - 1
	return nil
}

func (q *Queue) isFullLocked() bool {
	return q.limit > 0 && q.mu.waiting >= q.limit || q.bytes > 0 && q.mu.bytes >= q.bytes
}

// size estimates what the object of a delta takes.
func (q *Queue) size(d Delta) int64 {
	if q.bytes == 0 || d.Object == nil || d.Type == kept {
		return 0
	}
	return q.sizeOf(d.Object)
}

// fills reports whether so many objects of so many bytes are enough for a batch, or
// for a part of a list.
func (q *Queue) fills(objects int, bytes int64) bool {
	return objects >= q.maxBatch || q.bytes > 0 && bytes >= q.bytes/4
}

// newDelta applies the transform and computes the key of its result, as client-go
// does. A delta without a key or an object would vanish in the queue, while its
// version moves on.
func (q *Queue) newDelta(t cache.DeltaType, obj any) (Delta, error) {
	key, err := keyOf(obj)
	if err != nil {
		return Delta{}, err
	}
	if _, isTombstone := obj.(cache.DeletedFinalStateUnknown); isTombstone || q.transform == nil {
		return Delta{Type: t, Key: key, Object: obj}, nil
	}
	if obj, err = q.transform(obj); err != nil {
		return Delta{}, fmt.Errorf("transform of %s: %w", key, err)
	}
	if isnil.Value(obj) {
		return Delta{}, fmt.Errorf("%w: the transform of %s returned nil", ErrInvalidObject, key)
	}
	if key, err = keyOf(obj); err != nil {
		return Delta{}, fmt.Errorf("after the transform: %w", err)
	}
	return Delta{Type: t, Key: key, Object: obj}, nil
}

// keyOf does not use cache.KeyError, whose text shows the whole object.
func keyOf(obj any) (string, error) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return "", fmt.Errorf("%w: type %T: %w", ErrInvalidObject, obj, err)
	}
	if key == "" {
		return "", fmt.Errorf("%w: a %T has no name", ErrInvalidObject, obj)
	}
	return key, nil
}

// compressLocked reports whether d repeats the newest queued delta of its object,
// and keeps the better informed of two deletions.
func (q *Queue) compressLocked(d Delta, rv string) bool {
	position, ok := q.mu.last[d.Key]
	if !ok {
		return false
	}
	queued := &q.mu.items[position-q.mu.popped]
	switch {
	case queued.delta.Type != d.Type:
		return false
	case d.Type != cache.Deleted:
		return rv != "" && rv == queued.rv
	case isTombstone(d):
		return true
	case isTombstone(queued.delta):
		// The version stays that of the first: in between other objects'
		// deltas may be queued.
		queued.delta = d
		return true
	}
	return rv != "" && rv == queued.rv
}

func isTombstone(d Delta) bool {
	_, ok := d.Object.(cache.DeletedFinalStateUnknown)
	return ok
}

func (q *Queue) appendLocked(it item) {
	if q.mu.closed {
		return
	}
	q.mu.items = append(q.mu.items, it)
	q.mu.waiting += it.size()
	q.mu.bytes += it.bytes
	q.metrics.queued.Set(float64(len(q.mu.items)))
	q.cond.Signal()
}

// resourceVersionOf returns the version of an object, or "" for a tombstone: the
// version in its last known state says nothing about when it was deleted.
func resourceVersionOf(obj any) string {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return accessor.GetResourceVersion()
}
