//go:build linux

package powercut

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// opKind is what an operation does to the disk.
type opKind string

const (
	opWrite    opKind = "write"
	opTruncate opKind = "truncate"
	// opSync has returned without an error, opFail with one.
	opSync   opKind = "sync"
	opFail   opKind = "failed sync"
	opCreate opKind = "create"
	opMkdir  opKind = "mkdir"
	opRename opKind = "rename"
	opUnlink opKind = "unlink"
	// opMark is a mark of the workload.
	opMark opKind = "mark"
)

// op is one operation on the directory of a workload.
type op struct {
	kind opKind
	// path is relative to the root; to is the new one of a rename.
	path, to string
	// file is the number of the file, -1 for a directory.
	file   int
	offset int64
	data   []byte
	size   int64
	mark   mark
}

func (o op) String() string {
	switch o.kind {
	case opWrite:
		return fmt.Sprintf("write %d bytes at %d of %s", len(o.data), o.offset, o.path)
	case opTruncate:
		return fmt.Sprintf("truncate %s to %d", o.path, o.size)
	case opRename:
		return fmt.Sprintf("rename %s to %s", o.path, o.to)
	case opMark:
		return "mark " + o.mark.String()
	}
	return string(o.kind) + " " + o.path
}

// isNameOp says whether o changes a directory.
func (o op) isNameOp() bool {
	return o.kind == opCreate || o.kind == opMkdir || o.kind == opRename || o.kind == opUnlink
}

// tracer turns calls into operations.
type tracer struct {
	root string
	ops  []op
	// live are the files by path as the process sees them, -1 for a directory.
	live map[string]int
	// inodes are the inode numbers of the files, by their number.
	inodes []uint64
	// offsets are those of open files, by descriptor.
	offsets map[int64]int64
}

func newTracer(root string) *tracer {
	return &tracer{root: root, live: map[string]int{".": -1}, offsets: map[int64]int64{}}
}

// readTrace reads the operations from a file.
func (tr *tracer) readTrace(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return parseTrace(f, tr.take)
}

// below returns path relative to the root.
func (tr *tracer) below(path string) (string, bool) {
	relative, err := filepath.Rel(tr.root, path)
	return relative, err == nil && relative != ".." && !strings.HasPrefix(relative, "../")
}

// take adds what a call did.
func (tr *tracer) take(c call) error {
	switch c.name {
	case "openat":
		return tr.open(c)
	case "mkdirat", "renameat", "renameat2", "unlinkat":
		return tr.name(c)
	}
	fd, path, err := descriptor(c.args[0])
	if err != nil {
		// Not a descriptor: a path, or nothing.
		return tr.refuse(c)
	}
	relative, ours := tr.below(path)
	file, known := tr.live[relative]
	if !ours || path == "" {
		return nil
	}
	if !known {
		return fmt.Errorf("%s is not known to exist", path)
	}
	return tr.onFile(c, fd, op{path: relative, file: file})
}

// refuse refuses a call that the model does not know and that may be about our
// files.
func (tr *tracer) refuse(c call) error {
	for _, arg := range c.args {
		path, err := unescape(arg)
		if _, ours := tr.below(string(path)); err == nil && ours && c.ret >= 0 {
			return fmt.Errorf("%s is not modelled", c.name)
		}
	}
	return nil
}

func (tr *tracer) open(c call) error {
	b, err := unescape(c.args[1])
	path, ours := tr.below(string(b))
	if err != nil || !ours || c.ret < 0 {
		return err
	}
	flags := strings.Split(c.args[2], "|")
	tr.offsets[c.ret] = 0
	file, exists := tr.live[path]
	for _, flag := range flags {
		switch {
		case flag == "O_CREAT" && !exists:
			file = len(tr.inodes)
			tr.inodes = append(tr.inodes, 0)
			tr.live[path], exists = file, true
			tr.add(op{kind: opCreate, path: path, file: file})
		case flag == "O_TRUNC" && exists:
			tr.add(op{kind: opTruncate, path: path, file: file})
		case flag == "O_TMPFILE", flag == "O_APPEND" && path != marksName:
			return fmt.Errorf("%s is not modelled", flag)
		}
	}
	return nil
}

func (tr *tracer) add(o op) { tr.ops = append(tr.ops, o) }

// name takes a call that changes a directory.
func (tr *tracer) name(c call) error {
	path, ours, err := tr.pathAt(c, 1)
	if err != nil || !ours || c.ret < 0 {
		return err
	}
	file := tr.live[path]
	switch c.name {
	case "mkdirat":
		tr.live[path] = -1
		tr.add(op{kind: opMkdir, path: path, file: -1})
	case "unlinkat":
		delete(tr.live, path)
		tr.add(op{kind: opUnlink, path: path, file: file})
	default:
		to, ours, err := tr.pathAt(c, 3)
		if err != nil || !ours {
			return fmt.Errorf("rename out of the directory: %w", err)
		}
		delete(tr.live, path)
		tr.live[to] = file
		tr.add(op{kind: opRename, path: path, to: to, file: file})
	}
	return nil
}

// pathAt returns the i-th argument as a path below the root. Go passes absolute
// paths as they are.
func (tr *tracer) pathAt(c call, i int) (path string, ours bool, err error) {
	b, err := unescape(c.args[i])
	if err != nil {
		return "", false, err
	}
	path, ours = tr.below(string(b))
	return path, ours, nil
}

var inodePattern = regexp.MustCompile(`st_ino=(\d+)`)

// onFile takes a call on a descriptor of a file of ours.
func (tr *tracer) onFile(c call, fd int64, o op) (err error) {
	switch c.name {
	case "close":
		delete(tr.offsets, fd)
	case "lseek":
		tr.offsets[fd] = c.ret
	case "fstat":
		if m := inodePattern.FindStringSubmatch(c.args[1]); m != nil && o.file >= 0 {
			tr.inodes[o.file], err = strconv.ParseUint(m[1], 10, 64)
		}
	case "fsync", "fdatasync":
		o.kind = opSync
		if c.ret < 0 {
			o.kind = opFail
		}
		tr.add(o)
	case "ftruncate":
		if c.ret >= 0 {
			o.kind = opTruncate
			o.size, err = strconv.ParseInt(c.args[1], 10, 64)
			tr.add(o)
		}
	case "write", "pwrite64":
		if c.ret > 0 {
			return tr.write(c, fd, o)
		}
	default:
		return fmt.Errorf("%s is not modelled", c.name)
	}
	return err
}

func (tr *tracer) write(c call, fd int64, o op) (err error) {
	o.kind = opWrite
	if o.data, err = unescape(c.args[1]); err != nil {
		return err
	}
	o.data = o.data[:c.ret]
	if o.path == marksName {
		o.kind = opMark
		o.mark, err = parseMark(string(o.data))
		tr.add(o)
		return err
	}
	o.offset = tr.offsets[fd]
	if c.name == "pwrite64" {
		o.offset, err = strconv.ParseInt(c.args[3], 10, 64)
	} else {
		tr.offsets[fd] += c.ret
	}
	tr.add(o)
	return err
}
