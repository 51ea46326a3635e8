package damage

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// task is what a child is told: one case.
type task struct {
	// Campaign is the name of a campaign.
	Campaign string
	Seed     uint64
	Number   int
	// Again says that an earlier child has crashed with this case, whose file is
	// there as that child has left it.
	Again bool
}

// campaigns are what a child can do with a case, in a directory of its own.
var campaigns = map[string]func(samples []*sample, t task, dir string) (result, error){
	"file":  fileCase,
	"live":  liveCase,
	"owner": ownerCase,
	"path":  pathCase,
}

// serve is a child: it reads tasks and writes results, one a line, until there
// are no more.
func serve(dir string, in io.Reader, out io.Writer) error {
	samples, err := loadSamples(dir)
	if err != nil {
		return err
	}
	tasks, results := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	for {
		var t task
		if err := tasks.Decode(&t); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		r, err := runCase(samples, t, dir)
		if err != nil {
			return fmt.Errorf("case %d: %w", t.Number, err)
		}
		if err := results.Encode(r); err != nil {
			return err
		}
	}
}

// runCase runs a case in a new directory, which it removes unless the process
// crashes.
func runCase(samples []*sample, t task, dir string) (result, error) {
	dir = filepath.Join(dir, fmt.Sprintf("%s-%d", t.Campaign, t.Number))
	if err := os.Mkdir(dir, 0o700); err != nil && (!t.Again || !errors.Is(err, fs.ErrExist)) {
		return result{}, err
	}
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
	r, err := campaigns[t.Campaign](samples, t, dir)
	r.Peak = peakMemory()
	return r, errors.Join(err, os.RemoveAll(dir))
}

// peakMemory is the most memory that was resident since it was reset, in KiB.
func peakMemory() (kib int64) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	_, _ = fmt.Sscan(rest, &kib) // 0 where there is no such line
	return kib
}

// fileCase uses a damaged file.
func fileCase(samples []*sample, t task, dir string) (result, error) {
	d := newCase(samples, t.Seed, t.Number)
	u := newUser(d.sample, filepath.Join(dir, "cache.db"))
	u.What = d.String()
	u.evidence = d.file
	if !t.Again {
		if err := d.write(u.path); err != nil {
			return u.result, err
		}
	}
	u.use()
	return u.result, nil
}

// write makes the file, with its holes.
func (d *damaged) write(path string) error {
	if err := os.WriteFile(path, d.file, 0o600); err != nil || len(d.holes) == 0 {
		return err
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	for _, s := range d.holes {
		// What comes after the hole was done to the file may have shortened it.
		if d.within(s) && isZero(d.file[s.at:][:s.size]) {
			err = errors.Join(err, punch(file, s))
		}
	}
	return err
}

func punch(file *os.File, s span) error {
	return unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(s.at), int64(s.size))
}

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
