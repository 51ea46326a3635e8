// Package storetest holds what tests of and with a store.Store need: a
// conformance suite that every engine passes (Run), a model engine in memory
// (NewMemory), and a comparison of an engine with that model under random
// batches (RunModel).
//
// It is an ordinary package so that engines outside this module can use it. It
// must not be imported by anything but tests.
package storetest
