package bolt_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
)

// TestOpen_Quarantine_KeepsNewerFormats prunes none of the files that a newer
// version wants back, however old and many they are, nor counts them.
func TestOpen_Quarantine_KeepsNewerFormats(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	var newer, damaged []string
	for i := range bolt.MaxQuarantined + 2 {
		stamp := fmt.Sprintf("%s.quarantined-2001010%dT000000.000Z-", path, i+1)
		newer = append(newer, stamp+"newer-format")
		damaged = append(damaged, stamp+"damaged")
	}
	for _, name := range append(append([]string{path}, newer...), damaged...) {
		if err := os.WriteFile(name, []byte("not a database"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	db := bolttest.Open(t, path, bolt.Options{})
	if db.Quarantined() == "" {
		t.Fatal("nothing was moved aside")
	}
	for _, name := range newer {
		if _, err := os.Stat(name); err != nil {
			t.Errorf("pruned: %v", err)
		}
	}
	// The one that was moved now is the newest of those that are kept.
	for i, name := range damaged {
		_, err := os.Stat(name)
		if kept, want := !errors.Is(err, os.ErrNotExist), i > 2; kept != want {
			t.Errorf("%s: kept %v, want %v", strings.TrimPrefix(name, path), kept, want)
		}
	}
}
