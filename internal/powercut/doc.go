// Package powercut is the test of what the bbolt engine leaves on a disk when the
// power fails. It has no code of its own, runs on Linux only, and needs strace.
//
//	child under strace ──► trace ──► operations ──► model of a disk
//	  workload: steps          writes, syncs, names      │ power cut: which of the
//	     │ marks: begin, end                             ▼ unsynced got there?
//	     │                                            state: files in a directory
//	     ▼                                               │ bolt.Open, read all, go on
//	  the same steps on a store in memory ──────────► compare
//
// TestPowerCut has a child work on a cache file under strace, turns the system
// calls into a list of operations on files and directories, and rebuilds what
// may be on the disk if the power fails after any of them. It opens each such
// state as the next process would.
//
// # What a power cut leaves
//
// Of the data of a file: what was synced, and of what was written since any part,
// in any order, torn at sectors of 512 bytes. Of names: what was synced with their
// directory, and of the changes since either those up to some point, as on a file
// system with a journal, or any that do not depend on one that is missing. What a
// sync failed to write is lost, unless it is written again. See disk and state.
//
// There are too many such states to open them all. Each recording is cut before
// and after its syncs and changes of names, in random order and one state at each,
// and then again and between them, as far as its share of the states goes. A small
// campaign visits some of these boundaries, one of 5000 states or more all of them;
// the log says how many. The states of each are spread over all kinds.
//
// # What must hold
//
//   - Open succeeds, and moves a file aside only if it is damaged: the engine's
//     own writes never look like damage.
//   - Each collection equals what it was after some step of the workload: no older
//     than what was promised to be durable before the cut, which the marks in the
//     trace tell, and no newer than what had been applied.
//   - The whole file verifies, also after more was written to it: no page counts
//     as free that is in use.
//   - A damaged file is where it was, or moved aside; the newest three are kept.
//   - Nothing is left behind that nobody will remove.
//
// A run logs the line that repeats its decisions, make powercut STATES=N SEED=N.
// Goroutines of the child may interleave in another way, so that -keep DIR, which
// keeps the trace and the states that fail, is what a failure is studied with.
//
// Where strace cannot run, TestPowerCut is skipped; with WARMCACHE_REQUIRE_FAULTS
// set to strace or all it fails instead.
//
// # What it does not show
//
// Upgrades of the format, of which there is none yet. Disks that lose what they
// have acknowledged, or damage what was not being written.
package powercut
