// Package memory is an engine that keeps collections in memory only.
//
// It is the model that other engines are compared with in tests, and what the
// bbolt engine falls back to when it may run without its file. It is written
// for clarity: one immutable state per collection, replaced by each Apply.
// A View reads the state it finds and blocks nobody; a commit is immediate.
package memory
