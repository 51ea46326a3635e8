// Package versions is the tests of what becomes of a file when the program that uses it
// changes: its types, functions and options, the codec, a module that it is built from,
// forwards and back. It has no code of its own.
//
//	testdata/program ──go build──► one executable for each version of the source
//
//	version 1 ──► file ──► version 2 ──► version 1 ...       each against internal/apitest
//
// A test runs versions one after the other on one file. Each reports what reads showed
// while the server was out of reach, what handlers were told, and what is there once the
// state is confirmed. The server says what was asked of it, and the file what it holds.
//
// What holds, whatever has changed:
//
//   - What was made by other rules (type, codec, transform, selection) is never read, not
//     even before the server has been reached.
//   - Once confirmed, reads and indices are those of a program that began with no file.
//   - Deletes of what the last version had are delivered, unless it selected something
//     else.
//   - A list is made if records have to be made anew, and never otherwise.
package versions
