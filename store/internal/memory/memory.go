package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/warmcache/warmcache/store"
)

// Options configure an Engine. The zero value is a good default.
type Options struct {
	// Clock tells the time of departed records; the real one by default.
	Clock clock.PassiveClock
	// Volatile, if not nil, is the reason why nothing of this engine will
	// survive. It is reported as Durability.Err.
	Volatile error
}

// Engine holds collections in memory, across any number of Open and Close. Its
// methods are safe for concurrent use.
type Engine struct {
	options Options

	mu struct {
		sync.Mutex
		// contents holds the state of every collection ever opened.
		contents map[store.Identity]*content
		// open is the store returned by the last Open.
		open *memoryStore
	}
}

// content is the current state of one collection and when it was written.
// It is guarded by Engine.mu.
type content struct {
	state   *state
	written time.Time
}

// New returns an empty engine.
func New(o Options) *Engine {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	e := &Engine{options: o}
	e.mu.contents = map[store.Identity]*content{}
	return e
}

// Open returns a store with everything that was applied so far. A store that
// was opened before is closed by it, as if its process had died.
func (e *Engine) Open() store.Store {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &memoryStore{engine: e, collections: map[store.Identity]*collection{}, generation: newGeneration()}
	e.mu.open = s
	return s
}

// memoryStore implements store.Store. It is closed when it is not the engine's
// open store any more.
type memoryStore struct {
	engine *Engine
	// The rest is guarded by Engine.mu.

	// collections are those that are open.
	collections map[store.Identity]*collection
	// generation is what a collection begins on.
	generation *generation
	// quarantines counts those that were found damaged.
	quarantines int64
}

// generation ends when what is stored is found damaged.
type generation struct {
	lost   chan struct{}
	damage error
}

func newGeneration() *generation { return &generation{lost: make(chan struct{})} }

func (s *memoryStore) checkOpenLocked() error {
	if s.engine.mu.open != s {
		return store.ErrClosed
	}
	return nil
}

func (s *memoryStore) Collection(id store.Identity, owner string) (store.Collection, error) {
	if err := id.Validate(); err != nil {
		return nil, err
	}
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	if err := s.checkOpenLocked(); err != nil {
		return nil, err
	}
	if holder := s.collections[id]; holder != nil {
		return nil, store.InUse(id, holder.owner, owner)
	}
	if s.engine.mu.contents[id] == nil {
		s.engine.mu.contents[id] = &content{state: newState()}
	}
	c := &collection{store: s, id: id, owner: owner, generation: s.generation}
	s.collections[id] = c
	return c, nil
}

// Informers leaves out collections that were opened and never written, which a
// file would not have either.
func (s *memoryStore) Informers() ([]store.Info, error) {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	if err := s.checkOpenLocked(); err != nil {
		return nil, err
	}
	var infos []store.Info
	for id, content := range s.engine.mu.contents {
		if !content.state.exists() {
			continue
		}
		info := store.Info{
			Identity: id,
			Totals:   content.state.totals,
			Departed: int64(content.state.departed.Len()),
		}
		if c := s.collections[id]; c != nil {
			info.InUse, info.Owner = true, c.owner
		}
		if header := content.state.header; header != nil {
			info.Header = header.Clone()
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b store.Info) int {
		return cmp.Compare(a.Identity.String(), b.Identity.String())
	})
	return infos, nil
}

func (s *memoryStore) Forget(id store.Identity) error {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	if err := s.checkOpenLocked(); err != nil {
		return err
	}
	if holder := s.collections[id]; holder != nil {
		return store.InUse(id, holder.owner, "Forget")
	}
	if content := s.engine.mu.contents[id]; content == nil || !content.state.exists() {
		return fmt.Errorf("%w: %s", store.ErrNotFound, id)
	}
	delete(s.engine.mu.contents, id)
	return nil
}

// Status implements store.Store.
func (s *memoryStore) Status() store.Status {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	volatile := s.engine.options.Volatile
	return store.Status{Persistent: volatile == nil, Err: volatile, Quarantines: s.quarantines}
}

func (s *memoryStore) Close() error {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	if s.engine.mu.open == s {
		s.engine.mu.open = nil
	}
	return nil
}

// collection implements store.Collection.
type collection struct {
	store *memoryStore
	id    store.Identity
	owner string
	// generation is guarded by Engine.mu.
	generation *generation
}

func (c *collection) Identity() store.Identity { return c.id }

// contentLocked returns what the collection holds, or ErrClosed, or why it is
// lost.
func (c *collection) contentLocked() (*content, error) {
	if err := c.checkOpenLocked(); err != nil {
		return nil, err
	}
	return c.store.engine.mu.contents[c.id], c.generation.damage
}

// readableLocked is contentLocked for somebody who only reads, which is allowed
// until the store is closed.
func (c *collection) readableLocked() (*state, error) {
	if err := c.store.checkOpenLocked(); err != nil {
		return nil, err
	}
	if content := c.store.engine.mu.contents[c.id]; content != nil {
		return content.state, c.generation.damage
	}
	return newState(), c.generation.damage // it was forgotten
}

func (c *collection) checkOpenLocked() error {
	if err := c.store.checkOpenLocked(); err != nil {
		return err
	}
	if c.store.collections[c.id] != c {
		return store.ErrClosed
	}
	return nil
}

func (c *collection) current() (*state, error) {
	c.store.engine.mu.Lock()
	defer c.store.engine.mu.Unlock()
	return c.readableLocked()
}

// View runs on the state that is current when it begins, and holds no lock.
func (c *collection) View(fn func(store.Tx) error) error {
	s, err := c.current()
	if err != nil {
		return err
	}
	return fn(tx{s})
}

// Apply replaces the state as a whole, which makes the batch atomic and leaves
// running Views alone.
func (c *collection) Apply(b store.Batch) error {
	if err := b.Validate(); err != nil {
		return err
	}
	engine := c.store.engine
	engine.mu.Lock()
	defer engine.mu.Unlock()
	if b.Clear && c.checkOpenLocked() == nil && c.generation.damage != nil {
		c.generation = c.store.generation
		engine.mu.contents[c.id] = &content{state: newState()}
	}
	content, err := c.contentLocked()
	if err != nil {
		return err
	}
	now := engine.options.Clock.Now().Round(0).UTC()
	content.state = content.state.apply(b, now)
	content.written = now
	return nil
}

// Flush has nothing to wait for.
func (c *collection) Flush(context.Context) error {
	c.store.engine.mu.Lock()
	defer c.store.engine.mu.Unlock()
	_, err := c.contentLocked()
	return err
}

func (c *collection) Durability() store.Durability {
	engine := c.store.engine
	engine.mu.Lock()
	defer engine.mu.Unlock()
	content := engine.mu.contents[c.id]
	if err := errors.Join(c.generation.damage, engine.options.Volatile); err != nil || content == nil {
		return store.Durability{Err: err}
	}
	d := store.Durability{Committed: content.written, Objects: content.state.totals}
	if header := content.state.header; header != nil {
		d.RV = header.RV
	}
	return d
}

func (c *collection) Lost() <-chan struct{} {
	c.store.engine.mu.Lock()
	defer c.store.engine.mu.Unlock()
	return c.generation.lost
}

// verified is closed: memory needs no verification.
var verified = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (*collection) Verified() <-chan struct{} { return verified }

// Quarantine drops everything: there is no file to keep.
func (c *collection) Quarantine(cause error) {
	c.store.engine.mu.Lock()
	defer c.store.engine.mu.Unlock()
	g := c.generation
	if c.store.checkOpenLocked() != nil || g.damage != nil {
		return
	}
	g.damage = fmt.Errorf("%w: %w", store.ErrCorrupt, cause)
	close(g.lost)
	s := c.store
	s.generation = newGeneration()
	s.quarantines++
	clear(s.engine.mu.contents)
}

func (c *collection) Close() error {
	c.store.engine.mu.Lock()
	defer c.store.engine.mu.Unlock()
	if c.store.collections[c.id] == c {
		delete(c.store.collections, c.id)
	}
	return nil
}
