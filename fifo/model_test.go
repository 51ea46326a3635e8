package fifo

import (
	"errors"
	"maps"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// model is an API server, and a reflector that reads it, with a queue and a
// consumer behind it that fail at random.
type model struct {
	*rapid.T
	queue *Queue
	known *known
	// state is what the server has, name to version; history what it had.
	state   map[string]string
	history map[string]map[string]string
	rv      int
	// connected is whether events reach the queue. It takes a list to be
	// connected again.
	connected bool
}

// TestQueue_Model runs random sequences of events, lists and failures. Whenever
// a batch has a version, the known objects must be exactly what the server had
// at that version. rapid prints how to replay a failure.
func TestQueue_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{T: t, known: newKnown(), state: map[string]string{}, history: map[string]map[string]string{}, connected: true}
		m.queue = New(Options{Known: m.known})
		m.queue.maxBatch = rapid.IntRange(1, 4).Draw(t, "maxBatch")
		m.change(func() {})
		t.Repeat(map[string]func(*rapid.T){
			"put":        func(*rapid.T) { m.put() },
			"delete":     func(*rapid.T) { m.delete() },
			"bookmark":   func(*rapid.T) { m.bookmark() },
			"mark":       func(*rapid.T) { m.queue.CaughtUp(true) },
			"resync":     func(*rapid.T) { m.queue.Resync() },
			"disconnect": func(*rapid.T) { m.connected = false },
			"list":       func(*rapid.T) { m.list() },
			"reset":      func(*rapid.T) { m.queue.Reset(); m.list() },
			"pop":        func(*rapid.T) { m.pop(nil) },
			"fail":       func(*rapid.T) { m.pop(errDisk) },
			"break":      func(*rapid.T) { m.breakReads() },
		})
		m.converge()
	})
}

func (m *model) name() string {
	return rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(m.T, "name")
}

// change moves the server to its next version.
func (m *model) change(fn func()) string {
	m.rv++
	fn()
	rv := strconv.Itoa(m.rv)
	m.history[rv] = maps.Clone(m.state)
	return rv
}

func (m *model) put() {
	name := m.name()
	_, exists := m.state[name]
	rv := m.change(func() { m.state[name] = strconv.Itoa(m.rv) })
	push := m.queue.Add
	if exists {
		push = m.queue.Update
	}
	// Events may be repeated.
	for range rapid.IntRange(1, 2).Draw(m.T, "times") {
		m.event(push, object(name, rv))
	}
}

func (m *model) delete() {
	name := m.name()
	if _, exists := m.state[name]; !exists {
		return
	}
	rv := m.change(func() { delete(m.state, name) })
	for range rapid.IntRange(1, 2).Draw(m.T, "times") {
		m.event(m.queue.Delete, object(name, rv))
	}
}

func (m *model) bookmark() {
	if rv := m.change(func() {}); m.connected {
		_ = m.queue.Bookmark(rv)
	}
}

func (m *model) event(push func(any) error, obj any) {
	if !m.connected {
		return
	}
	if err := push(obj); err != nil {
		m.Fatal(err)
	}
}

// list reads the state, as a stream that changes while it is read.
func (m *model) list() {
	r := m.queue.NewReplacement()
	keeps := rapid.Bool().Draw(m.T, "keeps")
	for name, rv := range m.state {
		if keeps && m.known.has(name, rv) {
			_ = r.Keep("ns/"+name, "", rv)
			continue
		}
		_ = r.Add(object(name, rv))
	}
	if name := m.name(); rapid.Bool().Draw(m.T, "changes while it is listed") {
		m.connected = false
		if m.put(); m.state[name] != "" {
			m.delete()
		}
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			if rv, exists := m.state[name]; exists {
				_ = r.Add(object(name, rv))
			} else {
				_ = r.Remove(object(name, "0"))
			}
		}
	}
	r.Commit(strconv.Itoa(m.rv))
	m.connected = true
}

// pop takes one batch if there is any, and applies it unless cause is set.
func (m *model) pop(cause error) {
	if m.queue.Len() == 0 && m.queue.expansion == nil {
		return
	}
	err := m.queue.PopBatch(func(b Batch) error {
		if len(b.Deltas) > m.queue.maxBatch {
			m.Fatalf("batch of %d deltas", len(b.Deltas))
		}
		// The consumer never fails a Reset.
		if cause != nil && !b.Reset {
			return cause
		}
		m.known.apply(b)
		if b.RV != "" {
			m.compare(b.RV)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errDisk) && !errors.Is(err, errNotKept) {
		m.Fatal(err)
	}
	m.known.getErr, m.known.unchangedErr = nil, nil
}

// has reports whether a version of an object is known now. It may be another one when
// a list that keeps it is applied.
func (k *known) has(name, rv string) bool {
	holds, err := k.Holds([]string{"ns/" + name}, nil, []string{rv})
	return holds && err == nil
}

// breakReads makes the next read of known objects fail, if there is one.
func (m *model) breakReads() {
	m.known.getErr, m.known.unchangedErr = errDisk, errDisk
}

func (m *model) compare(rv string) {
	got := map[string]string{}
	for key, obj := range m.known.objects {
		got[key] = version(obj)
	}
	want := map[string]string{}
	for name, rv := range m.history[rv] {
		want["ns/"+name] = rv
	}
	if !maps.Equal(got, want) {
		m.Fatalf("at version %s the objects are %v, the server had %v", rv, got, want)
	}
}

// converge lists if that is due and applies the rest.
func (m *model) converge() {
	m.known.getErr, m.known.unchangedErr = nil, nil
	for {
		select {
		case <-m.queue.Failed(): //nolint:errcheck // that it failed is all
			m.connected = false
		default:
		}
		if !m.connected {
			m.list()
		}
		m.bookmark()
		for m.queue.Len() > 0 || m.queue.expansion != nil {
			m.pop(nil)
		}
		if len(m.queue.Failed()) == 0 { // else a list has kept what was not there
			break
		}
	}
	m.compare(strconv.Itoa(m.rv))
}
