package damage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/warmcache/warmcache/indexer"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
)

// maxLives is how many processes, one after the other, may find something wrong
// with a file. The first may write to a file whose damage only the second one
// meets, and so on, but it has to come to an end.
const maxLives = 5

// user opens a file and uses it as informers do, for several lives of their
// process, until nothing is wrong with it any more.
type user struct {
	*sample
	path string
	// evidence is the damaged file; nil once it may have been written to.
	evidence []byte
	// may are the contents that a collection can have, by the name of the spec.
	may map[string][]contents
	// byVersion says that of headers only the resourceVersion is compared, and
	// departed records are not, because damage kept the process from reading them.
	byVersion bool
	// older says that pages of an earlier commit were put into an open file.
	older bool
	// anything says that contents are not compared at all, because damage and
	// commits came at once.
	anything bool
	// lost says that damage was seen in this life.
	lost bool
	// condemned says that the next Open has to move the file aside.
	condemned bool

	result
}

// result is what a child tells about a case.
type result struct {
	// What describes the case.
	What string
	// Problems are what should not be so.
	Problems []string
	// Quarantined says whether the first life moved the file aside, Noticed
	// whether any life saw damage.
	Quarantined, Noticed bool
	// Late says that a life after the first met damage, Lives how many it took.
	Late  bool
	Lives int
	// Restored says that a process lost the file while it had it open, and wrote
	// everything to the one that took its place.
	Restored bool
	// Peak is how much memory the child had at most, in KiB.
	Peak int64
	// Gaps are what is wrong and known; see knownGap.
	Gaps []string
}

func newUser(s *sample, path string) *user {
	u := &user{sample: s, path: path, may: map[string][]contents{}}
	for _, state := range s.States {
		for _, sp := range specs {
			u.may[sp.name] = append(u.may[sp.name], state[sp.name])
		}
	}
	return u
}

func (u *user) problem(format string, args ...any) {
	u.Problems = append(u.Problems, fmt.Sprintf("life %d: ", u.Lives)+fmt.Sprintf(format, args...))
}

// corrupt checks that an error, which may be nil, says that the file is damaged.
func (u *user) corrupt(what string, err error) (noticed bool) {
	if err == nil {
		return false
	}
	if !errors.Is(err, store.ErrCorrupt) {
		u.problem("%s: %v, want ErrCorrupt", what, err)
	}
	return true
}

// use uses the file until a life finds nothing wrong.
func (u *user) use() {
	for u.Lives = 1; u.Lives <= maxLives && len(u.Problems) == 0; u.Lives++ {
		if !u.live() {
			return
		}
		u.Noticed = true
		u.Late = u.Late || u.Lives > 1
	}
	if len(u.Problems) == 0 {
		u.problem("damage is still found")
	}
}

// live is one process with the file. It says whether it has seen damage.
func (u *user) live() (noticed bool) {
	//hygiene:allow bolt.Open: a child has no test, and the file is damaged
	db, err := bolt.Open(u.path, options())
	if err != nil {
		u.problem("Open: %v", err)
		return false
	}
	moved := u.checkOpen(db)
	u.lost = false
	before := db.Status().Quarantines
	var lives []*member
	for _, s := range u.used() {
		m := &member{user: u, spec: s, db: db}
		m.open()
		lives = append(lives, m)
	}
	for _, m := range lives {
		m.write()
	}
	flush(lives)
	u.evidence = nil
	for _, m := range lives {
		m.detach()
		noticed = noticed || m.noticed
	}
	failed := u.corrupt("Close", db.Close())
	for _, m := range lives {
		failed = failed || m.failed
	}
	replaced := db.Status().Quarantines > before
	u.condemned = failed && !replaced
	for _, m := range lives {
		u.expect(m, failed, replaced)
	}
	return noticed || failed || moved || replaced
}

// expect says what the next life may find of a collection. After an error that
// is what this life has left or what it has found; in a file that was begun anew,
// also nothing, or everything but the departed records, which memory does not have.
func (u *user) expect(m *member, failed, replaced bool) {
	switch {
	case replaced:
		u.may[m.name] = []contents{{}}
		for _, left := range m.after {
			left.Departed = nil
			u.may[m.name] = append(u.may[m.name], left)
		}
	case !failed:
		u.may[m.name] = nil
	}
	u.may[m.name] = append(u.may[m.name], m.after...)
}

// checkOpen checks what Open did with the file.
func (u *user) checkOpen(db *bolt.DB) (moved bool) {
	moved = db.Quarantined() != ""
	if u.condemned && !moved {
		u.problem("the file was found damaged while open, and was not moved aside by the next Open")
	}
	if !moved {
		return false
	}
	u.Quarantined = u.Quarantined || u.Lives == 1
	for _, s := range u.used() {
		u.may[s.name] = []contents{{}}
	}
	u.checkQuarantined(db.Quarantined())
	return true
}

// checkQuarantined checks that the file was moved unharmed, that nobody holds
// it, and that there are not too many.
func (u *user) checkQuarantined(path string) {
	kept, err := os.ReadFile(path)
	if err != nil || u.evidence != nil && !bytes.Equal(kept, u.evidence) {
		u.problem("the quarantined file was changed: %v", err)
	}
	file, err := os.Open(path)
	if err != nil {
		u.problem("open the quarantined file: %v", err)
		return
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		u.problem("the quarantined file is still locked: %v", err)
	}
	if all, err := filepath.Glob(u.path + ".quarantined-*"); err != nil || len(all) > 3 {
		u.problem("%d quarantined files: %v", len(all), err)
	}
}

// member is one informer in one life.
type member struct {
	*user
	*spec
	db *bolt.DB
	opened
	// noticed says that damage was seen, failed that the file cannot be used any
	// more.
	noticed, failed bool
	// after are the contents that this life may leave.
	after []contents
}

// open opens the collection and loads it, as an informer does, and checks what
// it finds.
func (m *member) open() {
	c, err := m.db.Collection(m.id, "test")
	if m.corrupt("Collection", err) {
		m.noticed, m.failed = true, true
		return
	}
	m.opened = opened{newIndexer(), c}
	var found contents
	index, err := m.read(&found)
	raw := m.corrupt("View", err)
	if raw {
		c.Quarantine(err) // as readers have to
	}
	_, err = m.Attach(c, m.codec, m.codec.Fingerprint())
	attach := m.corrupt("Attach", err)
	load := m.corrupt("Load", m.Load(context.Background()))
	m.noticed = raw || attach || load
	m.lost = m.lost || m.noticed
	if attach || load {
		if m.Len() > 0 {
			m.problem("%s: there are %d objects after an error", m.name, m.Len())
		}
		return
	}
	if found.Objects, err = m.objectsOf(m.Indexer); err != nil {
		m.problem("%s: encode: %v", m.name, err)
	}
	if !raw {
		m.compare(found)
		m.checkIndex(found.Header, index)
	}
}

// read reads what is not an object, and the index entries as "value key".
func (m *member) read(found *contents) (index map[string]bool, err error) {
	index = map[string]bool{}
	err = m.collection.View(func(tx store.Tx) (err error) {
		if found.Header, err = tx.Header(); err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if found.Departed, err = departedOf(tx); err != nil {
			return err
		}
		var values []string
		if err := tx.IndexValues(indexName, "", func(value []byte) bool {
			values = append(values, string(value))
			return true
		}); err != nil {
			return err
		}
		for _, value := range values {
			if err := tx.IndexKeys(indexName, value, "", func(key []byte) bool {
				index[value+" "+string(key)] = true
				return true
			}); err != nil {
				return err
			}
		}
		return nil
	})
	return index, err
}

// compare checks that the contents are allowed.
func (m *member) compare(found contents) {
	for _, may := range m.may[m.name] {
		if same(may, found) || m.byVersion && may.Header.RV == found.Header.RV && maps.Equal(may.Objects, found.Objects) {
			return
		}
	}
	if m.lost && same(contents{}, found) {
		return // another member has met damage, which costs everybody the file
	}
	if m.anything {
		return
	}
	if gap := m.knownGap(); gap != "" {
		m.Gaps = append(m.Gaps, gap)
		m.noticed = true
		return
	}
	m.problem("%s: the contents are those of no commit: %s", m.name, closest(m.may[m.name], found))
}

func same(a, b contents) bool {
	return sameHeader(a.Header, b.Header) && maps.Equal(a.Objects, b.Objects) && maps.Equal(a.Departed, b.Departed)
}

func sameHeader(a, b store.Header) bool { return reflect.DeepEqual(a, b) }

// closest says how the contents differ from the newest that are allowed.
func closest(may []contents, found contents) string {
	want := may[len(may)-1]
	return fmt.Sprintf("header %+v, want %+v; objects: %s; departed: %s", found.Header, want.Header,
		difference(want.Objects, found.Objects), difference(want.Departed, found.Departed))
}

func difference(want, got map[string]uint64) string {
	missing, added, changed := 0, 0, 0
	for key, hash := range want {
		switch other, ok := got[key]; {
		case !ok:
			missing++
		case other != hash:
			changed++
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			added++
		}
	}
	return fmt.Sprintf("%d of %d, %d missing, %d unknown, %d changed", len(got), len(want), missing, added, changed)
}

// checkIndex checks that the entries which were read from the file are those of
// the objects, if the header vouches for them, or that a check of the file finds
// that they are not.
func (m *member) checkIndex(header store.Header, got map[string]bool) {
	if header.Indices[indexName] == "" {
		return
	}
	want := map[string]bool{}
	for _, value := range m.ListIndexFuncValues(indexName) {
		keys, err := m.IndexKeys(indexName, value)
		if err != nil {
			m.problem("%s: IndexKeys: %v", m.name, err)
		}
		for _, key := range keys {
			want[value+" "+key] = true
		}
	}
	if maps.Equal(want, got) {
		return
	}
	if m.evidence == nil {
		return // what was found was seen before, or is for the next life
	}
	path := m.path + ".check"
	if err := os.WriteFile(path, m.evidence, 0o600); err != nil {
		m.problem("%v", err)
		return
	}
	report, err := bolt.Check(context.Background(), path, bolt.CheckOptions{})
	if report.Problems == 0 {
		m.problem("%s: index entries are wrong, and a check finds nothing: %v", m.name, err)
	}
	_ = os.Remove(path) // removed with its directory otherwise
}

// write does what informers do: list if there is nothing to resume from, change
// something, and flush.
func (m *member) write() {
	if m.collection == nil {
		return
	}
	m.restore()
	for _, u := range []indexer.Update{m.list(), m.change()} {
		if _, err := m.Apply(u); err != nil {
			m.problem("%s: Apply: %v", m.name, err)
		}
	}
}

// flush makes everything durable, as informers do: damage that a commit meets
// costs the file, and everything is written again.
func flush(members []*member) {
	again := true
	for try := 0; again && try < 4; try++ {
		again = false
		for _, m := range members {
			if m.collection != nil {
				again = m.restore() || again
				m.failed = m.corrupt("Flush", m.Flush(context.Background()))
				again = m.failed || !m.remember() || again
				m.noticed = m.noticed || again
			}
		}
	}
}

// restore writes everything anew, as informers do, if the file was lost, and says
// whether it was.
func (m *member) restore() (lost bool) {
	select {
	case <-m.Lost():
		m.Restore()
		m.Restored = true
		return true
	default:
		return false
	}
}

// list replaces everything by some objects, if the collection is not complete.
func (m *member) list() (u indexer.Update) {
	if m.Len() > 3 && m.LastStoreSyncResourceVersion() != "" {
		return u
	}
	u = indexer.Update{RV: "1000", Complete: true, Cluster: "cluster-1"}
	for i := range 10 {
		name := fmt.Sprintf("listed-%d", i)
		u.Changes = append(u.Changes, indexer.Change{Key: "ns/" + name, Object: m.make(name, i, "listed")})
	}
	for _, key := range m.Known().ListKeys() {
		u.Changes = append(u.Changes, indexer.Change{Key: key, Depart: true})
	}
	return u
}

// change changes an object, deletes one, and adds one.
func (m *member) change() indexer.Update {
	keys := slices.Sorted(slices.Values(m.ListKeys()))
	u := indexer.Update{RV: fmt.Sprint(2000 + m.Lives)}
	if len(keys) > 2 {
		u.Changes = append(u.Changes, indexer.Change{Key: keys[len(keys)/2], Depart: true})
		key := keys[len(keys)/3]
		name := strings.TrimPrefix(key, "ns/")
		u.Changes = append(u.Changes, indexer.Change{Key: key, Object: m.make(name, 3000+m.Lives, "changed")})
	}
	name := fmt.Sprintf("new-%d", m.Lives)
	u.Changes = append(u.Changes, indexer.Change{Key: "ns/" + name, Object: m.make(name, 4000, "new")})
	return u
}

// remember notes what the file should hold after this life: with a clean stop,
// or as it was before that. It says whether that could be read.
func (m *member) remember() bool {
	now, err := m.current(m.spec)
	if m.corrupt("View", err) {
		m.collection.Quarantine(err) // as readers have to
		return false
	}
	stopped := now
	stopped.Header.Clean = true
	m.after = []contents{stopped}
	if m.failed {
		m.after = append(m.after, now)
	}
	return true
}

func (m *member) detach() {
	if m.collection != nil && m.corrupt("Detach", m.Detach()) {
		m.failed = true
	}
}
