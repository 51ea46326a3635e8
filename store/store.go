// Package store is the contract between an informer and the engine that keeps
// its objects: opaque records by key, secondary index entries, a header with
// the resourceVersion they belong to, and the records of departed objects.
//
// It holds no engine. The bbolt engine is in store/bolt; store/storetest has the
// conformance suite that every engine passes and a model engine in memory.
//
// What every engine guarantees:
//
//   - A Batch is atomic: objects, index entries, departed records and header
//     become visible together, and durable together. After a crash the file
//     holds all of a batch or nothing of it, and every batch before it.
//   - Apply is visible at once: a View that starts after Apply returned sees it,
//     although it may become durable only with a later commit.
//   - A View is one consistent snapshot, whatever is applied meanwhile.
//   - Keys are ordered by their bytes.
//   - A read that fails is an error, never an absence.
//   - A file that is found damaged is moved aside, and another begun in its place.
//     What the collections held is lost then, and they are told: see
//     Collection.Lost.
//
// Engines do not decode records. They rely on one thing only: a record ends in
// the checksum that Seal appends.
package store

import (
	"context"
	"time"
)

// Store is one open file (or its equivalent) with the collections of many
// informers. All methods are safe for concurrent use.
type Store interface {
	// Collection opens the collection of id, empty if there is none yet. The
	// owner says for whom, and is only used to tell people. It returns an error
	// wrapping ErrInUse, which names both owners, while another Collection with
	// this identity is open, ErrInvalidIdentity, or ErrClosed.
	Collection(id Identity, owner string) (Collection, error)

	// Informers describes every collection in the file, ordered by identity.
	Informers() ([]Info, error)

	// Forget removes a collection and all that belongs to it, durably. It
	// returns an error wrapping ErrInUse if the collection is open and
	// ErrNotFound if it does not exist.
	Forget(id Identity) error

	// Status describes the store as a whole. It does not wait for the disk.
	Status() Status

	// Close makes everything applied durable, as far as the disk allows, and
	// releases the file. Collections return ErrClosed from then on.
	// Further calls return nil. The error says what could not be made durable.
	Close() error
}

// Collection is what one informer owns. All methods are safe for concurrent
// use; only one goroutine is expected to call Apply.
//
// After Close, Apply and Flush return ErrClosed. Reading goes on until the store
// is closed, for those who outlive the owner: View shows what the file holds of the
// identity by then, which is nothing after a Forget. What another opening of it
// applies shows at the latest when it is durable.
type Collection interface {
	// Identity returns the identity the collection was opened with.
	Identity() Identity

	// View calls fn with a snapshot of everything applied so far and returns
	// its error. The Tx, and every byte slice it hands out, is valid only until
	// fn returns. fn must be short and must not call user code, Apply, Flush
	// or another View: an engine may block its writer for that long. A panic
	// that damage in the file causes is returned as an error wrapping
	// ErrCorrupt.
	View(fn func(Tx) error) error

	// Apply makes b visible and schedules its commit. The collection takes
	// ownership of the slices in b. A disk that is full or failing does not
	// make Apply fail: the engine keeps the batch, retries, and says so in
	// Durability. Errors, after each of which nothing of b was applied:
	// ErrClosed, ErrReadOnly, ErrInvalidBatch, ErrCorrupt when the collection is
	// lost, or that the disk does not let something be read on which b depends.
	Apply(b Batch) error

	// Flush waits until everything applied before the call is durable, the
	// context ends, or a commit fails, and returns that commit's error.
	Flush(ctx context.Context) error

	// Durability says what has reached the disk, also after Close. It does not wait
	// for the disk.
	Durability() Durability

	// Lost returns a channel that is closed when what the collection holds is
	// lost, because the file was found damaged while it was open. From then on
	// View, Apply and Flush return an error that wraps ErrCorrupt, until a Batch
	// with Clear begins anew, which is possible at once. After that, Lost returns
	// another channel.
	Lost() <-chan struct{}

	// Verified returns a channel that is closed once reads are as fast as they
	// get, or what the collection held is lost. Until then the engine may still be
	// verifying the file, and does not trust what it reads: it is as right as later,
	// and slower. Nothing becomes durable meanwhile. Whoever is about to read
	// everything had better wait.
	Verified() <-chan struct{}

	// Quarantine tells the engine that what it has returned is damaged, as a
	// checksum or the totals show. It has the effect of damage that the engine
	// finds itself: the file is moved aside, and all its collections are lost. It
	// does nothing if they are already. After Close the cause must have shown in one
	// View: between two of them others may have written.
	Quarantine(cause error)

	// Close flushes and releases the identity, so that it can be opened again.
	// Further calls return nil.
	Close() error
}

// Tx reads one snapshot of a collection. It is not safe for concurrent use.
// Callbacks return false to stop; stopping is not an error.
type Tx interface {
	// Header returns the header, or ErrNotFound for a collection that has
	// never been written.
	Header() (Header, error)

	// Totals returns count, bytes and sum of the objects as they were kept when
	// these were written: what a Scan must find. What waits for a commit makes
	// the call longer.
	Totals() (Totals, error)

	// Get returns the record of key or ErrNotFound.
	Get(key string) ([]byte, error)

	// Scan calls fn for every object whose key is >= from, in key order.
	Scan(from string, fn func(key, value []byte) bool) error

	// IndexKeys calls fn, in key order, for every key >= from that has the
	// given value in the named index. An index never written is empty.
	IndexKeys(name, value, from string, fn func(key []byte) bool) error

	// IndexValues calls fn once for every value >= from of the named index
	// that has at least one key, in the byte order of the values.
	IndexValues(name, from string, fn func(value []byte) bool) error

	// Departed calls fn for every departed record, ordered by key and UID.
	Departed(fn func(Departed) bool) error
}

// Batch is a set of changes that take effect together. Clear and DropIndices
// come before Ops.
type Batch struct {
	// Clear removes all objects, index entries and departed records first. The
	// header goes too unless Header is set.
	Clear bool
	// DropIndices empties these indices first.
	DropIndices []string
	// Ops are applied in order; a later one for the same key wins.
	Ops []Op
	// Index changes index entries of objects that do not change themselves, as
	// when an index is added; after Ops.
	Index []IndexOp
	// Departed changes records that Op.Depart has made.
	Departed []DepartedOp
	// Header replaces the header unless it is nil.
	Header *Header
}

// Op writes or deletes one object.
type Op struct {
	// Key is the object's key, "namespace/name" or "name".
	Key string
	// Value is the sealed record, or nil to delete the object. Deleting an
	// absent key is not an error.
	Value []byte
	// Depart, if not empty, is the UID of the object that Key holds before this
	// op: its record is kept as a departed record of (Key, Depart), with no
	// attempts, replacing an earlier one. Nothing is kept if Key is absent.
	Depart string
	// Index lists the changes of index entries. Adding an entry that exists or
	// removing one that does not is not an error.
	Index []IndexChange
}

// IndexOp changes the index entries of one key without touching its object.
type IndexOp struct {
	Key     string
	Changes []IndexChange
}

// IndexChange moves one key from some values of an index to others.
type IndexChange struct {
	Name        string
	Remove, Add []string
}

// DepartedOp changes or removes one departed record. One that does not exist is
// skipped.
type DepartedOp struct {
	Key, UID string
	// Remove deletes the record; otherwise Attempts and Age are set.
	Remove   bool
	Attempts int
	Age      time.Duration
}

// Departed is the last stored record of an object that was deleted or found
// gone, kept so that a restart can deliver the delete (again).
type Departed struct {
	Key, UID string
	// Since is when the record was made, in UTC, by the clock of that process.
	Since time.Time
	// Attempts counts deliveries that have begun and are not known to have
	// ended.
	Attempts int
	// Age is for how long processes have kept the record since its delivery, in
	// whole seconds.
	Age time.Duration
	// Value is the sealed record. It is valid as long as the Tx.
	Value []byte
}

// Header is what is known about a collection as a whole.
type Header struct {
	// RV is the resourceVersion that the stored objects reflect: everything up
	// to it has been applied. Empty if it is not known.
	RV string
	// Complete is false while a list is being written. An incomplete
	// collection is never resumed from; its objects still count as known.
	Complete bool
	// Fingerprint identifies codec, Go type and transform of the records. Records with another fingerprint must not be served.
	Fingerprint string
	// Cluster identifies the cluster that the objects come from, empty if it
	// is not known.
	Cluster string
	// Schema identifies the server's schema of the resource, empty if it is not
	// known.
	Schema string
	// Indices maps the name of each stored index to the fingerprint of its
	// index function. An index that is not listed, or without a fingerprint, must not
	// be read.
	Indices map[string]string
	// Contact is when the API server last confirmed RV, in UTC.
	Contact time.Time
	// Clean is set by a graceful stop, and cleared before a handler is told
	// anything again: everything that handlers were told is in the collection.
	Clean bool
	// NoBookmarks is set when the server was seen not to send bookmarks for
	// this resource, so that waiting for one is pointless.
	NoBookmarks bool
	// Replays is set when the server is known to keep the changes since the versions
	// that it gives out, so that a watch from one of them brings all.
	Replays bool
	// Newest is the newest object that the server is known to have had, as far as
	// it has not been deleted since; zero if none is known. Its RV may be ahead of
	// that of the header.
	Newest ObjectRef
}

// ObjectRef names one version of an object.
type ObjectRef struct {
	Key, UID, RV string
}

// Totals describe the objects of a collection.
type Totals struct {
	// Count is the number of objects, Bytes the size of their records.
	Count, Bytes int64
	// Sum is the wrapping sum of Sum over all records.
	Sum uint64
}

// Add adds the record of key to t.
func (t *Totals) Add(key string, value []byte) {
	t.Count++
	t.Bytes += int64(len(value))
	t.Sum += Sum(key, value)
}

// Remove takes the record of key out of t.
func (t *Totals) Remove(key string, value []byte) {
	t.Count--
	t.Bytes -= int64(len(value))
	t.Sum -= Sum(key, value)
}

// Info describes a collection in a file, as of its last commit.
type Info struct {
	Identity Identity
	Header   Header
	Totals   Totals
	// Departed is the number of departed records.
	Departed int64
	// InUse says whether the collection is open in this process, Owner for whom.
	InUse bool
	Owner string
}

// Durability says how far the disk is behind memory.
type Durability struct {
	// RV is the resourceVersion of the last commit: where a restart would
	// resume.
	RV string
	// Objects are the totals of the objects as of the last commit.
	Objects Totals
	// Pending is the size in bytes of what waits for a commit.
	Pending int64
	// Committed is when the last commit of this store ended; zero if none did.
	Committed time.Time
	// Err is why the last commit failed; nil when the disk is healthy.
	Err error
}
