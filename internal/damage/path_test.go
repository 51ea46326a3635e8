package damage

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/warmcache/warmcache/store/bolt"
)

// TestPath opens paths that lead to something that is no file of ours, which
// must be an error that changes nothing.
func TestPath(t *testing.T) { run(t, "path", len(obstacles)) }

// obstacle is something in the way of a cache file.
type obstacle struct {
	what string
	// make makes it, given the path of the cache file.
	make func(path string) error
	// works says that Open has to succeed all the same.
	works bool
}

var obstacles = []obstacle{
	{"directory", func(path string) error { return os.Mkdir(path, 0o700) }, false},
	{"symbolic link to a file", func(path string) error {
		return errors.Join(os.WriteFile(path+".target", nil, 0o600), os.Symlink(path+".target", path))
	}, false},
	{"dangling symbolic link", func(path string) error { return os.Symlink(path+".nowhere", path) }, false},
	{"symbolic link to itself", func(path string) error { return os.Symlink(path, path) }, false},
	{"fifo", func(path string) error { return unix.Mkfifo(path, 0o600) }, false},
	{"socket", func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) }, false},
	{"device", func(path string) error { return os.Symlink("/dev/zero", path) }, false},
	{"lock file is a directory", func(path string) error { return os.Mkdir(path+".owner", 0o700) }, false},
	{"lock file is a fifo", func(path string) error { return unix.Mkfifo(path+".owner", 0o600) }, false},
	{"lock file is a device", func(path string) error { return os.Symlink("/dev/zero", path+".owner") }, false},
	{"lock file is a dangling symbolic link", func(path string) error { return os.Symlink(path+".nowhere/x", path+".owner") }, false},
	{"quarantined directories", func(path string) error {
		return os.Mkdir(path+".quarantined-20200101T000000.000Z-damaged", 0o700)
	}, true},
	{"empty file", func(path string) error { return os.WriteFile(path, nil, 0o600) }, true},
	{"leftovers of a creation", func(path string) error { return os.WriteFile(path+".new-123", []byte("x"), 0o600) }, true},
}

func pathCase(_ []*sample, t task, dir string) (r result, err error) {
	o := obstacles[t.Number]
	r.What, r.Lives = o.what, 1
	path := filepath.Join(dir, "cache.db")
	if err := o.make(path); err != nil {
		return r, err
	}
	before, err := listing(dir)
	if err != nil {
		return r, err
	}
	//hygiene:allow bolt.Open: a child has no test, and the file is damaged
	db, openErr := bolt.Open(path, options())
	if openErr == nil {
		err = db.Close()
	}
	if (openErr == nil) != o.works {
		r.Problems = append(r.Problems, fmt.Sprintf("Open returned %v", openErr))
	}
	after, listErr := listing(dir)
	if openErr != nil && !bytes.Contains(after, before) {
		r.Problems = append(r.Problems, fmt.Sprintf("Open changed %s to %s", before, after))
	}
	return r, errors.Join(err, listErr)
}

// listing describes what is in a directory, but for a lock file that is one.
func listing(dir string) ([]byte, error) {
	entries, err := os.ReadDir(dir)
	var b bytes.Buffer
	for _, entry := range entries {
		if entry.Type().IsRegular() && filepath.Ext(entry.Name()) == ".owner" {
			continue
		}
		fmt.Fprintln(&b, entry)
	}
	return b.Bytes(), err
}

// TestOwner damages the lock file of a file that is good.
func TestOwner(t *testing.T) { run(t, "owner", cases()/5) }

// ownerCase damages a lock file that a process has left. Whatever it says, the
// cache is opened, and moved aside only if the lock file says that it is damaged
// or has been opened too often.
func ownerCase(samples []*sample, t task, dir string) (result, error) {
	random := rand.New(rand.NewPCG(t.Seed, uint64(t.Number)))
	s := samples[random.IntN(2)]
	u := newUser(s, filepath.Join(dir, "cache.db"))
	if err := os.WriteFile(u.path, s.file(), 0o600); err != nil {
		return u.result, err
	}
	//hygiene:allow bolt.Open: a child has no test, and the file is damaged
	db, err := bolt.Open(u.path, options())
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		return u.result, err
	}
	content, err := os.ReadFile(u.path + ".owner")
	if err != nil {
		return u.result, err
	}
	d := &damaged{sample: s, Rand: random, file: content}
	d.owner()
	u.What = fmt.Sprintf("%v: %.300q", d.what, d.file)
	if err := os.WriteFile(u.path+".owner", d.file, 0o600); err != nil {
		return u.result, err
	}
	u.use()
	may := regexp.MustCompile("damaged|opening").Match(d.file)
	if u.Quarantined && !may {
		u.Problems = append(u.Problems, "a good file was moved aside")
	}
	return u.result, nil
}

// owner damages the content of a lock file, or makes it say something else.
func (d *damaged) owner() {
	word := []string{"closed", "open", "opening", "damaged", "", "nonsense"}[d.IntN(6)]
	strikes := []string{"0", "1", "3", "-1", "99", "1e9", "null", "18446744073709551616", `"x"`}[d.IntN(9)]
	switch d.IntN(8) {
	case 0:
		d.file = nil
		d.note("empty")
	case 1:
		d.cut(d.IntN(len(d.file)))
	case 2:
		d.garbage()
	case 3:
		d.file = d.random(1 << 20)
		d.note("a megabyte of garbage")
	case 4:
		d.zero()
	case 5:
		for range 1 + d.IntN(9) {
			// An earlier flip may have hit the end.
			d.flipIn(span{0, max(1, bytes.IndexByte(d.file, '}')+1)}, "owner")
		}
	default:
		d.file = bytes.Replace(d.file, []byte(`"phase":"closed"`), fmt.Appendf(nil, `"phase":%q,"strikes":%s`, word, strikes), 1)
		d.note("phase %q, strikes %s", word, strikes)
	}
}
