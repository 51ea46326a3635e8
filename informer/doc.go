// Package informer is a cache.SharedIndexInformer that survives its process.
//
// New takes what client-go's constructor takes, plus a store and an identity
// within it. A restarted informer loads its objects from the store, resumes its
// watch, proves that it has caught up, and only then tells its handlers: first
// about what departed while it was away (OnAdd, then OnDelete), then about what
// exists. To handlers a cold, a resumed and a relisted start look the same.
//
//	reflector ──events──► fifo ──batches──► pump ──► indexer ──► store
//	    ▲                                    │          ▲
//	    └────── failed: list again ──────────┤          └── readers
//	                                         ▼
//	                                     processor ──► one listener per handler
//
// Promises, beyond the contract of client-go:
//
//   - Order. Events of one object reach each handler in order. What a handler
//     has been told, reads of the indexer already show.
//   - HasSynced is true once the whole initial state has been queued for every
//     handler registered before, or in disk residency is there for it to take; under the Confirmed policy that state is proven
//     to be no older than the server was at the start. A registration's HasSynced
//     is true once its handler has returned from all of it.
//   - Deletes are delivered at least once to the handlers that are registered
//     when an informer starts or, if there are none yet, to those registered
//     later: across restarts and crashes, for as long as the departed record is
//     kept (Options.DepartedRetention). The one gap: an object that handlers were
//     told of in the last moments before a crash, before the store was committed,
//     and that is gone when the server has forgotten both.
//   - A list that finds an object exactly as it is stored tells and writes nothing.
//     client-go tells every handler that last resynced with the others, which in an
//     informer without resyncs is every handler.
//   - One line is logged at level 0 for each start, once the state is confirmed: whether
//     it was resumed, reconciled or cold (Outcome), and why. StatusOf says the same.
//   - One bad disk, index function or record does not stop the informer. (Disk residency
//     waits for a disk that fails longer than its budget lasts.)
//
// Objects passed to handlers are shared and must not be modified.
package informer
