package bolt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// lockPoll is how often a lock that is held is tried again.
const lockPoll = 50 * time.Millisecond

// lockFile is "<path>.owner", a file of its own next to the database.
//
// Its flock is what makes a process the owner of the path. The database's own
// lock cannot be that: the file is created by a rename, and moved aside when it
// is damaged, and a lock stays with the file and not with the name. (The
// database is locked too, against programs that do not know this file.)
//
// Its content, a JSON object, can be read while the lock is held. It says who
// the owner is, and how far the last Open got, which is what tells a crash while
// opening from one while running. It is written in place, in one page and
// without fsync: it has to survive the process and not the machine, for which
// the boot id stands in.
type lockFile struct {
	file *os.File
	// found is the record that the previous owner has left.
	found ownerRecord

	// mu is held while the record is written, one page into the page cache.
	mu struct {
		sync.Mutex
		record ownerRecord
		// strikes are those that begin has counted.
		strikes int
		// begun is set once record is about the database and not what was found.
		begun bool
	}
}

// phase is how far the owner of a file got.
type phase string

const (
	// phaseOpening is set while Open verifies the file and has bbolt read it. A
	// process that dies in it, in a way that recover does not see, leaves it
	// behind.
	phaseOpening phase = "opening"
	// phaseOpen is set as long as the file is in use. A process that is killed
	// leaves it behind, and that says nothing about the file.
	phaseOpen phase = "open"
	// phaseClosed is set by Close.
	phaseClosed phase = "closed"
	// phaseUnreadable is set by an Open that the disk did not let read the file.
	phaseUnreadable phase = "unreadable"
	// phaseDamaged is set when damage was found while the file was in use.
	phaseDamaged phase = "damaged"
)

// ownerRecord is the content of the lock file.
type ownerRecord struct {
	// Owner is zero once the lock was given up. A process that is killed leaves
	// its name behind.
	Owner
	// Boot is the id of the boot of the machine, empty if it has none.
	Boot string `json:"boot,omitempty"`
	// Inode is the file that Phase and Strikes are about.
	Inode uint64 `json:"inode,omitempty"`
	Phase phase  `json:"phase"`
	// Strikes counts, in phaseOpening and phaseUnreadable, how often in a row an
	// Open began and did not end well, this one included.
	Strikes int `json:"strikes,omitempty"`
}

// lockPath returns the path of the lock file for a database.
func lockPath(path string) string { return path + ".owner" }

// acquireLock makes this process the owner of path, or returns a *LockedError
// after the timeout. What was found stays as it is but for the owner's name,
// which a second process can read from now on.
func acquireLock(path string, o *Options) (*lockFile, error) {
	file, err := lockOwner(path, o)
	if err != nil {
		return nil, err
	}
	l := &lockFile{file: file, found: readOwner(file)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.record = l.found
	host, _ := os.Hostname() // an unknown host is not worth failing for
	l.mu.record.Owner = Owner{Host: host, PID: os.Getpid(), Since: o.Clock.Now().Round(time.Second).UTC()}
	l.writeLocked()
	return l, nil
}

// lockOwner opens the lock file of path and takes its lock. A lock file that
// somebody removed while we waited is not the one that others lock: then it
// begins anew with the one that is there.
func lockOwner(path string, o *Options) (*os.File, error) {
	for {
		file, err := openOwner(path)
		if err != nil {
			return nil, err
		}
		locked := func() error { return &LockedError{Path: path, Owner: readOwner(file).Owner} }
		if err := lockWithin(file, unix.LOCK_EX, o, locked); err != nil {
			return nil, errors.Join(err, file.Close())
		}
		if isAt(file, lockPath(path)) {
			return file, nil
		}
		file.Close()
	}
}

// openOwner opens or creates the lock file of path.
func openOwner(path string) (*os.File, error) {
	file, err := openRegular(lockPath(path), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("open the lock file, which must be writable, as must be its directory: %w", err)
	}
	if err := refusePlanted(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// isAt says whether name is still that of file.
func isAt(file *os.File, name string) bool {
	opened, err := file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(name)
	return err == nil && os.SameFile(opened, named)
}

// lockWithin takes a lock on file, waiting for at most o.LockTimeout; after that
// it returns the error that locked makes. The first wait is logged.
func lockWithin(file *os.File, how int, o *Options, locked func() error) error {
	deadline := o.Clock.Now().Add(o.LockTimeout)
	for waited := false; ; waited = true {
		err := unix.Flock(int(file.Fd()), how|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			return fmt.Errorf("lock %s, on a file system that supports it: %w", file.Name(), err)
		}
		left := deadline.Sub(o.Clock.Now())
		if left <= 0 {
			return locked()
		}
		if !waited && o.OnLocked == Wait {
			o.Logger.Info("Waiting for the cache file", "timeout", o.LockTimeout, "reason", locked().Error())
		}
		sleep(o.Clock, min(left, lockPoll))
	}
}

// sleep is Clock.Sleep for clocks whose Sleep does not block.
func sleep(c clock.Clock, d time.Duration) {
	timer := c.NewTimer(d)
	<-timer.C()
}

// unlock releases the lock on file, which closing it does too, but only when
// no other descriptor of it is left.
func unlock(file *os.File) error { return unix.Flock(int(file.Fd()), unix.LOCK_UN) }

// readOwner reads the record of a lock file, which may be anything.
func readOwner(file io.ReaderAt) ownerRecord {
	content, err := io.ReadAll(io.NewSectionReader(file, 0, ownerSize))
	if err != nil {
		return ownerRecord{}
	}
	return decodeOwner(content)
}

// ownerOf is who has the lock file of path, as far as that can be read.
func ownerOf(path string) Owner {
	file, err := openRegular(lockPath(path), os.O_RDONLY)
	if err != nil {
		return Owner{}
	}
	defer file.Close()
	return readOwner(file).Owner
}

// decodeOwner returns the zero record for what is not one. Nobody has a host name
// that would break a line of a log.
func decodeOwner(content []byte) ownerRecord {
	var record ownerRecord
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	if json.Unmarshal(content, &record) != nil || strings.ContainsFunc(record.Host, unprintable) {
		return ownerRecord{}
	}
	return record
}

// ownerSize is the size of a lock file. Records are padded to it, so that
// writing one is one write that neither grows nor shrinks the file.
const ownerSize = 1024

// markLocked writes the record with another phase.
func (l *lockFile) markLocked(p phase) {
	l.mu.record.Phase = p
	l.writeLocked()
}

// writeLocked writes the record. An error does not matter enough to fail for: it
// costs the owner's name in a message, or a strike.
func (l *lockFile) writeLocked() {
	content, err := json.Marshal(l.mu.record)
	if err != nil || len(content) >= ownerSize {
		return
	}
	padding := bytes.Repeat([]byte{' '}, ownerSize-1-len(content))
	content = append(append(content, padding...), '\n')
	_, _ = l.file.WriteAt(content, 0)
}

// begin marks the beginning of opening the file with the given inode, and
// returns why the file must not be touched, if that is so.
func (l *lockFile) begin(inode uint64) (condemned string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.begun = true
	l.mu.record.Boot, l.mu.record.Inode, l.mu.record.Strikes = bootID(), inode, 1
	if same := l.found.Inode == inode; same && l.found.Phase == phaseDamaged {
		condemned = reasonDamaged
	} else if same && l.found.struck() && l.found.Boot == l.mu.record.Boot {
		l.mu.record.Strikes += l.found.Strikes
	}
	if l.mu.record.Strikes > maxStrikes {
		condemned = reasonStrikes
		if l.found.Phase == phaseUnreadable {
			condemned = reasonUnreadable
		}
	}
	l.mu.strikes = l.mu.record.Strikes
	if condemned != "" {
		l.markLocked(phaseDamaged)
	} else {
		l.markLocked(phaseOpening)
	}
	return condemned
}

// struck says whether the last Open began and did not end well.
func (r *ownerRecord) struck() bool { return r.Phase == phaseOpening || r.Phase == phaseUnreadable }

// goOn marks that opening goes on with what could end the process, as if it had not
// ended; wentOn marks its end. They do nothing once damage was found.
func (l *lockFile) goOn()   { l.markUnlessDamaged(phaseOpening, l.strikes()) }
func (l *lockFile) wentOn() { l.markUnlessDamaged(phaseOpen, 0) }

// strikes are those of this Open.
func (l *lockFile) strikes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.strikes
}

func (l *lockFile) markUnlessDamaged(p phase, strikes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.record.Phase == phaseDamaged {
		return
	}
	l.mu.record.Strikes = strikes
	l.markLocked(p)
}

// opened marks the end of opening the file with the given inode.
func (l *lockFile) opened(inode uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.record.Inode, l.mu.record.Strikes = inode, 0
	l.markLocked(phaseOpen)
}

// condemn notes that the open file with the given inode is damaged, unless another
// one has taken its place.
func (l *lockFile) condemn(inode uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.record.Inode == inode {
		l.markLocked(phaseDamaged)
	}
}

// unreadable notes that the disk did not let the file be read.
func (l *lockFile) unreadable() { l.markUnlessDamaged(phaseUnreadable, l.strikes()) }

// hold makes sure that the path is still ours: somebody may have removed the lock
// file, and another process have locked the one that it made in its place.
func (l *lockFile) hold(path string, o Options) error {
	if isAt(l.file, lockPath(path)) {
		return nil
	}
	o.LockTimeout = 0
	file, err := lockOwner(path, &o)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.file.Close() // nobody can lock it any more
	l.file = file
	l.writeLocked()
	return nil
}

// closedBefore says whether the previous owner of the file with the given inode
// has closed it.
func (l *lockFile) closedBefore(inode uint64) bool {
	return l.found.Inode == inode && l.found.Phase == phaseClosed
}

// release takes the owner's name off the record and gives up the lock. The file
// is marked as closed, for an Open that ends with an error is no crash, unless
// it is known to be damaged or could not be read. What was found is left as it was by an Open that
// did not get as far as the file.
func (l *lockFile) release() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.mu.begun:
		l.mu.record = l.found
	case l.mu.record.Phase != phaseDamaged && l.mu.record.Phase != phaseUnreadable:
		l.mu.record.Strikes, l.mu.record.Phase = 0, phaseClosed
	}
	l.mu.record.Owner = Owner{}
	l.writeLocked()
	return errors.Join(unlock(l.file), l.file.Close())
}

// bootID identifies this boot of the machine; empty where there is no such id.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// inodeOf identifies a file as long as it exists.
func inodeOf(file *os.File) (uint64, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	return inodeIn(info), nil
}

func inodeIn(info os.FileInfo) uint64 {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return stat.Ino
}
