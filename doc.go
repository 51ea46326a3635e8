// Package warmcache is the root of a persistent informer cache for Kubernetes.
// It has no code; the packages below do.
//
// An informer of this module keeps its objects, their secondary indices and the
// resourceVersion that they reflect in one bbolt file. A restarted process loads
// the file, resumes its watch from there, proves that it has caught up with the
// API server, and then tells its handlers what there is and what has gone: no
// full LIST. When the version has expired, the new list is reconciled against
// the stored objects.
//
//	             API server
//	                 │ probe, list, watch
//	                 ▼
//	            reflector ── list/watch state machine: resume, catch up, relist
//	                 │ objects, versions, marks
//	                 ▼
//	               fifo ──── deltas in order; a list becomes the differences
//	                 │ batches                  ▲ known objects
//	                 ▼                          │
//	informer (pump) ───────────────────────► indexer ──── codec
//	     │                                      │ records, index entries, version
//	     ▼                                      ▼
//	one listener per handler                  store ◄── store/bolt (one file,
//	                                                     one writer, migrations)
//
// # Invariants
//
//  1. Atomic. Objects, index entries and the resourceVersion change in one
//     transaction. The persisted version is never ahead of the persisted
//     objects: it is the version of what has been applied, not of what has been
//     read.
//  2. Read your writes. Once a handler sees an event, Get, List and ByIndex see
//     it too, committed or not. An object that departed while the process was
//     away is the one exception: it is already gone.
//  3. Nothing missed. Across restarts and crashes, a handler that is registered
//     at each start ends up knowing, for every object, the state that the server
//     has. What was found gone is delivered as OnAdd with its last known state
//     and OnDelete, before what exists. Deleted records stay in the file for a
//     while, so that a crash loses no delete, not even one that only sat in a
//     workqueue. (One exception: an object that was not stored yet when the
//     process crashed, and is gone when the next start has to list.)
//  4. Never older. Under the default start policy HasSynced is true only when
//     the cache holds everything that the server had when the informer started.
//  5. Never wrong. An object is served only if its checksum holds and it was
//     written by a codec, Go type and transform that match today's. A read error
//     is an error or a relist, never an empty result.
//  6. Never a crash loop. A damaged, foreign, newer or half-written file is set
//     aside unharmed, and the start is a cold one.
//  7. Never blocked by disk. A full or failing disk leaves the informer working
//     from memory, retrying, and saying so; in disk residency as long as 9 allows.
//  8. Private. Files are 0600 in a 0700 directory. Secrets are not written in
//     plaintext unless that is asked for.
//  9. Bounded. What waits for a healthy disk is limited, and so are departed records.
//     In disk residency, memory depends on a budget and not on the number of objects,
//     also during list, relist and replay, and when more changes than that wait for a
//     disk that fails, the watch is not read any more. In memory residency, the
//     default, all objects are in memory, decoded, as with client-go, and the last
//     state of each changed object waits for as long as the disk fails.
//
// # Packages
//
//	factory       what makes informers persist, for every way to make them: start here
//	informer      cache.SharedIndexInformer
//	audit         compares a cache with the server, by metadata
//	reflector     list and watch
//	fifo          the delta queue
//	indexer       cache.Indexer over a collection
//	codec         objects to records and back
//	store         the contract between an informer and its engine
//	store/bolt    the bbolt engine
//	store/storetest  the conformance suite of engines and a model engine
//	migrations    versions of the file format
//	restmapper    a RESTMapper for controller-runtime that remembers discovery
//	metrics       Prometheus collector of a store and its informers
//
// docs/design.md explains why things are as they are, docs/format.md what is in
// the file, docs/operations.md what to watch in production.
package warmcache
