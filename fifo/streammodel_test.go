package fifo

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"testing"

	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"
)

// streamModel is an API server made of its history, a reflector that lists it as
// a stream, and a consumer that fails and loses its objects, all at random.
type streamModel struct {
	*rapid.T
	queue *Queue
	known *known
	// told is what handlers know. Unlike known it survives a loss.
	told *known

	// log is the history: event n has version n+1. states has the names and
	// versions behind each event, and at first the empty state.
	log    []change
	states []map[string]string

	// read is up to where the reflector has read, and exact from where it has to
	// list after a loss.
	read      int
	exact     int
	needsList bool
	list      *listing
	// applied is up to where the consumer has got.
	applied int
}

type change struct {
	kind cache.DeltaType
	name string
}

// listing is a list under way: what is left of the state at its beginning, and up
// to which event the stream has told what happened meanwhile.
type listing struct {
	Replacement
	left  []string
	from  map[string]string
	read  int
	exact bool
}

var modelNames = []string{"a", "b", "c", "d", "e", "f", "g"}

// TestQueue_StreamModel runs random sequences of events, lists that are read while
// they are applied, and failures. Whenever a batch has a version, the known objects
// must be exactly what the server had then; and in the end handlers must know
// exactly what exists. rapid prints how to replay a failure.
func TestQueue_StreamModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &streamModel{T: t, known: newKnown(), told: newKnown(), states: []map[string]string{{}}, needsList: true}
		m.queue = New(Options{Known: m.known, Stream: true})
		m.queue.maxBatch = rapid.IntRange(1, 4).Draw(t, "maxBatch")
		step := func(do func()) func(*rapid.T) { return func(*rapid.T) { do() } }
		t.Repeat(map[string]func(*rapid.T){
			"put":       step(m.put),
			"delete":    step(m.delete),
			"watch":     step(m.watch),
			"bookmark":  step(m.bookmark),
			"mark":      step(func() { m.queue.CaughtUp(false) }),
			"resync":    step(m.queue.Resync),
			"list":      step(m.begin),
			"read list": step(func() { m.advance(rapid.IntRange(1, 5).Draw(t, "objects")) }),
			"end list":  step(func() { m.advance(100) }),
			"abort":     step(m.abort),
			"reset":     step(m.reset),
			"pop":       step(func() { m.pop(nil) }),
			"fail":      step(func() { m.pop(errDisk) }),
			"break":     step(func() { m.known.getErr, m.known.unchangedErr = errDisk, errDisk; m.pop(nil) }),
			"lose":      step(m.lose),
		})
		m.converge()
	})
}

func (m *streamModel) happens(kind cache.DeltaType, name string) {
	state := maps.Clone(m.states[len(m.log)])
	m.log = append(m.log, change{kind, name})
	state[name] = strconv.Itoa(len(m.log))
	if kind == cache.Deleted {
		delete(state, name)
	}
	m.states = append(m.states, state)
}

func (m *streamModel) put() {
	name, kind := rapid.SampledFrom(modelNames).Draw(m.T, "name"), cache.Added
	if _, exists := m.states[len(m.log)][name]; exists {
		kind = cache.Updated
	}
	m.happens(kind, name)
}

func (m *streamModel) delete() {
	name := rapid.SampledFrom(modelNames).Draw(m.T, "name")
	if _, exists := m.states[len(m.log)][name]; exists {
		m.happens(cache.Deleted, name)
	}
}

// watching takes what the consumer reports, as a reflector does between events,
// and reports whether the watch goes on.
func (m *streamModel) watching() bool {
	if m.list != nil {
		return false
	}
	select {
	case err := <-m.queue.Failed():
		m.failed(err)
	default:
	}
	return !m.needsList
}

func (m *streamModel) failed(err error) {
	m.needsList = true
	var lost *LostError
	if errors.As(err, &lost) {
		m.exact, _ = strconv.Atoi(lost.RV)
	}
}

func (m *streamModel) watch() {
	if !m.watching() || m.read == len(m.log) {
		return
	}
	e := m.log[m.read]
	m.read++
	push := map[cache.DeltaType]func(any) error{cache.Added: m.queue.Add, cache.Updated: m.queue.Update, cache.Deleted: m.queue.Delete}[e.kind]
	if err := push(object(e.name, strconv.Itoa(m.read))); err != nil {
		m.Fatal(err)
	}
}

func (m *streamModel) bookmark() {
	if m.watching() && m.read > 0 {
		_ = m.queue.Bookmark(strconv.Itoa(m.read))
	}
}

func (m *streamModel) begin() {
	if m.list != nil {
		return
	}
	m.watching()
	m.needsList = true
	at := len(m.log)
	if m.exact > 0 {
		at = m.exact
	}
	left := slices.Sorted(maps.Keys(m.states[at]))
	if len(left) > 1 && rapid.Bool().Draw(m.T, "unordered") {
		left = rapid.Permutation(left).Draw(m.T, "order")
	}
	m.list = &listing{m.queue.NewReplacement(), left, m.states[at], at, m.exact > 0}
}

// advance reads up to n objects or events of the list, and ends it if there is
// nothing more to read. Events may come between the objects.
func (m *streamModel) advance(n int) {
	for ; m.list != nil && n > 0; n-- {
		l := m.list
		happened := l.read < len(m.log) && !l.exact
		var err error
		switch {
		case happened && (len(l.left) == 0 || rapid.Bool().Draw(m.T, "event")):
			e := m.log[l.read]
			l.read++
			l.left = slices.DeleteFunc(l.left, func(name string) bool { return name == e.name })
			do := l.Add
			if e.kind == cache.Deleted {
				do = l.Remove
			}
			err = do(object(e.name, strconv.Itoa(l.read)))
		case len(l.left) > 0:
			name := takeUpTo(&l.left, 1)[0]
			if rv := l.from[name]; m.known.has(name, rv) && rapid.Bool().Draw(m.T, "keep") {
				err = l.Keep("ns/"+name, "", rv)
			} else {
				err = l.Add(object(name, rv))
			}
		default:
			l.Commit(strconv.Itoa(l.read))
			m.read, m.exact, m.needsList, m.list = l.read, 0, false, nil
			return
		}
		if errors.Is(err, ErrAbandoned) {
			m.abort()
		} else if err != nil {
			m.Fatal(err)
		}
	}
}

func (m *streamModel) abort() {
	if m.list != nil {
		m.list.Abort()
		m.list = nil
	}
}

// reset makes the reflector find out that the store is of another cluster.
func (m *streamModel) reset() {
	if m.list == nil {
		m.queue.Reset()
		m.needsList, m.exact = true, 0
	}
}

// pop takes one batch if there is any, and applies it unless cause is set.
func (m *streamModel) pop(cause error) {
	defer func() { m.known.getErr, m.known.unchangedErr = nil, nil }()
	if m.queue.Len() == 0 && m.queue.expansion == nil {
		return
	}
	if !slices.ContainsFunc(m.queue.mu.items, isNoPart) {
		m.queue.Resync() // parts in which nothing differs yield no batch
	}
	err := m.queue.PopBatch(func(b Batch) error {
		switch {
		case len(b.Deltas) > m.queue.maxBatch:
			m.Fatalf("batch of %d deltas", len(b.Deltas))
		case b.List == ListPartial && (b.RV != "" || len(b.Deltas) == 0):
			m.Fatalf("part of a list: %s", describe(b))
		case cause != nil && !b.Reset:
			return cause
		}
		m.apply(b)
		return nil
	})
	if err != nil && !errors.Is(err, errDisk) && !errors.Is(err, errNotKept) {
		m.Fatal(err)
	}
}

// isNoPart reports whether an item yields a batch in any case.
func isNoPart(it item) bool {
	p, ok := it.expansion.(*part)
	return !ok || p.last
}

func (m *streamModel) apply(b Batch) {
	m.known.apply(b)
	m.told.apply(b)
	if b.Reset {
		m.applied = 0
	}
	if b.RV != "" {
		m.applied, _ = strconv.Atoi(b.RV)
		m.compare(m.known, m.applied)
	}
}

// lose empties the store of the consumer.
func (m *streamModel) lose() {
	if m.applied == 0 {
		return
	}
	clear(m.known.objects)
	m.queue.Fail(&LostError{RV: strconv.Itoa(m.applied), Err: errDisk})
}

func (m *streamModel) compare(k *known, at int) {
	want := map[string]string{}
	for name, rv := range m.states[at] {
		want["ns/"+name] = rv
	}
	if got := versions(k); !maps.Equal(got, want) {
		m.Fatalf("at version %d the objects are %v, the server had %v", at, got, want)
	}
}

// converge lists until the consumer is content, and reads and applies the rest.
func (m *streamModel) converge() {
	for done := false; !done; done = m.watching() {
		for m.list != nil || !m.watching() {
			m.begin()
			m.advance(100)
		}
		for m.read < len(m.log) {
			m.watch()
		}
		m.bookmark()
		for m.queue.Len() > 0 || m.queue.expansion != nil {
			m.pop(nil)
		}
	}
	m.compare(m.known, m.read)
	m.compare(m.told, m.read)
}
