package bolt_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
)

func TestOpen_FileSystem_OneWarning(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	for name, c := range map[string]struct {
		fileSystem string
		err        error
		lines      int
	}{
		"network": {"NFS", nil, 1},
		"local":   {"", nil, 0},
		"unknown": {"", errors.New("no such call"), 0},
	} {
		log := &strings.Builder{}
		o := bolt.OnFileSystem(bolt.Options{Logger: logTo(log)}, func(asked string) (string, error) {
			if asked != dir {
				t.Errorf("%s: asked about %s", name, asked)
			}
			return c.fileSystem, c.err
		})
		db := bolttest.Open(t, filepath.Join(dir, "cache.db"), o)
		if got := log.String(); strings.Count(got, "\n") != c.lines || c.lines > 0 && !strings.Contains(got, `fileSystem="NFS"`) {
			t.Errorf("%s: logged:\n%s", name, got)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
