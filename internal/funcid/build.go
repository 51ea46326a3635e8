package funcid

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
)

// build identifies the running program by what is in it. Size and time of the file would
// not do: images that can be reproduced give all files the same time, and programs that
// differ in a constant have the same size. A program that cannot be read is like no other.
var build = sync.OnceValue(func() string {
	program, err := openProgram()
	if err != nil {
		return "unknown " + rand.Text()
	}
	defer func() { _ = program.Close() }()
	id, err := identify(program)
	if err != nil {
		return "unknown " + rand.Text()
	}
	return id
})

// openProgram opens the file that the process was started from. What os.Executable names
// may be a later one, if a deploy has replaced it since.
func openProgram() (*os.File, error) {
	if running, err := os.Open("/proc/self/exe"); err == nil {
		return running, nil
	}
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}

// identify returns the build ID that the go command has written into a program, which has
// a hash of its content, or if there is none a hash of the file: reading a large one
// costs a good part of what a warm start saves.
func identify(program io.ReaderAt) (string, error) {
	if id := buildID(program); isOfContent(id) {
		return id, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(program, 0, 1<<62)); err != nil {
		return "", fmt.Errorf("reading the program: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// isOfContent tells the build IDs of the go command, which are four hashes, from what a
// build system has set in their place, such as "redacted".
func isOfContent(id string) bool {
	parts := strings.Split(id, "/")
	return len(parts) == 4 && len(parts[3]) >= 16
}

const (
	// noteHeader is the size of what precedes the build ID in its ELF note: three
	// numbers, of which the second is the length of the ID, and the name "Go".
	noteHeader = 16
	// marker precedes the quoted build ID at the beginning of the code in other formats
	// than ELF, which is in the first markerWithin bytes of the file.
	marker       = "\xff Go build ID: "
	markerWithin = 32 << 10
)

// buildID returns the build ID in a program, or "" if it has none.
func buildID(program io.ReaderAt) string {
	if f, err := elf.NewFile(program); err == nil {
		return noteOf(f)
	}
	head := make([]byte, markerWithin)
	n, _ := program.ReadAt(head, 0) // a shorter file is an error, too
	_, after, _ := bytes.Cut(head[:n], []byte(marker))
	quoted, err := strconv.QuotedPrefix(string(after))
	if err != nil {
		return ""
	}
	id, _ := strconv.Unquote(quoted) // it is quoted
	return id
}

func noteOf(f *elf.File) string {
	section := f.Section(".note.go.buildid")
	if section == nil {
		return ""
	}
	note, err := section.Data()
	if err != nil || len(note) < noteHeader {
		return ""
	}
	id := note[noteHeader:]
	return string(id[:min(len(id), int(f.ByteOrder.Uint32(note[4:])))])
}
