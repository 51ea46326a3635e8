//go:build linux

package powercut

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// modelled are the system calls that the model of the disk understands.
const modelled = "openat,close,lseek,fstat,write,pwrite64,ftruncate,fsync,fdatasync,mkdirat,renameat,renameat2,unlinkat"

// unmodelled change files too. A trace in which one of them touches a file of
// ours is refused, so that the model does not fall behind the code silently.
const unmodelled = "?open,?creat,writev,pwritev,pwritev2,?truncate,fallocate,dup,?dup2,dup3,?mkdir,?rmdir,?rename,?unlink," +
	"?link,linkat,?symlink,symlinkat,copy_file_range,?sendfile,splice,sync,syncfs,sync_file_range,?io_uring_setup"

// needStrace skips or fails a test where strace cannot run.
func needStrace(t *testing.T) {
	t.Helper()
	out, err := exec.Command("strace", "-f", "-o", os.DevNull, "true").CombinedOutput()
	switch {
	case err == nil:
	case os.Getenv(requireVariable) != "":
		t.Fatalf("strace cannot run, but %s requires it: %v\n%s", requireVariable, err, out)
	default:
		t.Skipf("strace, which records what the engine writes, cannot run (%s=strace requires it): %v\n%s", requireVariable, err, out)
	}
}

// trace runs a workload in a child under strace and appends the trace to the
// file of the given name. injection, if not empty, is an -e inject of strace.
// An end by an injected SIGKILL is no error.
func trace(w workload, file, injection string) (killed bool, err error) {
	argument, err := json.Marshal(w)
	if err != nil {
		return false, err
	}
	args := []string{
		"-f", "-y", "-v", "-xx", "-s", "100000000", "-A", "-o", file,
		"-e", "signal=none", "-e", "trace=" + modelled + "," + unmodelled,
	}
	if injection != "" {
		args = append(args, "-e", "inject="+injection)
	} else {
		// Fast, but it makes strace forget to send signals.
		args = append(args, "--seccomp-bpf")
	}
	cmd := exec.Command("strace", append(args, os.Args[0], string(argument))...)
	// One processor keeps the goroutines on few threads: strace counts calls to
	// inject into by thread.
	cmd.Env = append(os.Environ(), childVariable+"=1", "GOMAXPROCS=1")
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && strings.HasPrefix(exit.String(), "signal: killed") {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("strace %s: %w\n%s", w.Name, err, out)
	}
	return false, nil
}

// call is a system call that has returned, as strace prints it.
type call struct {
	name string
	args []string
	// ret is the returned number, -1 for an error.
	ret int64
}

// parseTrace calls fn for every call in a trace, in the order in which they
// returned.
func parseTrace(r io.Reader, fn func(call) error) error {
	unfinished := map[string]string{}
	for lines := bufio.NewReaderSize(r, 1<<20); ; {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		c, complete, err := parseLine(strings.TrimSuffix(line, "\n"), unfinished)
		if err == nil && complete {
			err = fn(c)
		}
		if err != nil {
			return fmt.Errorf("%w in the trace line %.300s", err, line)
		}
	}
}

// parseLine parses one line; unfinished has the calls that have not returned, by
// thread.
func parseLine(line string, unfinished map[string]string) (c call, complete bool, err error) {
	thread, text, _ := strings.Cut(line, " ")
	text = strings.TrimLeft(text, " ")
	if strings.HasPrefix(text, "+++") || strings.HasPrefix(text, "---") {
		return call{}, false, nil
	}
	if start, ok := strings.CutSuffix(text, " <unfinished ...>"); ok {
		unfinished[thread] = start
		return call{}, false, nil
	}
	if strings.HasPrefix(text, "<... ") {
		_, rest, _ := strings.Cut(text, " resumed>")
		text = unfinished[thread] + rest
		delete(unfinished, thread)
	}
	end := strings.LastIndex(text, " = ")
	name, args, ok := strings.Cut(text[:max(0, end)], "(")
	args = strings.TrimSuffix(strings.TrimRight(args, " "), ")")
	if !ok || end < 0 {
		return call{}, false, errors.New("not a call")
	}
	number, _, _ := strings.Cut(text[end+len(" = "):], " ")
	number, _, _ = strings.Cut(number, "<")
	if number == "?" {
		// The process ended in it.
		return call{}, false, nil
	}
	ret, err := strconv.ParseInt(number, 10, 64)
	return call{name: name, args: splitArgs(args), ret: ret}, true, err
}

// splitArgs splits arguments at commas that are not within a structure.
func splitArgs(s string) (args []string) {
	depth, start := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
			if depth == 0 {
				args = append(args, strings.TrimSpace(s[start:i]))
				start = i + 1
			}
		}
	}
	return append(args, strings.TrimSpace(s[start:]))
}

// unescape decodes a string that strace printed in hexadecimal, in quotes or not.
func unescape(s string) ([]byte, error) {
	if strings.HasSuffix(s, "...") {
		return nil, errors.New("a string was cut off")
	}
	return hex.DecodeString(strings.ReplaceAll(strings.Trim(s, `"`), `\x`, ""))
}

// descriptor splits "7<path>". The path is that of the file at the time of the
// call, which a rename may have changed since it was opened; empty if the file
// has none any more.
func descriptor(s string) (fd int64, path string, err error) {
	number, rest, found := strings.Cut(s, "<")
	if number == "AT_FDCWD" {
		number = "-100"
	}
	if fd, err = strconv.ParseInt(number, 10, 64); err != nil || !found || !strings.HasSuffix(rest, ">") {
		return fd, "", err
	}
	b, err := unescape(strings.TrimSuffix(rest, ">"))
	if err != nil {
		// A socket, pipe or the like, which has no path in hexadecimal.
		return fd, "", nil //nolint:nilerr // it is not a file of ours
	}
	return fd, string(b), nil
}
