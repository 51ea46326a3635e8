// Package indexer is a cache.Indexer whose content outlives the process.
//
//	Attach ── header ──► where a watch may resume, or why it may not
//	Load   ── records ─► objects and indices in memory, stored indices up to date
//	Apply  ── memory, then one batch for the collection
//	Known  ── what a new list is compared with
//
// In memory residency, the only one so far, all objects are decoded in memory,
// in client-go's own thread-safe store, and reads cost what they cost there. The
// collection behind it is written as changes are applied and read once, by Load.
//
// Promises:
//
//   - Read your writes: when Apply returns, every read sees the change, whether
//     or not it has reached the disk.
//   - One transaction: the records, index entries and resourceVersion of an
//     Update become durable together. The version in the file is never ahead of
//     the objects in it, whatever fails.
//   - Objects are encoded when they are applied. A caller that mutates an object
//     it got from the indexer, which is a bug, does not damage the file.
//   - A file that is found damaged, whoever finds it, is replaced while the process
//     runs: Restore writes what is in memory to the new one.
//   - Reads never fail for lack of a disk. When a record cannot be written the
//     indexer goes on in memory, and what the file then holds is either an older
//     consistent state or marked incomplete, so that the next start lists.
//   - Only what is whole is served. Load shows all objects or none: one record
//     with a wrong checksum, or a sum that does not add up, has the file moved
//     aside. Records that another program version, transform or selector
//     has written are known, so that a list can tell what has been deleted since,
//     and not served.
//   - Functions of users (index functions) cannot bring the process down: an
//     error or panic leaves the object unindexed under that index, logged and
//     counted. client-go's store panics instead. As there, the function must
//     depend on the object alone: what it says of an object that is replaced or
//     deleted decides which entries go.
//
// Objects returned are shared with all other readers and must not be modified,
// as with client-go's Indexer.
package indexer
