// Package damage is the tests of what the library promises about files that are
// damaged. It has no code of its own: its tests write files through the real
// indexer, codec and bbolt engine, damage them, and use them as an informer does.
//
//	parent                        child (a copy of the test binary)
//	  number of a case ──pipe───►   sample file, damaged ──► Open, Attach, Load,
//	  result          ◄──pipe────   change, Flush, Close, and again
//
// A child takes one case after the other. One that crashes is replaced, and the
// case is given to up to three more children, after which its file must have been
// moved aside; one that takes too long is killed, and the case has failed.
//
// What is wrong with a file depends on the number of the case and the seed, and
// on the sample file, which bbolt lays out differently each time. A run logs the
// line that repeats its decisions, make damage CASES=N SEED=N. An exact repeat needs
// the samples, which are kept when a case fails: go test ./internal/damage -run
// TestFile -seed N -samples DIR -case N.
//
// What holds, whatever is done to a file:
//
//   - Open returns no error, and no call panics or hangs.
//   - Every other error wraps store.ErrCorrupt.
//   - What Load has loaded without an error, and the header and the departed
//     records with it, are those of one commit.
//   - Index entries in the file are right, or the check of the file says no.
//   - A file that Open moves aside is not changed, and nobody locks it.
//   - The next processes find what the one before has left, or that it is damaged,
//     and after a few of them nothing is found any more.
package damage
