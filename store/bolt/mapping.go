package bolt

import (
	"sync"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// mapping is the memory that bbolt has mapped a file to, and who is using it.
//
// A file that was found damaged is never closed by bbolt: that would wait for the
// locks of a transaction that has panicked, which nobody releases. But as long as
// it is mapped it takes its place on the disk, also after it was removed. So its
// memory is given back here, once nobody is left who might read it.
type mapping struct {
	// address and length are those of the memory; 0 if they are not known.
	address, length uintptr
	// ended is set once bbolt is not going to unmap it any more.
	ended bool

	mu struct {
		sync.Mutex
		users int
		over  bool
		// idle is closed once it is over and all have left.
		idle chan struct{}
	}
}

// set notes where bbolt has mapped its file, which it was told to map with the
// given size: a power of two that it takes as it is.
func (m *mapping) set(db *bbolt.DB, size int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if size > 0 {
		m.address, m.length = db.Info().Data, uintptr(size)
	}
}

// enter admits somebody who reads the mapping, until leave. It returns false once
// the mapping is over.
func (m *mapping) enter() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.over {
		return false
	}
	m.mu.users++
	return true
}

func (m *mapping) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.users--
	m.leftLocked()
	m.unmapLocked()
}

// close lets nobody in any more, and returns a channel that is closed when all have
// left.
func (m *mapping) close() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.idle == nil {
		m.mu.idle = make(chan struct{})
	}
	m.mu.over = true
	m.leftLocked()
	return m.mu.idle
}

// leftLocked does what is due when all have left.
func (m *mapping) leftLocked() {
	if m.mu.over && m.mu.users == 0 && m.mu.idle != nil {
		select {
		case <-m.mu.idle:
		default:
			close(m.mu.idle)
		}
	}
}

// end gives the memory back when all have left. bbolt must not be used any more.
// What it has mapped elsewhere meanwhile, because the file outgrew the mapping, is
// kept: nobody knows how much that is.
func (m *mapping) end(db *bbolt.DB) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.over, m.ended = true, true
	if !m.stillAt(db) {
		m.length = 0
	}
	m.unmapLocked()
}

// stillAt says whether bbolt has its file where it had it first. bbolt panics if it
// has it nowhere.
func (m *mapping) stillAt(db *bbolt.DB) (still bool) {
	_, _ = protect(func() error {
		still = db.Info().Data == m.address
		return nil
	})
	return still
}

func (m *mapping) unmapLocked() {
	if m.ended && m.mu.users == 0 && m.length > 0 {
		_, _, _ = unix.Syscall(unix.SYS_MUNMAP, m.address, m.length, 0)
		m.length = 0
	}
}
