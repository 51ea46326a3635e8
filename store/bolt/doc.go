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
// What bbolt relies on is verified before bbolt sees the file, and a file that does not
// hold is moved aside unharmed. Open verifies what does not grow with the objects: meta
// pages, free list, the directory of buckets, the headers of collections. The committer
// then verifies every branch page, and kind, length and first key of every leaf (0.4 s
// for 200,000 objects of 4 KB in the page cache), has bbolt open the file, and only then
// begins to commit. Until that, Views read the file page by page, and verify each page
// before they believe it: a Get takes 20 µs instead of 4. Pages that a commit is about to
// change are looked at again. What bbolt does not survive never reaches it. What it
// answers with a panic is caught: every call of it runs under recover with
// SetPanicOnFault.
//
// In the background the scrub reads everything again and again, ScrubRate bytes
// per second, and verifies every checksum, and the count and sum of the objects,
// departed records and entries of each index. Check does all of that at once, and
// more, for a file or a DB, and reports everything it finds.
//
// Damage that is found while the file is open, by the above, by a reader that
// says so with Collection.Quarantine, or because the path does not lead to the
// file any more, ends the file's generation. Its handle, whose locks may be held
// for ever, is not touched again; its collections are lost, and say so. At the
// next commit the file is moved aside and another created. The path stays locked
// meanwhile. One thing ends the process all the same: a page that is damaged after it
// was verified, and just so that bbolt goes in a circle. The next process finds it.
//
// A disk that cannot be read is not damage. Open returns an error, or the committer
// tries again to verify the file; it is moved aside only after three processes in a row
// that could not do it.
//
// # Locks
//
// Two locks, both flock: of the lock file, which makes a process the owner of the
// path whatever happens to the file at it, and of the database, which readers
// share and which holds when somebody removes the lock file. They end with their
// process, however it ends. On network file systems neither may exclude another
// host, and a mapped page may not show what was written; Open warns about the
// ones it knows (Linux only).
//
// # Settings
//
// What bbolt is told, and why; the numbers were measured with bbolt 1.5.
//
//   - Page size 4096 on every machine, so that a file can be moved to another one.
//   - The list of free pages is written with each commit (8 bytes per free page)
//     and kept as a hash map. Not written, it is rebuilt by reading the file at
//     the next open: 17 to 20 s for 1.2 GB instead of 4 ms.
//   - 64 GiB of address space are reserved for the mapping, or what there is. A
//     file that outgrows its mapping is mapped anew, for which bbolt waits for
//     every reader and lets no new one begin: with the default, one reader of 3 s
//     froze a growing commit, and with it all readers, for 2.9 s.
//   - FillPercent 0.9. Keys mostly arrive in order, and the default of 0.5 leaves
//     pages half empty: a file of 1.6 times the data.
//   - fsync stays on, twice per commit. What makes that cheap is that many changes
//     share a commit: one per commit writes 7 times its bytes, 1000 write 3 times
//     theirs.
//   - No statistics: every transaction would take a lock for them.
//   - A timeout for bbolt's own lock. Without one it waits for ever.
//   - A file is created under another name, synced, and renamed. A power cut while
//     bbolt creates one in place leaves one that cannot be opened (20 of 40 states).
//
// # Growth
//
// bbolt never writes to a page that a snapshot may need: a commit writes changed
// pages elsewhere, and the old ones are free once it has ended and every View
// that began before it too. With pages of 4096 bytes, let
//
//	W  be the most pages that ever held something at one time
//	D  the most that a commit writes: for each entry that it changes, the path
//	   to it (4 pages in a bucket of 100,000 objects), the root, and the header
//	L  the most commits that happen during one View
//	U  the pages in use, free ones included
//
// Then a commit writes at most D pages, the list of free ones (U/512 pages), and a
// meta page. U is at most W + 2D without long Views. While one is open, a page
// that is freed is not used again, the old list of free pages included: each
// commit adds D + U/512, which grows U by a factor of e every 512 commits. The
// bound is
//
//	U  <=  (W + 2D) q + 512 D (q - 1)    where q = (1 + 1/512)^L
//
// and the file is at most 16 MiB larger than that, by which bbolt lets it grow at
// a time. Views that overlap are no worse than the longest of them, and one that
// stops half way is one that ended. Afterwards the pages are used again and the
// file grows no more, but it does not shrink either, and each commit goes on
// writing the longer list: in the test, one View during 300 commits made 3 MB
// into 39 MB, and 141 KB per commit into 215 KB. Only writing the file anew would
// help, which does not exist yet; so a View must be short. (There are no snapshots
// yet, and no iterators that outlive a View.)
//
// # Files
//
//	<path>                                  the database; docs/format.md
//	<path>.owner                            lock file: who has it open, and how far its Open got
//	<path>.quarantined-<UTC time>-<reason>  files that were moved aside, the newest 3
//	<path>.backup-v<N>                      copy made before a format upgrade
//	<path>.new-<random>                     left behind by a crash while creating; removed by Open
package bolt
