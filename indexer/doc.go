// Package indexer is a cache.Indexer whose content outlives the process.
//
//	Attach ── header ──► where a watch may resume, or why it may not
//	Load   ── memory residency: records ─► objects and indices in memory
//	          disk residency: outdated indices are written anew; else nothing
//	Apply  ── one batch for the collection; and memory, or the cache
//	Known  ── what a new list is compared with
//
// In memory residency, the default, all objects are decoded in memory, in client-go's
// own thread-safe store, and reads cost what they cost there. The collection behind it
// is written as changes are applied and read once, by Load.
//
// In disk residency the collection is where the objects are. Every read is one
// snapshot of it, changes that wait for a commit included. A cache of decoded objects,
// bounded in bytes, is in front. Memory depends on its budget, on what waits for the
// disk, and on what callers hold, not on the number of objects.
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
//   - Only what is whole is served: a record with a wrong checksum is never an object.
//     Records that another program version, transform or selector has written are
//     known, so that a list can tell what has been deleted since, and not served.
//   - Functions of users (index functions) cannot bring the process down: an
//     error or panic leaves the object unindexed under that index, logged and
//     counted. client-go's store panics instead. As there, the function must
//     depend on the object alone: what it says of an object that is replaced or
//     deleted decides which entries go.
//
// In memory residency also:
//
//   - Reads never fail for lack of a disk. When a record cannot be written the
//     indexer goes on in memory, and what the file then holds is either an older
//     consistent state or marked incomplete, so that the next start lists.
//   - Load shows all objects or none: one record with a wrong checksum, or a sum that
//     does not add up, has the file moved aside. A file that is found damaged later,
//     whoever finds it, is replaced while the process runs: Restore writes what is in
//     memory to the new one.
//
// In disk residency instead:
//
//   - What cannot be read is never taken for absent. From the moment that a read fails
//     until a list has filled the collection again, calls that return an error (Get,
//     GetByKey, Index, ByIndex, IndexKeys, Objects, Chunk) return one that wraps
//     ErrUnreadable, and calls that do not (List, ListKeys, ListIndexFuncValues)
//     wait. Only objects that happen to be in the cache are still served until the
//     damaged collection has been emptied. Once the indexer is detached nothing will be
//     filled any more: then those that wait return nothing, and log it. Code that the
//     informer itself calls (transforms, index functions, watch error handlers) must
//     therefore not call them.
//   - Damage that hides an object without a trace, in the tree of the file, is found by
//     the engine's scrub, and not before; see store/bolt.
//   - The index of an index function that has changed is written anew before it answers:
//     calls wait for it.
//   - A store that is closed under a running indexer takes everything with it.
//
// Objects returned are shared with all other readers, in either residency, and must
// not be modified, as with client-go's Indexer.
package indexer
