package bolt_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
	"github.com/warmcache/warmcache/store/storetest"
)

// session is what a child does with a file: what it reads line by line, one
// answer for each line. SIGTERM closes the file and ends it.
type session struct {
	path string
	db   interface{ Close() error }
	c    store.Collection
	log  bytes.Buffer
}

func childSession(path string) error {
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM)
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- in.Text()
		}
	}()
	s := &session{path: path}
	for {
		select {
		case line, more := <-lines:
			if !more {
				return s.close()
			}
			fmt.Println(s.answer(line))
		case <-terminate:
			return s.close()
		}
	}
}

func (s *session) answer(line string) string {
	command, argument, _ := strings.Cut(line, " ")
	var err error
	switch command {
	case "open":
		return s.open(argument)
	case "apply":
		err = s.apply(argument)
	case "flush":
		err = s.c.Flush(context.Background())
	case "close":
		err = s.close()
	case "logged":
		return s.logged(argument)
	default:
		err = errors.New("unknown command " + command)
	}
	if err != nil {
		return "error: " + err.Error()
	}
	return "done"
}

// commitsAtTheEnd makes only Flush and Close commit.
var commitsAtTheEnd = bolt.Options{FlushInterval: time.Hour}

// open answers "open", "memory", or "locked <pid of the holder>".
func (s *session) open(how string) string {
	o := commitsAtTheEnd
	o.LockTimeout = 10 * time.Millisecond
	o.Logger = logTo(&s.log)
	var err error
	switch how {
	case "wait":
		o.OnLocked, o.LockTimeout = bolt.Wait, 0
		o.Logger = logTo(onWrite(sayWaiting))
	case "memory":
		o.OnLocked = bolt.MemoryOnly
	}
	switch how {
	case "read":
		s.db, err = bolt.OpenReadOnly(s.path, o)
	case "bbolt":
		s.db, err = bbolt.Open(s.path, 0o600, &bbolt.Options{Timeout: time.Millisecond})
	default:
		s.db, err = bolt.Open(s.path, o)
	}
	if err != nil {
		s.db = nil
		var locked *bolt.LockedError
		if errors.As(err, &locked) {
			return fmt.Sprint("locked ", locked.Owner.PID)
		}
		return "error: " + err.Error()
	}
	if db, ok := s.db.(*bolt.DB); ok && !db.Persistent() {
		return "memory"
	}
	return "open"
}

// logged answers how many lines have all of the parts, which a "|" separates.
func (s *session) logged(parts string) string {
	count := 0
	for line := range strings.Lines(s.log.String()) {
		has := true
		for part := range strings.SplitSeq(parts, "|") {
			has = has && strings.Contains(line, part+`"`)
		}
		if has {
			count++
		}
	}
	return strconv.Itoa(count)
}

// sayWaiting prints "waiting" when a logged line says that Open waits.
func sayWaiting(line string) {
	if strings.Contains(line, "Waiting for the cache file") {
		fmt.Println("waiting")
	}
}

// apply applies as many objects as it is told to.
func (s *session) apply(count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	if s.c, err = s.db.(*bolt.DB).Collection(storetest.Pods(), "test"); err != nil {
		return err
	}
	for i := range n {
		b := store.Batch{Ops: []store.Op{storetest.Put(strconv.Itoa(i), "x")}, Header: &store.Header{RV: strconv.Itoa(i + 1)}}
		if err := s.c.Apply(b); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) close() error {
	if s.db == nil {
		return nil
	}
	defer func() { s.db = nil }()
	return s.db.Close()
}

// ask tells a session something and returns its answer.
func (c *child) ask(format string, args ...any) string {
	c.t.Helper()
	c.tell(format, args...)
	return c.line()
}

// startHolder starts a session that has opened the file.
func startHolder(t *testing.T, path string) *child {
	t.Helper()
	holder := startChild(t, "session", path)
	holder.tell("open fail")
	holder.expect("open")
	return holder
}

// TestOpen_Locked_Fail is about every way to open a file that a process has open.
func TestOpen_Locked_Fail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	before := time.Now().Add(-time.Second)
	holder := startHolder(t, path)
	_, err := bolt.Open(path, bolt.Options{LockTimeout: time.Millisecond})
	checkLockedBy(t, err, holder.cmd.Process.Pid, before)
	_, err = bolt.OpenReadOnly(path, bolt.Options{LockTimeout: time.Millisecond})
	checkLockedBy(t, err, holder.cmd.Process.Pid, before)
	holder.kill()
	// A lock ends with its process, and a kill leaves no strike.
	if db := bolttest.Open(t, path, bolt.Options{}); db.Quarantined() != "" {
		t.Errorf("quarantined after a kill: %s", db.Quarantined())
	}
}

// checkLockedBy checks that err says who holds the file, and since when.
func checkLockedBy(t *testing.T, err error, pid int, since time.Time) {
	t.Helper()
	var locked *bolt.LockedError
	if !errors.As(err, &locked) || !errors.Is(err, store.ErrLocked) {
		t.Fatalf("got %v, want a LockedError", err)
	}
	host, hostErr := os.Hostname()
	owner := locked.Owner
	if owner.PID != pid || owner.Host != host || hostErr != nil || owner.Since.Before(since) || owner.Since.After(time.Now().Add(time.Second)) {
		t.Errorf("owner: got %+v, want pid %d on %s since after %s", owner, pid, host, since)
	}
	for _, part := range []string{fmt.Sprint("pid ", pid), "host " + host, owner.Since.Format(time.RFC3339)} {
		if message := err.Error(); !strings.Contains(message, part) || strings.Contains(message, "\n") {
			t.Errorf("the message does not say %q in one line: %q", part, message)
		}
	}
}

// TestOpen_Locked_WaitGetsTheFile hands a file over to a process that waits for
// it. It must find everything that its predecessor had applied, or, after a kill,
// flushed.
func TestOpen_Locked_WaitGetsTheFile(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, holder *child){
		"Close": func(_ *testing.T, holder *child) { holder.tell("close") },
		"SIGTERM": func(t *testing.T, holder *child) {
			if err := holder.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		},
		"SIGKILL": func(_ *testing.T, holder *child) {
			holder.tell("flush")
			holder.expect("done")
			holder.kill()
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cache.db")
			holder := startHolder(t, path)
			holder.tell("apply 500")
			holder.expect("done")
			heir := startChild(t, "session", path)
			heir.tell("open wait")
			heir.expect("waiting")
			end(t, holder)
			heir.expect("open")
			heir.tell("close")
			heir.expect("done")
			heir.finish()
			checkHeritage(t, path, 500)
		})
	}
}

// checkHeritage checks that path has that many objects, and was never moved
// aside.
func checkHeritage(t *testing.T, path string, want int64) {
	t.Helper()
	db := bolttest.Open(t, path, bolt.Options{})
	contents := storetest.Dump(t, collection(t, db))
	if contents.Scanned.Count != want || contents.Header == nil || contents.Header.RV != fmt.Sprint(want) {
		t.Errorf("handed over: %d objects, header %+v; want %d", contents.Scanned.Count, contents.Header, want)
	}
	if moved, err := filepath.Glob(path + ".quarantined-*"); err != nil || len(moved) > 0 {
		t.Errorf("quarantined: %q, %v", moved, err)
	}
}

func TestOpen_Locked_WaitEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	before := time.Now().Add(-time.Second)
	holder := startHolder(t, path)
	log := &strings.Builder{}
	_, err := bolt.Open(path, bolt.Options{OnLocked: bolt.Wait, LockTimeout: 120 * time.Millisecond, Logger: logTo(log)})
	checkLockedBy(t, err, holder.cmd.Process.Pid, before)
	// It says once for whom it waits, however often it has tried.
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, fmt.Sprint("pid ", holder.cmd.Process.Pid)) {
		t.Errorf("logged:\n%s", got)
	}
}

func TestOpen_Locked_MemoryOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	holder := startHolder(t, path)
	log := &strings.Builder{}
	db, err := bolt.Open(path, bolt.Options{OnLocked: bolt.MemoryOnly, LockTimeout: time.Millisecond, Logger: logTo(log)})
	if err != nil {
		t.Fatal(err)
	}
	c := collection(t, db)
	apply(t, c, storetest.Put("a", "1"))
	check := func(when string) {
		t.Helper()
		if db.Persistent() {
			t.Errorf("%s: the store says that it is persistent", when)
		}
		if err := c.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		if d := c.Durability(); !errors.Is(d.Err, store.ErrLocked) || d.RV != "" {
			t.Errorf("%s: durability: %+v", when, d)
		}
		if got := storetest.Dump(t, c).Objects; len(got) != 1 {
			t.Errorf("%s: objects: %v", when, got)
		}
		if infos, err := db.Informers(); err != nil || len(infos) != 1 {
			t.Errorf("%s: Informers: %v, %v", when, infos, err)
		}
	}
	check("held")
	holder.finish()
	check("released by the holder")
	// It does not keep others from the file.
	next := startHolder(t, path)
	check("held by another process")
	if err := errors.Join(db.Close(), db.Close()); err != nil {
		t.Error(err)
	}
	next.finish()
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, fmt.Sprint("pid ", holder.cmd.Process.Pid)) {
		t.Errorf("want one line that names the holder, logged:\n%s", got)
	}
	if got := storetest.Dump(t, collection(t, bolttest.Open(t, path, bolt.Options{}))).Objects; len(got) > 0 {
		t.Errorf("written to the file of another process: %v", got)
	}
}

// TestOpen_Locked_HolderWithoutRecord has the file held by what does not know the
// lock file.
func TestOpen_Locked_HolderWithoutRecord(t *testing.T) {
	for _, how := range []string{"read", "bbolt"} {
		t.Run(how, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cache.db")
			if err := bolttest.Open(t, path, bolt.Options{}).Close(); err != nil {
				t.Fatal(err)
			}
			holder := startChild(t, "session", path)
			holder.tell("open %s", how)
			holder.expect("open")
			var locked *bolt.LockedError
			_, err := bolt.Open(path, bolt.Options{LockTimeout: time.Millisecond})
			if !errors.As(err, &locked) || locked.Owner != (bolt.Owner{}) || !strings.Contains(err.Error(), "left no record") {
				t.Errorf("Fail: got %v, want a LockedError without an owner", err)
			}
			memory := startChild(t, "session", path)
			memory.tell("open memory")
			memory.expect("memory")
			heir := startChild(t, "session", path)
			heir.tell("open wait")
			heir.expect("waiting")
			// Who waits for it has the lock file, and has its name in it.
			third := startChild(t, "session", path)
			third.tell("open fail")
			third.expect(fmt.Sprint("locked ", heir.cmd.Process.Pid))
			third.finish()
			holder.kill()
			heir.expect("open")
			memory.finish()
			heir.finish()
		})
	}
}

// TestOpen_Locked_OwnerIsNotTheLastOne checks that a process which is gone is not
// said to hold what a reader holds.
func TestOpen_Locked_OwnerIsNotTheLastOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	first := startHolder(t, path)
	first.finish()
	reader := startChild(t, "session", path)
	reader.tell("open bbolt")
	reader.expect("open")
	_, err := bolt.OpenReadOnly(path, bolt.Options{LockTimeout: time.Millisecond})
	var locked *bolt.LockedError
	if !errors.As(err, &locked) || locked.Owner.PID == first.cmd.Process.Pid {
		t.Errorf("got %v", err)
	}
}

// TestOpen_SameInstant has processes open one file at once, over and over: new,
// good, damaged, without its lock file. Exactly one of them gets it.
func TestOpen_SameInstant(t *testing.T) {
	rounds := 120
	if testing.Short() {
		rounds = 30
	}
	path := filepath.Join(t.TempDir(), "cache.db")
	processes := []*child{startChild(t, "session", path), startChild(t, "session", path), startChild(t, "session", path)}
	prepare := []func() error{
		func() error { return os.Remove(path) },
		func() error { return nil },
		func() error { return os.WriteFile(path, []byte(strings.Repeat("damaged ", 4096)), 0o600) },
		func() error { return os.Truncate(path, 8192) },
		func() error { return os.Remove(bolt.LockPath(path)) },
	}
	wins := map[int]int{}
	for round := range rounds {
		if err := prepare[round%len(prepare)](); err != nil && round > 0 {
			t.Fatal(err)
		}
		for _, p := range processes {
			p.tell("open fail")
		}
		wins[oneOwner(t, round, processes)]++
		if t.Failed() {
			return
		}
	}
	t.Logf("%d rounds, won by %v", rounds, wins)
}

// oneOwner checks that one of the processes has the file and the others are told
// of nobody else, and has it closed. It returns which one.
func oneOwner(t *testing.T, round int, processes []*child) (owner int) {
	t.Helper()
	var answers []string
	owners := 0
	for i, p := range processes {
		answers = append(answers, p.line())
		if answers[i] == "open" {
			owner = i
			owners++
		}
	}
	pid := fmt.Sprint("locked ", processes[owner].cmd.Process.Pid)
	for _, answer := range answers {
		// The owner may have had no time to write its name.
		if answer != "open" && answer != pid && answer != "locked 0" {
			owners = -1
		}
	}
	if owners != 1 {
		t.Fatalf("round %d: %q, the owner's name is %s", round, answers, pid)
	}
	processes[owner].tell("close")
	processes[owner].expect("done")
	return owner
}

// TestOpen_Locked_LockFileIsLost takes the lock file away from a process, or what
// is in it. The lock of the database itself still holds.
func TestOpen_Locked_LockFileIsLost(t *testing.T) {
	for name, lose := range map[string]func(lock string) error{
		"deleted":  os.Remove,
		"replaced": func(lock string) error { return errors.Join(os.Remove(lock), os.WriteFile(lock, nil, 0o600)) },
		"garbage":  func(lock string) error { return os.WriteFile(lock, []byte(strings.Repeat("x", 2000)), 0o600) },
		"empty":    func(lock string) error { return os.Truncate(lock, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cache.db")
			holder := startHolder(t, path)
			if err := lose(bolt.LockPath(path)); err != nil {
				t.Fatal(err)
			}
			for mode, open := range map[string]func(string, bolt.Options) (*bolt.DB, error){"Open": bolt.Open, "OpenReadOnly": bolt.OpenReadOnly} {
				if _, err := open(path, bolt.Options{LockTimeout: time.Millisecond}); !errors.Is(err, store.ErrLocked) {
					t.Errorf("%s: got %v, want ErrLocked", mode, err)
				}
			}
			holder.finish()
			if db := bolttest.Open(t, path, bolt.Options{}); db.Quarantined() != "" {
				t.Errorf("quarantined: %s", db.Quarantined())
			}
		})
	}
}

// TestOpen_Locked_LockFileIsReplacedWhileWaiting: who waits for a lock file that
// is then removed must not take its lock for that of the path.
func TestOpen_Locked_LockFileIsReplacedWhileWaiting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	first := startHolder(t, path)
	waiting := startChild(t, "session", path)
	waiting.tell("open wait")
	waiting.expect("waiting")
	if err := os.Remove(bolt.LockPath(path)); err != nil {
		t.Fatal(err)
	}
	second := startChild(t, "session", path)
	second.tell("open wait")
	second.expect("waiting")
	first.finish()
	// Either of the two gets it, and only then the other one.
	answers := make(chan *child, 2)
	for _, c := range []*child{waiting, second} {
		go func() {
			// It may say that it waits for another one now.
			for line := c.line(); line == "waiting"; {
				line = c.line()
			}
			answers <- c
		}()
	}
	for range 2 {
		c := <-answers
		if got := c.stdout.Text(); got != "open" {
			t.Fatalf("one of the two did not get the file: %q", got)
		}
		other := startChild(t, "session", path)
		if got, want := other.ask("open fail"), fmt.Sprint("locked ", c.cmd.Process.Pid); got != want {
			t.Errorf("a third process: %q, want %q", got, want)
		}
		other.finish()
		c.tell("close")
	}
}

// TestOpen_Locked_DuringQuarantine opens the path from another process in the
// middle of a quarantine, when there is no file.
func TestOpen_Locked_DuringQuarantine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("text\n", 3000)), 0o600); err != nil {
		t.Fatal(err)
	}
	other := startChild(t, "session", path)
	want := fmt.Sprint("locked ", os.Getpid())
	tried := false
	db, err := bolt.Open(path, bolt.Options{Logger: logTo(onWrite(func(line string) {
		if !strings.Contains(line, "Moved a cache file aside") {
			return
		}
		tried = true
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("there is a file at the path: %v", err)
		}
		if got := other.ask("open fail"); got != want {
			t.Errorf("a third process in the middle of a quarantine: %q, want %q", got, want)
		}
	}))})
	if err != nil {
		t.Fatal(err)
	}
	if db.Quarantined() == "" || !tried {
		t.Error("nothing was quarantined")
	}
	if got := other.ask("open fail"); got != want {
		t.Errorf("a third process after a quarantine: %q, want %q", got, want)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	if got := other.ask("open fail"); got != "open" {
		t.Errorf("a third process at last: %q", got)
	}
	other.finish()
}

// onWrite calls itself with what is written.
type onWrite func(string)

func (f onWrite) Write(p []byte) (int, error) {
	f(string(p))
	return len(p), nil
}

// TestOpen_Locked_KeepsWhatWasFound checks that an Open which did not get the
// file leaves what is said about it: that it is damaged, and strikes.
func TestOpen_Locked_KeepsWhatWasFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	if err := bolttest.Open(t, path, bolt.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	for range bolt.MaxStrikes {
		reader := startChild(t, "session", path)
		reader.tell("open read")
		reader.expect("open")
		if _, err := bolt.Open(path, bolt.Options{LockTimeout: time.Millisecond}); !errors.Is(err, store.ErrLocked) {
			t.Fatalf("got %v, want ErrLocked", err)
		}
		reader.finish()
		if err := bolt.DieWhileOpening(path); err != nil {
			t.Fatal(err)
		}
	}
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(db.Quarantined(), "crashed-while-opening") {
		t.Errorf("strikes were forgotten: quarantined as %q", db.Quarantined())
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// TestOpenReadOnly_WaitsForTheNewFile has the owner replace the file for which a
// reader waits, as a quarantine does.
func TestOpenReadOnly_WaitsForTheNewFile(t *testing.T) {
	dir := t.TempDir()
	path, next := filepath.Join(dir, "cache.db"), filepath.Join(dir, "next.db")
	for file, count := range map[string]string{path: "1", next: "7"} {
		c := startHolder(t, file)
		c.tell("apply %s", count)
		c.expect("done")
		c.finish()
	}
	holder := startChild(t, "session", path)
	holder.tell("open bbolt")
	holder.expect("open")
	db, err := bolt.OpenReadOnly(path, bolt.Options{OnLocked: bolt.Wait, Logger: logTo(onWrite(func(string) {
		if err := os.Rename(next, path); err != nil {
			t.Error(err)
		}
		holder.kill()
	}))})
	if err != nil {
		t.Fatal(err)
	}
	if got := storetest.Dump(t, collection(t, db)).Scanned.Count; got != 7 {
		t.Errorf("%d objects: the file that was moved away was read", got)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
