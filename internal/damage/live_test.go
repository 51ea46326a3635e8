package damage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/warmcache/warmcache/indexer"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
)

// TestLive damages files while they are open: under readers, changes and commits.
// It takes twenty times as long as TestFile.
func TestLive(t *testing.T) {
	run(t, "live", cases()/20)
}

// liveCase is one process in which the file is damaged under its feet, and then
// others that find it.
func liveCase(samples []*sample, t task, dir string) (result, error) {
	random := rand.New(rand.NewPCG(t.Seed, uint64(t.Number)))
	s := samples[random.IntN(len(samples))]
	u := newUser(s, filepath.Join(dir, "cache.db"))
	if t.Again {
		u.use()
		return u.result, nil
	}
	if err := os.WriteFile(u.path, s.file(), 0o600); err != nil {
		return u.result, err
	}
	u.byVersion = true
	u.Lives = 1
	l := &liveUser{user: u, Rand: random}
	if err := l.run(); err != nil {
		return u.result, err
	}
	for u.Lives = 2; u.Lives <= maxLives && len(u.Problems) == 0 && u.live(); u.Lives++ {
		u.Noticed = true
	}
	return u.result, nil
}

type liveUser struct {
	*user
	*rand.Rand
	db      *bolt.DB
	members []*member
	// mu guards the user's problems and what follows.
	mu   sync.Mutex
	seen bool
}

// corruptOnly notes an error that a reader or the writer got.
func (l *liveUser) corruptOnly(what string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.corrupt(what, err) {
		l.seen = true
	}
}

// run opens the file, and damages it between two rounds of changes.
func (l *liveUser) run() (err error) {
	//hygiene:allow bolt.Open: a child has no test, and the file is damaged
	if l.db, err = bolt.Open(l.path, options()); err != nil {
		return err
	}
	for _, s := range l.used() {
		m := &member{user: l.user, spec: s, db: l.db}
		m.open()
		l.members = append(l.members, m)
	}
	before := l.inode()
	stop, rounds := make(chan struct{}), make(chan struct{})
	var workers sync.WaitGroup
	workers.Go(func() { l.read(stop) })
	workers.Go(func() { l.churn(stop, rounds) })
	for range 1 + 2*l.IntN(4) {
		<-rounds
	}
	// The writer waits at the end of a round, or is in the middle of the next.
	if l.anything = l.IntN(2) == 0; l.anything {
		<-rounds
	}
	err = l.damage()
	for range 6 + l.IntN(8) {
		<-rounds
	}
	close(stop)
	workers.Wait()
	l.end(before)
	return err
}

// end stops the informers, and says what the next process may find.
func (l *liveUser) end(before uint64) {
	failed := false
	flush(l.members)
	for _, m := range l.members {
		failed = m.failed || failed
	}
	for _, m := range l.members {
		failed = l.corrupt("Detach", m.Detach()) || failed
	}
	failed = l.corrupt("Close", l.db.Close()) || failed
	replaced := l.inode() != before
	l.condemned = failed && !replaced
	l.Noticed = failed || replaced || l.seen
	for _, m := range l.members {
		if replaced {
			l.may[m.name] = append(l.may[m.name], contents{})
		}
		l.may[m.name] = append(l.may[m.name], m.after...)
	}
}

// inode identifies the file at the path; 0 if there is none.
func (l *liveUser) inode() uint64 {
	var stat unix.Stat_t
	if err := unix.Stat(l.path, &stat); err != nil {
		return 0
	}
	return stat.Ino
}

// read reads everything again and again, as users of a cache on disk do.
func (l *liveUser) read(stop chan struct{}) {
	for {
		for _, m := range l.members {
			select {
			case <-stop:
				return
			default:
			}
			l.corruptOnly("View", m.collection.View(func(tx store.Tx) error {
				var damaged error
				err := tx.Scan("", func(_, value []byte) bool {
					_, damaged = store.Unseal(value)
					return damaged == nil
				})
				if err == nil && damaged == nil {
					_, err = departedOf(tx)
				}
				return errors.Join(err, damaged)
			}))
			var found contents
			_, err := m.read(&found)
			l.corruptOnly("View", err)
		}
	}
}

// churn changes objects and flushes. The end of each round is told, and then the
// beginning of the next.
func (l *liveUser) churn(stop, rounds chan struct{}) {
	for round := 1; ; round++ {
		for _, m := range l.members {
			l.round(m, round)
		}
		// At the end and at the beginning: in between, nothing is written.
		for range 2 {
			select {
			case rounds <- struct{}{}:
			case <-stop:
				return
			}
		}
	}
}

// round changes one collection. The contents go to what may be found before they
// can get into the file.
func (l *liveUser) round(m *member, round int) {
	name := fmt.Sprintf("live-%d", round)
	rv := fmt.Sprint(5000 + round)
	u := indexer.Update{RV: rv, Changes: []indexer.Change{{Key: "ns/" + name, Object: m.make(name, round, "live")}}}
	if keys := m.ListKeys(); len(keys) > 2 {
		u.Changes = append(u.Changes, indexer.Change{Key: keys[0], Depart: true})
	}
	m.restore()
	if _, err := m.Apply(u); err != nil {
		l.corruptOnly("Apply", err)
	}
	objects, err := m.objectsOf(m.Indexer)
	l.mu.Lock()
	if err != nil {
		l.problem("%s: encode: %v", m.name, err)
	}
	l.may[m.name] = append(l.may[m.name], contents{Header: store.Header{RV: rv}, Objects: objects})
	l.mu.Unlock()
	l.corruptOnly("Flush", m.Flush(context.Background()))
}

// damage damages the file at the path, or what the path leads to.
func (l *liveUser) damage() error {
	switch l.IntN(10) {
	case 0:
		defer l.describe("removed")
		return os.Remove(l.path)
	case 1:
		defer l.describe("renamed")
		return os.Rename(l.path, l.path+".elsewhere")
	case 2:
		defer l.describe("replaced by an older version")
		if err := os.WriteFile(l.path+".new", l.Versions[l.IntN(len(l.Versions))], 0o600); err != nil {
			return err
		}
		return os.Rename(l.path+".new", l.path)
	}
	return l.inPlace()
}

func (l *liveUser) describe(what string) { l.What = l.Name + ", open: " + what }

// inPlace does to the open file what could be done to a closed one.
func (l *liveUser) inPlace() error {
	before, err := os.ReadFile(l.path)
	if err != nil {
		return err
	}
	before = before[:min(len(before), int(parseMeta(before).pages)*pageSize)]
	d := &damaged{sample: l.sample, Rand: l.Rand, file: bytes.Clone(before)}
	for len(d.what) == 0 {
		d.strike()
	}
	d.keepTree(before)
	l.older = strings.Contains(d.String(), "after commit")
	l.describe(fmt.Sprint(d.what))
	file, err := os.OpenFile(l.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	return d.writeOver(file, before)
}

// writeOver writes what differs from before.
func (d *damaged) writeOver(file *os.File, before []byte) (err error) {
	if len(d.file) < len(before) {
		err = file.Truncate(int64(len(d.file)))
	}
	for at := 0; at < len(d.file); at += pageSize {
		page := d.file[at:min(at+pageSize, len(d.file))]
		if at+len(page) > len(before) || !bytes.Equal(page, before[at:at+len(page)]) {
			_, writeErr := file.WriteAt(page, int64(at))
			err = errors.Join(err, writeErr)
		}
	}
	for _, s := range d.holes {
		if d.within(s) && isZero(d.file[s.at:][:s.size]) {
			err = errors.Join(err, punch(file, s))
		}
	}
	return err
}

// keepTree takes one kind back: bbolt follows branch pages in a circle until its
// stack is full, which ends the process. The next one finds it when it opens the
// file.
func (d *damaged) keepTree(before []byte) {
	for id := range min(len(d.file), len(before)) / pageSize {
		page, old := d.pageAt(id), before[id*pageSize:][:pageSize]
		if id >= 2 && (order.Uint16(page[8:]) == branchPage || order.Uint16(old[8:]) == branchPage) {
			copy(page, old)
		}
	}
}
