package crashtest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/codec"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
	"github.com/warmcache/warmcache/store/storetest"
)

// fileChecker checks what processes leave behind, against the history of the
// server.
type fileChecker struct {
	t      testing.TB
	world  *world
	ledger *ledger
	path   string
	// scratch is a directory for copies.
	scratch string
	codecs  map[string]*codec.Codec
	// rvs are the stored resourceVersions of the last check.
	rvs map[string]uint64
	// unfinished are the collections that were incomplete at the last check.
	unfinished []string
	// incomplete counts collections that were found in the middle of a list,
	// unindexed complete ones whose index was being written, departed the records of
	// departed objects.
	incomplete, unindexed, departed int
}

func newFileChecker(t testing.TB, w *world, l *ledger, path string) *fileChecker {
	t.Helper()
	f := &fileChecker{t: t, world: w, ledger: l, path: path, scratch: t.TempDir(), codecs: map[string]*codec.Codec{}, rvs: map[string]uint64{}}
	for _, s := range specs {
		c, err := codec.New(kinds[s.gvr]())
		if err != nil {
			t.Fatal(err)
		}
		f.codecs[s.name] = c
	}
	return f
}

// check verifies a copy of the file, so that whatever is wrong with the file
// itself is still there for the next process. stopped says that the process
// ended by itself, synced that its informers had synced before.
func (f *fileChecker) check(stopped, synced bool) {
	f.t.Helper()
	content, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		// Killed before the file was there.
		content, err = nil, nil
	}
	if err != nil {
		f.t.Fatal(err)
	}
	target := filepath.Join(f.scratch, "copy.db")
	collections := map[store.Identity]collectionInFile{}
	if content != nil {
		if err := os.WriteFile(target, content, 0o600); err != nil {
			f.t.Fatal(err)
		}
		bolttest.CheckRecords(f.t, target, func(_ store.Identity, _ string, record []byte) error { return codec.Verify(record) })
		if collections, err = readFile(target); err != nil {
			f.t.Errorf("reading the file: %v", err)
			return
		}
	}
	f.unfinished = nil
	for _, s := range specs {
		in := collections[s.identity()]
		f.collection(s, in)
		if header := in.contents.Header; stopped && synced && (header == nil || !header.Complete) {
			f.t.Errorf("%s: incomplete although the process had synced and was stopped: %+v", s.name, header)
		}
	}
}

// collectionInFile is one collection as it was found.
type collectionInFile struct {
	info     store.Info
	contents storetest.Contents
}

func readFile(path string) (map[store.Identity]collectionInFile, error) {
	db, err := bolt.OpenReadOnly(path, bolt.Options{})
	if err != nil {
		return nil, err
	}
	found := map[store.Identity]collectionInFile{}
	infos, err := db.Informers()
	for _, info := range infos {
		c, openErr := db.Collection(info.Identity, "test")
		if openErr != nil {
			return nil, errors.Join(openErr, db.Close())
		}
		in := collectionInFile{info: info}
		viewErr := c.View(func(tx store.Tx) (err error) {
			in.contents, err = storetest.DumpTx(tx, indexName, cache.NamespaceIndex)
			return err
		})
		found[info.Identity] = in
		err = errors.Join(err, viewErr, c.Close())
	}
	return found, errors.Join(err, db.Close())
}

// collection checks one collection; it is empty if it is not in the file.
func (f *fileChecker) collection(s spec, in collectionInFile) {
	if in.info.Totals != in.contents.Scanned {
		f.t.Errorf("%s: header counts %+v, there are %+v", s.name, in.info.Totals, in.contents.Scanned)
	}
	objects, metas := f.objects(s, in)
	f.header(s, in, objects)
	if header := in.contents.Header; header != nil {
		if header.Complete && header.Indices[indexName] == "" {
			f.unindexed++
		}
		f.index(s, header.Indices[indexName], indexName, in.contents.Indices[indexName], metas)
		if header.Indices[cache.NamespaceIndex] != "" {
			f.entries(s, cache.NamespaceIndex, cache.MetaNamespaceIndexFunc, in.contents.Indices[cache.NamespaceIndex], metas)
		}
	}
	inFile, givenUp := map[id]bool{}, map[id]bool{}
	for _, v := range objects {
		inFile[v.id()] = true
	}
	f.departures(s, in.contents.Departed, inFile, givenUp)
	f.ledger.note(s.name, inFile, givenUp)
}

// objects decodes what is stored, each of which the server must have had.
func (f *fileChecker) objects(s spec, in collectionInFile) (map[string]version, map[string]metav1.Object) {
	objects, metas := map[string]version{}, map[string]metav1.Object{}
	for _, entry := range in.contents.Objects {
		obj, v := f.decode(s, entry.Key, []byte(entry.Value))
		objects[entry.Key], metas[entry.Key] = v, obj
		header := in.contents.Header
		if header == nil || !header.Complete {
			continue
		}
		if want := "transform version " + obj.GetAnnotations()[transformAnnotation]; !strings.HasSuffix(header.Fingerprint, want) &&
			want != "transform version " {
			f.t.Errorf("%s: %q of %q in a collection of %q", s.name, v, want, header.Fingerprint)
		}
	}
	return objects, metas
}

func (f *fileChecker) decode(s spec, key string, record []byte) (metav1.Object, version) {
	decoded, err := f.codecs[s.name].Decode(record)
	obj, ok := decoded.(metav1.Object)
	if err != nil || !ok {
		f.t.Errorf("%s: decode %s: %T, %v", s.name, key, decoded, err)
		return &metav1.ObjectMeta{}, version{}
	}
	v := versionOf(obj)
	if v.key != key {
		f.t.Errorf("%s: %q is stored as %s", s.name, v, key)
	}
	return obj, v
}

// header checks that the stored version is that of the stored objects, neither
// ahead nor behind.
func (f *fileChecker) header(s spec, in collectionInFile, objects map[string]version) {
	header := in.contents.Header
	if header == nil {
		if len(objects) > 0 {
			f.t.Errorf("%s: %d objects without a header", s.name, len(objects))
		}
		return
	}
	rv := uint64(0)
	if header.RV != "" {
		var err error
		if rv, err = strconv.ParseUint(header.RV, 10, 64); err != nil {
			f.t.Errorf("%s: %v", s.name, err)
		}
	}
	if rv < f.rvs[s.name] || rv > f.world.revision() {
		f.t.Errorf("%s: stored version %d, it was %d, the server is at %d", s.name, rv, f.rvs[s.name], f.world.revision())
	}
	f.rvs[s.name] = rv
	if header.Complete {
		for _, problem := range difference(f.world.at(s, rv), objects) {
			f.t.Errorf("%s: stored objects at version %d %s", s.name, rv, problem)
		}
		return
	}
	f.incomplete++
	f.unfinished = append(f.unfinished, s.name)
	for _, v := range objects {
		if !f.world.was(s, v) {
			f.t.Errorf("%s: %q is stored, which never was", s.name, v)
		}
	}
}

// index checks the index of the program, whose function depends on its version.
func (f *fileChecker) index(s spec, fingerprint, name string, got []storetest.IndexValue, objects map[string]metav1.Object) {
	if fingerprint == "" {
		return
	}
	fn, known := indexFuncs[strings.TrimPrefix(fingerprint, "version ")]
	if !known {
		f.t.Errorf("%s: index has the fingerprint %q", s.name, fingerprint)
		return
	}
	f.entries(s, name, fn, got, objects)
}

// entries checks that the entries are those that fn gives for the objects.
func (f *fileChecker) entries(s spec, name string, fn cache.IndexFunc, got []storetest.IndexValue, objects map[string]metav1.Object) {
	want := map[string]bool{}
	for key, obj := range objects {
		values, err := fn(obj)
		if err != nil {
			f.t.Error(err)
		}
		for _, value := range values {
			want[value+" "+key] = true
		}
	}
	found := 0
	for _, value := range got {
		for _, key := range value.Keys {
			found++
			if !want[value.Value+" "+key] {
				f.t.Errorf("%s: index %s has %q for %s, which is not so", s.name, name, value.Value, key)
			}
		}
	}
	if found != len(want) {
		f.t.Errorf("%s: index %s has %d entries, want %d", s.name, name, found, len(want))
	}
}

// departures checks the departed records, and adds to inFile what they know.
func (f *fileChecker) departures(s spec, departed []store.Departed, inFile, givenUp map[id]bool) {
	f.departed += len(departed)
	for _, d := range departed {
		_, v := f.decode(s, d.Key, d.Value)
		if v.uid != d.UID || !f.world.was(s, v) {
			f.t.Errorf("%s: departed record of %s, %s is of %q", s.name, d.Key, d.UID, v)
		}
		o := id{d.Key, d.UID}
		inFile[o] = true
		if d.Attempts >= maxAttempts {
			givenUp[o] = true
		}
	}
}

// maxAttempts is after how many interrupted deliveries a delete is given up.
const maxAttempts = 3

// modified is when the file was last written.
func (f *fileChecker) modified() time.Time {
	info, err := os.Stat(f.path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// leftovers fails for files that should not be there once a process has had the
// file open.
func (f *fileChecker) leftovers() {
	entries, err := os.ReadDir(filepath.Dir(f.path))
	if err != nil {
		f.t.Fatal(err)
	}
	for _, entry := range entries {
		if name := entry.Name(); name != filepath.Base(f.path) && name != filepath.Base(f.path)+".owner" {
			f.t.Errorf("left behind: %s", name)
		}
	}
}
