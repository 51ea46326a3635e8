package crashtest

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
)

// ledger is what the handlers of all processes so far have been told: a
// controller's view of the world, if it lost nothing with its process.
type ledger struct {
	t     testing.TB
	world *world
	specs map[string]spec

	mu struct {
		sync.Mutex
		knowledge map[string]*knowledge
		// givenUp counts deletes that were about to be given up.
		givenUp int
	}
}

// knowledge is the ledger of one collection.
type knowledge struct {
	// state is what a handler knows that keeps the last state by key.
	state map[string]version
	// told has every object that was told and was not told gone.
	told map[id]bool
	// saved are those of told that the file has known, unsaved those that it did
	// not when the last process ended.
	saved, unsaved map[id]bool
	// excused may have been forgotten; the package comment says when.
	excused map[id]bool
	// newest is the highest version of a key in this process: it is never told
	// an older one.
	newest map[string]uint64
}

func newLedger(t testing.TB, w *world) *ledger {
	l := &ledger{t: t, world: w, specs: map[string]spec{}}
	l.mu.knowledge = map[string]*knowledge{}
	for _, s := range specs {
		l.specs[s.name] = s
		l.mu.knowledge[s.name] = &knowledge{
			state: map[string]version{}, told: map[id]bool{}, saved: map[id]bool{}, unsaved: map[id]bool{}, excused: map[id]bool{},
		}
	}
	l.begin()
	return l
}

// begin notes that a process begins.
func (l *ledger) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.mu.knowledge {
		k.newest = map[string]uint64{}
	}
}

// added notes that OnAdd was called.
func (l *ledger) added(name string, initial bool, v version) {
	l.seen(name, v, func(k *knowledge) {
		if was, known := k.state[v.key]; !initial && known && k.newest[v.key] != 0 && was.uid != v.uid {
			l.t.Errorf("%s: told of a new %s while %s is not told gone", name, v, was)
		}
	})
}

// updated notes that OnUpdate was called.
func (l *ledger) updated(name, before string, v version) {
	l.seen(name, v, func(k *knowledge) {
		if k.newest[v.key] == 0 {
			l.t.Errorf("%s: told of a change of %s, which this process was not told of", name, v)
		}
		if before != v.uid {
			// One object took the place of another: handlers see that.
			k.forget(id{v.key, before})
		}
	})
}

// seen notes a state of an object.
func (l *ledger) seen(name string, v version, check func(*knowledge)) {
	if !l.world.was(l.specs[name], v) {
		l.t.Errorf("%s: told of %s, which never was", name, v)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.mu.knowledge[name]
	check(k)
	if v.rv < k.newest[v.key] {
		l.t.Errorf("%s: told of %s after version %d", name, v, k.newest[v.key])
	}
	k.newest[v.key] = v.rv
	k.state[v.key] = v
	k.told[v.id()] = true
}

// deleted notes that OnDelete has returned. Without a UID it speaks of whatever
// had the key.
func (l *ledger) deleted(name, key, uid string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.mu.knowledge[name]
	delete(k.state, key)
	delete(k.newest, key)
	for o := range k.told {
		if o.key == key && (o.uid == uid || uid == "") {
			k.forget(o)
		}
	}
}

// forget notes that handlers know that o is gone.
func (k *knowledge) forget(o id) {
	delete(k.told, o)
	delete(k.saved, o)
}

// note records, after the end of a process, which objects the file knows, dead or
// alive, and which of the deletes in it will not be tried again.
func (l *ledger) note(name string, inFile, givenUp map[id]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.mu.knowledge[name]
	k.unsaved = map[id]bool{}
	for o := range k.told {
		switch {
		case inFile[o]:
			k.saved[o] = true
		case k.saved[o] && !k.excused[o]:
			l.t.Errorf("%s: the file has lost %v, of which handlers believe that it exists", name, o)
		default:
			k.unsaved[o] = true
		}
		if givenUp[o] {
			k.excused[o] = true
			l.mu.givenUp++
		}
	}
}

// listed notes that an informer reads everything anew, after which what neither
// the file nor the server knows is forgotten.
func (l *ledger) listed(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.mu.knowledge[name]
	maps.Copy(k.excused, k.unsaved)
}

// version returns what handlers know of a key.
func (l *ledger) version(name, key string) version {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.knowledge[name].state[key]
}

// synced checks, when a handler has been given the initial state, that it holds
// everything the server had at rv, when the process was started.
func (l *ledger) synced(name string, rv uint64) {
	s := l.specs[name]
	then := l.world.at(s, rv)
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.mu.knowledge[name]
	known := maps.Clone(k.state)
	changed := l.world.changedSince(s, rv)
	for key, v := range then {
		if !changed[key] && known[key] != v {
			l.t.Errorf("%s: synced with %q, but the server had %q at the start", name, known[key], v)
		}
	}
	for key, v := range known {
		if _, exists := then[key]; !exists && !changed[key] && !k.excused[v.id()] && v.rv <= rv {
			l.t.Errorf("%s: synced and still believes in %q", name, v)
		}
	}
}

// compare checks what handlers know when they have been told everything. It
// returns how many objects were excused.
func (l *ledger) compare(s spec) (excused int) {
	want := l.world.now(s)
	alive := map[id]bool{}
	for _, v := range want {
		alive[v.id()] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.mu.knowledge[s.name]
	for _, o := range slices.Collect(maps.Keys(k.told)) {
		switch {
		case alive[o]:
		case k.excused[o]:
			excused++
			k.forget(o)
			if k.state[o.key].uid == o.uid {
				delete(k.state, o.key)
			}
		default:
			l.t.Errorf("%s: %v is gone, and handlers were never told", s.name, o)
		}
	}
	k.unsaved, k.excused = map[id]bool{}, map[id]bool{}
	for _, problem := range difference(want, k.state) {
		l.t.Errorf("%s: handlers %s", s.name, problem)
	}
	return excused
}

// difference says how got differs from want.
func difference(want, got map[string]version) (problems []string) {
	for key, v := range want {
		if got[key] != v {
			problems = append(problems, fmt.Sprintf("have %q, the server %q", got[key], v))
		}
	}
	for key, v := range got {
		if _, exists := want[key]; !exists {
			problems = append(problems, fmt.Sprintf("have %q, the server nothing", v))
		}
	}
	if len(problems) > 5 {
		problems = append(problems[:5], fmt.Sprintf("... %d differences in all", len(problems)))
	}
	return problems
}
