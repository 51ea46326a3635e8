package storetest

import (
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/internal/memory"
)

// Memory is the model engine: it keeps collections in memory and makes every
// batch "durable" at once. Tests of other packages use it in place of a file.
//
//	m := storetest.NewMemory()
//	s := m.Open()  // a process starts
//	...
//	s = m.Open()   // it was killed, and starts again with what it had applied
type Memory struct{ engine *memory.Engine }

// NewMemory returns an empty engine.
func NewMemory() *Memory {
	return &Memory{engine: memory.New(memory.Options{})}
}

// Open returns a store with everything that was applied so far, whether the
// store before it was closed or not. That store returns ErrClosed from then on,
// as a killed process would do nothing any more.
func (m *Memory) Open() store.Store { return m.engine.Open() }
