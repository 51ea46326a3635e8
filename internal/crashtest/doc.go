// Package crashtest is the tests of what the library promises about processes
// that end in the wrong way and files that are not what they should be. It has
// no code of its own: its tests join the typed factory, the bbolt engine and an
// API server in the test process, as a user's program does.
//
// # The randomised crash test
//
// TestKill runs informers in a child process, whose handlers tell the parent
// what they are told, and kills it at random instants while the API server
// changes and misbehaves:
//
//	parent                                   child (SIGKILL, again and again)
//	  world ── API server ─────HTTP─────────► informers ──► cache file
//	    │ history of all writes                   │ handlers
//	    ▼                                         ▼
//	  compare ◄── ledger: what handlers know ◄── pipe
//	    ▲
//	    └── copy of the file after each kill
//
// A life of the child ends early, while it starts, or after it was compared with
// the server. A run logs the line that repeats its decisions, make kill KILLS=N
// SEED=N; the timing of processes cannot be repeated.
//
// What it holds against what:
//
//   - The file, after each kill: verified whole; the objects of each collection
//     equal the server's state at exactly the stored resourceVersion, if the
//     collection is marked complete; index entries equal recomputed ones.
//   - The indexers, once synced: equal to the server, indices included.
//   - The handlers, over all processes: what they know equals the server. Every
//     object that was ever told and is gone was told deleted, and a delete counts
//     only once the handler has returned. Nothing is told that never was.
//   - HasSynced under the Confirmed policy: nothing older than the server was
//     when the process was started.
//
// TestKill_DiskResidency is the same with informers whose objects are in the file only.
// Its children are also killed while they write an index anew, and their indexers
// have to give one answer in every way to read them.
//
// Two gaps are part of the design and excused, exactly where they apply: an
// object that handlers were told about but that no commit has reached can be
// forgotten if the server has forgotten it too (a list instead of a resume), and
// a delete whose delivery was interrupted three times is given up.
//
// # Disks that fail
//
// TestDiskFault uses the same child, and makes the disk fail instead of the
// server: strace attaches to the child and lets system calls on the cache file
// fail, until it is taken away, which heals the disk. The log of strace says which
// stage of a commit was hit: the growth of the file, its data, their sync, the
// meta page, or its sync, after which a commit that failed is visible. Faults last
// or hit once, during the first list, during changes, while the process stops,
// and while a damaged file is moved aside. In each case:
//
//   - The indexers and handlers go on, equal to the server.
//   - The status of every informer has the error, and what waits, while no commit
//     succeeds.
//   - The disk heals, and all of it gets into the file; or the process stops, and
//     Close says what is lost; or it is killed, and the file is at the version
//     that the status said.
//   - The file is checked as above, and the next process resumes from it without
//     a list, so that nothing is excused.
//
// TestDiskOpen is about Open on such a disk, TestDiskFull about how much a full one
// costs: memory, which is bounded by what exists and not by what happens, and
// attempts, which are few.
//
// These tests take strace, or small file systems in memory, which only root can
// mount, and are skipped where that is impossible. WARMCACHE_REQUIRE_FAULTS makes
// them fail instead: set to strace, those that take strace, as those of package
// powercut; set to all, the others too.
package crashtest
