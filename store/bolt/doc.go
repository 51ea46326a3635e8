// Package bolt is the storage engine: one bbolt file for the collections of
// many informers.
//
//	Apply ──► pending ──► frozen ──► file
//	             │           │         │
//	View  ◄──────┴───────────┴─────────┘   newest first
//
// Every collection has two overlays in memory over its part of the file. Apply
// writes to pending, which makes a batch visible at once. One goroutine, the
// committer, moves pending to frozen, writes the frozen overlays of all
// collections in one bbolt transaction (group commit), and drops them once that
// has returned. A View captures both overlays and begins its bbolt transaction
// under one lock, so that it sees a batch in memory or in the file, never in
// neither.
//
// # Durability
//
// A commit starts when the oldest waiting change is FlushInterval old, when
// MaxDirty changes or MaxDirtyBytes wait, on Flush, and on Close. It is the only
// thing that waits for the disk: Apply blocks only when four times
// MaxDirtyBytes wait and the disk is healthy. When a commit fails, the overlays
// stay, reads go on from memory, Apply never blocks, and the committer tries
// again with backoff; Durability and one log line for each change of state say
// so. A commit that returned an error may have reached the disk all the same.
// Overlays are therefore idempotent, and totals are computed from what the
// transaction finds.
//
// After a failed commit the meta pages are written and synced again before the
// next transaction: see openFile.settle.
//
// # Damage
//
// Open verifies what bbolt relies on (meta pages, free list, every branch page)
// before bbolt sees the file, and moves a file that does not hold aside
// unharmed: see Open. After that every bbolt call runs under recover with
// SetPanicOnFault, because bbolt answers damage with panics.
//
// Damage that is found while the file is open, by such a panic, by a reader that
// says so with Collection.Quarantine, or because the path does not lead to the
// file any more, ends the file's generation. Its handle, whose locks may be held
// for ever, is not touched again; its collections are lost, and say so. At the
// next commit the file is moved aside and another created. The path stays locked
// meanwhile.
//
// # Files
//
//	<path>                                  the database; docs/format.md
//	<path>.owner                            lock file: who has it open, and how far its Open got
//	<path>.quarantined-<UTC time>-<reason>  files that were moved aside, the newest 3
//	<path>.backup-v<N>                      copy made before a format upgrade
//	<path>.new-<random>                     left behind by a crash while creating; removed by Open
package bolt
