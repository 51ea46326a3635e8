package fifo

import (
	"k8s.io/client-go/tools/cache"
)

// Delta is one change of one object. The types are client-go's: Added, Updated
// and Deleted come from a watch, Replaced and Deleted from a list, Sync from a
// resync.
type Delta struct {
	Type cache.DeltaType
	// Key is the key of the object after the transform, as
	// DeletionHandlingMetaNamespaceKeyFunc gives it. It is never empty.
	Key string
	// Object is the object after the transform. For Deleted it is the final
	// state that the server sent, or a cache.DeletedFinalStateUnknown around
	// the last known state if the deletion was only noticed by its absence.
	Object any
}

// Batch is what the consumer applies at once, in the order of the fields. Any
// part may be empty.
type Batch struct {
	// Reset says to forget all known objects. Such a batch has no other part.
	Reset  bool
	Deltas []Delta
	// RV is the resourceVersion that holds once Deltas are applied, or empty
	// if they do not move it. The last batch of a list has that of the list,
	// even if it is empty.
	RV string
	// List says whether Deltas come from a list, and whether more of it follows.
	List ListPart
	// CaughtUp is the mark that the queue held behind the deltas, or nil.
	CaughtUp *CaughtUp
}

// ListPart tells the place of a batch within a list.
type ListPart int

const (
	// NoList is a batch of watch events or resyncs.
	NoList ListPart = iota
	// ListPartial is a batch with more of the same list to come: until the last
	// part is applied the store holds neither the old nor the new state.
	ListPartial
	// ListEnd is the last, or only, batch of a list.
	ListEnd
)

// CaughtUp marks the point in the queue where the store, once it has applied
// what came before, may be shown to handlers.
type CaughtUp struct {
	// Confirmed says that this state is proven to be at least as new as the
	// server's when the reflector started.
	Confirmed bool
}

// KnownObjects is what a list is reconciled against: the store that the deltas
// are applied to. It is only called from within PopBatch, by its goroutine.
type KnownObjects interface {
	// ListKeys returns the keys of all known objects.
	ListKeys() []string
	// KeysIn calls fn, until it returns false, with the known keys behind after up
	// to and including upTo, in byte order. An empty upTo is no end. What has been
	// applied counts at once; nothing is applied meanwhile.
	KeysIn(after, upTo string, fn func(key string) bool) error
	// GetByKey returns the last known state. A key that ListKeys returned may
	// exist with a nil item, if the object can no longer be read.
	GetByKey(key string) (item any, exists bool, err error)
	// Holds reports whether each of the keys has, recorded and readable, the object of
	// the given UID and resourceVersion. The arguments are parallel.
	Holds(keys, uids, rvs []string) (bool, error)
	// Unchanged reports of each object whether it is recorded under its key
	// exactly as it is. The arguments and the result are parallel; no key
	// comes twice.
	Unchanged(keys []string, objs []any) ([]bool, error)
}
