// Package process runs a subject in a process of its own, so that what is measured
// is the informer and not the server, nor what an earlier subject has left behind.
//
//	parent                                child
//	Start ── spec in the environment ───►  makes the informer
//	Sync ─────────── command ───────────►  starts it, waits until it has synced
//	     ◄────────── report ────────────
//	Mark, Await, Query ... likewise
//	Stop ─────── end of standard input ─►  ends gracefully
//
// Commands and reports are lines of JSON, one report for each command. A child whose
// parent dies ends, because its standard input does.
package process

import (
	"time"

	"github.com/warmcache/warmcache/bench/internal/subject"
	"github.com/warmcache/warmcache/bench/internal/usage"
)

// childEnv holds the order of a process that is to run a subject.
const childEnv = "WARMCACHE_BENCH_CHILD"

// order is what a child is told when it starts.
type order struct {
	subject.Spec
	// Started is when the parent started the process.
	Started time.Time `json:"started"`
	// Profile is where profiles of the heap go; empty for none.
	Profile string `json:"profile,omitempty"`
}

// The commands.
const (
	opSync  = "sync"
	opMark  = "mark"
	opAwait = "await"
	opQuery = "query"
)

// command tells a child what to do, and report about.
type command struct {
	Op string `json:"op"`
	// Phase names the profile.
	Phase string `json:"phase,omitempty"`
	// Updates are those to wait for since the last mark.
	Updates int `json:"updates,omitempty"`
	// Since is when what is waited for began.
	Since time.Time `json:"since,omitzero"`
	// Nodes are those to ask the index for.
	Nodes []string `json:"nodes,omitempty"`
}

// Report is what a phase has cost.
type Report struct {
	// Seconds it took.
	Seconds float64 `json:"seconds"`
	// CPUSeconds of the process, those of settling included: proving that the state
	// is current, and writing it.
	CPUSeconds float64 `json:"cpuSeconds"`
	// Peak has the highest sample of each, settling included.
	Peak usage.Memory `json:"peak"`
	// After is what the process has afterwards, without garbage.
	After usage.Memory `json:"after"`
	// Received are bytes on the wire; Lists counts those of the collection.
	Received int64 `json:"received"`
	Lists    int64 `json:"lists"`
	// Objects there are, or were found by a query.
	Objects int `json:"objects"`
	// Error says why there is nothing else in the report.
	Error string `json:"error,omitempty"`
}
