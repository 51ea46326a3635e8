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
// Cuts are made before and after every sync and every change of a name, and at
// random places between. The states of a small campaign are spread over all kinds.
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
// go test -run TestPowerCut -seed N repeats the decisions of a run. Goroutines of
// the child may interleave in another way, so that -keep DIR, which keeps the trace
// and the states that fail, is what a failure is studied with.
//
// # What it does not show
//
// Upgrades of the format, of which there is none yet. Disks that lose what they
// have acknowledged, or damage what was not being written.
package powercut
