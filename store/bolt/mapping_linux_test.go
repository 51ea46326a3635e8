package bolt

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/warmcache/warmcache/store"
)

// mapped says whether this process has mapped the memory at an address.
func mapped(t *testing.T, address uintptr) bool {
	t.Helper()
	return inMaps(t, func(from, to uintptr, _ []string) bool { return from <= address && address < to })
}

// mappedFile says whether it has mapped the file with an inode, whatever its name
// in dir is by now.
func mappedFile(t *testing.T, dir string, inode uint64) bool {
	t.Helper()
	return inMaps(t, func(_, _ uintptr, fields []string) bool {
		return len(fields) > 5 && fields[4] == strconv.FormatUint(inode, 10) && strings.HasPrefix(fields[5], dir)
	})
}

// inMaps says whether a part of the memory is as match wants it: from one address
// to another, and what the kernel says of it.
func inMaps(t *testing.T, match func(from, to uintptr, fields []string) bool) bool {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			t.Fatal(err)
		}
		found = found || match(from, to, strings.Fields(line))
	}
	return found
}

// mappedDB returns a database that bbolt has mapped, its mapping, and whether it is
// still there. bbolt must not close it: that would unmap what others may have by
// then.
func mappedDB(t *testing.T) (db *bbolt.DB, m *mapping, still func() bool) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "cache.db")
	o := boltOptions()
	o.InitialMmapSize = 1 << 20
	var file *os.File
	o.OpenFile = func(_ string, flag int, mode os.FileMode) (f *os.File, err error) {
		file, err = os.OpenFile(path, flag, mode)
		return file, err
	}
	db, err := bbolt.Open(path, fileMode, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	inode, err := inodeOf(file)
	if err != nil {
		t.Fatal(err)
	}
	m = &mapping{}
	m.set(db, o.InitialMmapSize)
	still = func() bool { return mappedFile(t, dir, inode) }
	if !still() {
		t.Fatal("bbolt has mapped nothing")
	}
	return db, m, still
}

func TestMapping_EndsWithTheLastUser(t *testing.T) {
	db, m, still := mappedDB(t)
	for range 2 {
		if !m.enter() {
			t.Fatal("refused before the end")
		}
	}
	m.end(db)
	if m.enter() {
		t.Error("admitted after the end")
	}
	for user := range 2 {
		if !still() {
			t.Fatalf("unmapped after %d of 2 users have left", user)
		}
		m.leave()
	}
	if still() {
		t.Error("still mapped after the last user has left")
	}
}

func TestMapping_EndsAtOnceWithoutUsers(t *testing.T) {
	db, m, still := mappedDB(t)
	if !m.enter() {
		t.Fatal("refused before the end")
	}
	m.leave()
	if !still() {
		t.Fatal("unmapped before the end")
	}
	m.end(db)
	if still() {
		t.Error("still mapped after the end")
	}
}

// TestMapping_End_KeepsWhatIsNotBbolts checks that memory is not unmapped from
// which bbolt has moved away: others may have it by then.
func TestMapping_End_KeepsWhatIsNotBbolts(t *testing.T) {
	for name, end := range map[string]func(*mapping){
		"mapped elsewhere": func(m *mapping) {
			db, _, _ := mappedDB(t)
			m.end(db)
		},
		"not mapped": func(m *mapping) {
			db, err := bbolt.Open(filepath.Join(t.TempDir(), "cache.db"), fileMode, boltOptions())
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			m.end(db)
		},
	} {
		t.Run(name, func(t *testing.T) {
			others, address := anonymous(t)
			m := &mapping{address: address, length: uintptr(len(others))}
			end(m)
			if !mapped(t, address) {
				t.Fatal("memory of others was unmapped")
			}
			if err := unix.Munmap(others); err != nil {
				t.Error(err)
			}
		})
	}
}

// anonymous maps some memory without a file, and returns where, too.
func anonymous(t *testing.T) (memory []byte, address uintptr) {
	t.Helper()
	memory, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	return memory, reflect.ValueOf(memory).Pointer()
}

// TestQuarantine_GivesTheMemoryBack checks that a damaged file takes no place on
// the disk, once it was removed, when the last View that reads it has ended.
func TestQuarantine_GivesTheMemoryBack(t *testing.T) {
	dir := t.TempDir()
	db, err := Open(filepath.Join(dir, "cache.db"), Options{FlushInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.Collection(podsID, "test")
	if err != nil {
		t.Fatal(err)
	}
	write := func(key string) {
		batch := store.Batch{Clear: true, Ops: []store.Op{{Key: key, Value: store.Seal([]byte(key))}}}
		if err := c.Apply(batch); err != nil {
			t.Fatal(err)
		}
		if err := c.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	inode := db.current().opened.Load().inode
	_ = c.View(func(tx store.Tx) error { // what it returns is up to the damage
		if value, err := tx.Get("old"); value == nil || err != nil {
			t.Errorf("before: %q, %v", value, err)
		}
		c.Quarantine(store.ErrCorrupt)
		write("new")
		if db.Quarantined() == "" || db.current().opened.Load().inode == inode {
			t.Error("the file was not replaced")
		}
		if !mappedFile(t, dir, inode) {
			t.Error("the damaged file is not mapped while a View reads it")
		}
		return nil
	})
	if mappedFile(t, dir, inode) {
		t.Error("the damaged file is mapped after the View has ended")
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
