package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// measured is what a start of an informer cost.
type measured struct {
	// Seconds from the start of the process until the registration of the
	// handler had synced: it had returned from all of the initial state.
	Seconds float64 `json:"seconds"`
	// Lists of the whole collection, streamed ones included, and Probes: lists
	// of a single object.
	Lists  int64 `json:"lists"`
	Probes int64 `json:"probes"`
	// BytesReceived on the wire.
	BytesReceived int64 `json:"bytesReceived"`
	// PeakHeapBytes is the highest sample of the heap, garbage included.
	PeakHeapBytes int64 `json:"peakHeapBytes"`
	// Adds, Updates and Deletes are calls of the handler.
	Adds    int `json:"adds"`
	Updates int `json:"updates"`
	Deletes int `json:"deletes"`
}

// warmMeasured is what a start from an earlier process's file cost.
type warmMeasured struct {
	measured
	// Outcome is outcomeResumed, or says why the collection was listed.
	Outcome string `json:"outcome"`
	// DeletedWhileDown is how many objects of the earlier process's were
	// deleted before this start.
	DeletedWhileDown int `json:"deletedWhileDown"`
	// Missed is how many objects the handler or the cache did not have right.
	Missed int `json:"missed"`
}

const outcomeResumed = "resumed"

// report is the result of the demo, and its JSON form.
type report struct {
	// Server is "embedded" or the address of the cluster.
	Server string `json:"server"`
	// Objects is how many there were at the cold starts.
	Objects     int          `json:"objects"`
	ClientGo    measured     `json:"clientgo"`
	Cold        measured     `json:"cold"`
	Warm        warmMeasured `json:"warm"`
	WarmResumed warmMeasured `json:"warmResumed"`
}

// verdict is nil if the warm starts kept what warmcache promises.
func (r *report) verdict() error {
	return errors.Join(r.Warm.verdict("Confirmed"), r.WarmResumed.verdict("Resumed"))
}

// verdict names everything that is wrong: a list may explain what was missed.
func (w *warmMeasured) verdict(policy string) error {
	var missed, listed error
	if w.Missed > 0 {
		missed = fmt.Errorf("the warm start (%s) got %d objects wrong", policy, w.Missed)
	}
	if w.Lists > 0 {
		listed = fmt.Errorf("the warm start (%s) made %d LISTs (%s)", policy, w.Lists, w.Outcome)
	}
	return errors.Join(missed, listed)
}

// writeJSON writes one object in one line.
func (r *report) writeJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// writeTable writes what a person wants to compare: one row per start.
func (r *report) writeTable(w io.Writer) error {
	_, _ = fmt.Fprintf(w, "\nRestarting an informer of %d objects, server: %s\n\n", r.Objects, r.Server)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "%26s\tseconds\tLISTs\treceived\tpeak heap\tadds\tupdates\tdeletes\tdeleted while down\tmissed\t\n", "")
	r.ClientGo.writeRow(t, "client-go, cold", "-", "0")
	r.Cold.writeRow(t, "warmcache, cold", "-", "0")
	r.Warm.writeRow(t, "warmcache, warm, Confirmed")
	r.WarmResumed.writeRow(t, "warmcache, warm, Resumed")
	if err := t.Flush(); err != nil {
		return err
	}
	footnotes := legend
	if r.Warm.Seconds > r.ClientGo.Seconds {
		footnotes += footnoteFew
	}
	_, err := io.WriteString(w, footnotes)
	return err
}

const legend = `
seconds   from the start of the process until its handler had been told of every object
LISTs     of the whole collection, streamed or in pages; a warm start asks for one object
received  bytes on the wire
adds      at a warm start include deleted objects: handlers are told of them, then of the delete
`

// footnoteFew explains a warm start that is slower than a cold one.
const footnoteFew = `
A warm start with Confirmed waits about a second for the proof that nothing was missed,
whatever the number of objects: so few are listed sooner. Try more with -objects.
`

// writeRow writes the cells that all starts have, and then more.
func (m *measured) writeRow(w io.Writer, name string, more ...string) {
	_, _ = fmt.Fprintf(w, "%-26s\t%.2f\t%d\t%s\t%s\t%d\t%d\t%d\t", name, m.Seconds, m.Lists,
		megabytes(m.BytesReceived), megabytes(m.PeakHeapBytes), m.Adds, m.Updates, m.Deletes)
	for _, cell := range more {
		_, _ = fmt.Fprintf(w, "%s\t", cell)
	}
	_, _ = fmt.Fprintln(w)
}

func (w *warmMeasured) writeRow(out io.Writer, name string) {
	w.measured.writeRow(out, name, strconv.Itoa(w.DeletedWhileDown), strconv.Itoa(w.Missed))
}

// megabytes are decimal, as networks count.
func megabytes(bytes int64) string { return fmt.Sprintf("%.2f MB", float64(bytes)/1e6) }
