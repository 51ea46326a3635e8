package bolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
	"github.com/warmcache/warmcache/store/storetest"
)

func TestOpen_InvalidOptions(t *testing.T) {
	dir := t.TempDir()
	for field, o := range map[string]bolt.Options{
		"FlushInterval": {FlushInterval: -1},
		"MaxDirty":      {MaxDirty: -1},
		"MaxDirtyBytes": {MaxDirtyBytes: -1},
		"LockTimeout":   {LockTimeout: -1},
		"DepartedBytes": {DepartedBytes: -1},
		"ScrubRate":     {ScrubRate: -1},
		"OnLocked":      {OnLocked: 7},
	} {
		_, err := bolt.Open(filepath.Join(dir, "cache.db"), o)
		if !errors.Is(err, bolt.ErrInvalidOptions) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: got %v, want ErrInvalidOptions that names the field", field, err)
		}
	}
	_, err := bolt.Open("", bolt.Options{})
	if want := `open cache file "": invalid`; !errors.Is(err, bolt.ErrInvalidOptions) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("empty path: got %v, want ErrInvalidOptions that begins with %s", err, want)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestOptions_EveryFieldIsCovered fails when a field is added to Options, until
// somebody has thought of its default and its validation.
func TestOptions_EveryFieldIsCovered(t *testing.T) {
	const fields = 15
	if got := reflect.TypeFor[bolt.Options]().NumField(); got != fields {
		t.Errorf("Options has %d fields, the tests know %d", got, fields)
	}
	o, err := bolt.WithDefaults(bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v := reflect.ValueOf(o)
	for i := range v.NumField() {
		// OnLocked's default is its zero value.
		if field := v.Type().Field(i); field.IsExported() && field.Name != "OnLocked" && v.Field(i).IsZero() {
			t.Errorf("%s has no default", field.Name)
		}
	}
	if o, err = bolt.WithDefaults(bolt.Options{OnLocked: bolt.Wait}); err != nil || o.LockTimeout != bolt.DefaultWaitTimeout {
		t.Errorf("LockTimeout with Wait: %v, %v", o.LockTimeout, err)
	}
}

func TestOpen_BadPath(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"a directory":            dir,
		"below a file":           filepath.Join(file, "cache.db"),
		"a link":                 link,
		"unwritable directory":   "/proc/cache.db",
		"uncreatable directory":  "/proc/warmcache/cache.db",
		"a name that is too big": filepath.Join(dir, strings.Repeat("x", 300)),
	} {
		for mode, open := range map[string]func(string, bolt.Options) (*bolt.DB, error){"Open": bolt.Open, "OpenReadOnly": bolt.OpenReadOnly} {
			_, err := open(path, bolt.Options{LockTimeout: time.Millisecond})
			if err == nil || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s of %s: got %v, want one line", mode, name, err)
			}
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func checkModes(t *testing.T, dir string) {
	t.Helper()
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v, %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", entry.Name(), info.Mode(), err)
		}
	}
}

func TestOpen_RemovesLeftovers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	if err := os.WriteFile(path+".new-123", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	bolttest.Open(t, path, bolt.Options{})
	if left, err := filepath.Glob(path + ".new-*"); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

func TestOpenReadOnly_ChangesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "cache.db")
	db := bolttest.Open(t, path, bolt.Options{})
	apply(t, collection(t, db), storetest.Put("a", "1"))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	before := snapshotDir(t, dir)
	first, err := bolt.OpenReadOnly(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := bolt.OpenReadOnly(path, bolt.Options{})
	if err != nil {
		t.Fatalf("a second reader: %v", err)
	}
	_, err = bolt.Open(path, bolt.Options{LockTimeout: time.Millisecond})
	var locked *bolt.LockedError
	if !errors.As(err, &locked) || locked.Owner.PID != 0 {
		t.Errorf("a writer beside readers: got %v, want a LockedError without an owner", err)
	}
	if got := storetest.Dump(t, collection(t, first)).Objects; len(got) != 1 {
		t.Errorf("objects: %v", got)
	}
	if err := errors.Join(first.Close(), first.Close(), second.Close()); err != nil {
		t.Error(err)
	}
	// The writer above has written its name to the lock file.
	delete(before, "cache.db.owner")
	after := snapshotDir(t, dir)
	delete(after, "cache.db.owner")
	if !reflect.DeepEqual(before, after) {
		t.Error("reading has changed something")
	}
}

// snapshotDir describes all files of a directory.
func snapshotDir(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		info, infoErr := entry.Info()
		if err := errors.Join(err, infoErr); err != nil {
			t.Fatal(err)
		}
		files[entry.Name()] = fmt.Sprint(info.ModTime(), info.Mode(), string(content))
	}
	return files
}

func TestOpenReadOnly_Unusable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	if _, err := bolt.OpenReadOnly(path, bolt.Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: got %v", err)
	}
	if err := os.WriteFile(path, bytes.Repeat([]byte("text\n"), 3000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := bolt.OpenReadOnly(path, bolt.Options{}); err == nil || !strings.Contains(err.Error(), "not a warmcache file") {
		t.Errorf("a text: got %v", err)
	}
	if _, err := bolt.OpenReadOnly(path, bolt.Options{OnLocked: bolt.MemoryOnly}); !errors.Is(err, bolt.ErrInvalidOptions) {
		t.Errorf("MemoryOnly: got %v", err)
	}
	if left, err := filepath.Glob(path + "*"); err != nil || len(left) != 1 {
		t.Errorf("changed something: %q, %v", left, err)
	}
}

func TestOpen_NewerFormat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	if err := bolttest.Open(t, path, bolt.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	if err := bolt.SetFormat(path, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := bolt.OpenReadOnly(path, bolt.Options{}); !errors.Is(err, store.ErrNewerFormat) {
		t.Errorf("OpenReadOnly: got %v, want ErrNewerFormat", err)
	}
	db := bolttest.Open(t, path, bolt.Options{})
	if !strings.HasSuffix(db.Quarantined(), "newer-format") {
		t.Fatalf("quarantined as %q", db.Quarantined())
	}
	if _, err := bolt.OpenReadOnly(db.Quarantined(), bolt.Options{}); !errors.Is(err, store.ErrNewerFormat) {
		t.Errorf("the quarantined file: got %v", err)
	}
}

// TestOpen_Strikes lets processes die while they open a file, in a way that
// recover does not see.
func TestOpen_Strikes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	if err := bolttest.Open(t, path, bolt.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	die := func() {
		t.Helper()
		if err := bolt.DieWhileOpening(path); err != nil {
			t.Fatal(err)
		}
	}
	reopen := func() string {
		t.Helper()
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		return db.Quarantined()
	}
	for range bolt.MaxStrikes - 1 {
		die()
	}
	if got := reopen(); got != "" {
		t.Fatalf("quarantined after %d strikes: %s", bolt.MaxStrikes-1, got)
	}
	// An Open that ended begins the count anew.
	for range bolt.MaxStrikes {
		die()
	}
	if got := reopen(); !strings.HasSuffix(got, "crashed-while-opening") {
		t.Fatalf("not quarantined after %d strikes: %q", bolt.MaxStrikes, got)
	}
	if got := reopen(); got != "" {
		t.Errorf("the fresh file was quarantined too: %s", got)
	}
	// Strikes are about one file, not about whatever is at the path later.
	for range bolt.MaxStrikes {
		die()
	}
	other := filepath.Join(t.TempDir(), "cache.db")
	if err := bolttest.Open(t, other, bolt.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	if got := reopen(); got != "" {
		t.Errorf("another file was quarantined: %s", got)
	}
}

func TestOpen_Strikes_NotAcrossBoots(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	if err := bolttest.Open(t, path, bolt.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	for range bolt.MaxStrikes + 1 {
		if err := bolt.DieWhileOpening(path); err != nil {
			t.Fatal(err)
		}
		record, err := os.ReadFile(bolt.LockPath(path))
		if err != nil {
			t.Fatal(err)
		}
		record = bytes.Replace(record, []byte(`"boot":"`), []byte(`"boot":"another`), 1)
		if err := os.WriteFile(bolt.LockPath(path), record, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if db := bolttest.Open(t, path, bolt.Options{}); db.Quarantined() != "" {
		t.Errorf("power cuts count as strikes: %s", db.Quarantined())
	}
}

// TestOpen_LockFileIsGarbage checks that only the lock of the lock file matters.
func TestOpen_LockFileIsGarbage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	for _, content := range []string{"", "{", "null", `{"phase":7}`, `{"phase":"damaged"}`, strings.Repeat("x", 1<<20)} {
		if err := os.WriteFile(bolt.LockPath(path), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if db.Quarantined() != "" {
			t.Errorf("quarantined because of %.20q", content)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpen_DiskCannotBeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	reopen := func() string {
		t.Helper()
		db := bolttest.Open(t, path, bolt.Options{})
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		return db.Quarantined()
	}
	fail := func(times int) {
		t.Helper()
		for range times {
			if err := bolt.FailToRead(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	reopen()
	fail(bolt.MaxStrikes - 1)
	if got := reopen(); got != "" {
		t.Fatalf("moved aside after %d failures: %s", bolt.MaxStrikes-1, got)
	}
	fail(bolt.MaxStrikes)
	if got := reopen(); !strings.HasSuffix(got, "-unreadable") {
		t.Fatalf("not moved aside after %d failures: %q", bolt.MaxStrikes, got)
	}
}

// TestCollection_CleanNeedsAClose tells apart a store that was closed and one whose
// process was killed, for its disk may not have let it say that it is at work.
func TestCollection_CleanNeedsAClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	header := func(c store.Collection) (h store.Header) {
		t.Helper()
		err := c.View(func(tx store.Tx) (err error) {
			h, err = tx.Header()
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	db := bolttest.Open(t, path, bolt.Options{})
	c := collection(t, db)
	if err := c.Apply(store.Batch{Header: &store.Header{RV: "1", Clean: true}}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = bolttest.Open(t, path, bolt.Options{})
	if !header(collection(t, db)).Clean {
		t.Error("not clean after Close")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := bolt.DieOpen(path, bolt.Options{}); err != nil {
		t.Fatal(err)
	}
	db = bolttest.Open(t, path, bolt.Options{})
	c = collection(t, db)
	if h := header(c); h.Clean || h.RV != "1" {
		t.Errorf("after a kill: %+v", h)
	}
	// What this process says itself is believed.
	if err := c.Apply(store.Batch{Header: &store.Header{RV: "2", Clean: true}}); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if h := header(collection(t, db)); !h.Clean {
		t.Errorf("after a graceful stop of the informer: %+v", h)
	}
}
